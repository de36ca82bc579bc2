package plan

import (
	"cmp"
	"slices"
)

// A DeviceBreakdown describes how the devices of a plan share memory and work.
type DeviceBreakdown struct {
	Devices []DeviceShare `json:"devices"`
	Links   []LinkShare   `json:"links"`
	// Speedup is an upper bound of the speed-up over one device: the work of all devices divided by
	// the work of the busiest one. It assumes that no device waits for another; a split by layers
	// waits unless as many steps are in flight as there are devices. Work that several devices
	// repeat counts once for each.
	Speedup Speedup `json:"ideal_speedup"`
}

// A DeviceShare is the memory and the work of one device.
type DeviceShare struct {
	Backend string        `json:"backend"`
	ISA     string        `json:"isa"`
	Threads int           `json:"threads"`
	Memory  MemorySummary `json:"memory"`
	Read    int64         `json:"read_per_token"`        // bytes for a single token halfway through the context
	MACs    int64         `json:"macs_per_prompt_token"` // in the program for the most tokens
}

// A LinkShare is the traffic from one device to another, in bytes.
type LinkShare struct {
	From   int   `json:"from"`
	To     int   `json:"to"`
	Token  int64 `json:"per_token"`        // for a single token with logits
	Prompt int64 `json:"per_prompt_token"` // without logits
}

// A Speedup has one bound for single tokens, from bytes read, and one for prompts, from
// multiply-accumulates.
type Speedup struct {
	Token  float64 `json:"token"`
	Prompt float64 `json:"prompt"`
}

// DeviceBreakdownOf returns how the devices of a plan that verifies share it.
func DeviceBreakdownOf(p *Plan) (*DeviceBreakdown, error) {
	s := &DeviceBreakdown{Devices: make([]DeviceShare, p.NumDevices()), Links: []LinkShare{}}
	for i := range s.Devices {
		d := p.Device(i)
		s.Devices[i] = DeviceShare{Backend: d.Backend, ISA: d.ISA, Threads: d.Threads, Memory: MemorySummary(d.Memory)}
	}
	alone := Workload{T: 1, R: 1, Seqs: 1, Pos: p.Target.Ctx / 2}
	if err := s.add(p, p.ProgramFor(alone), alone); err != nil {
		return nil, err
	}
	last := &p.Programs[len(p.Programs)-1]
	prompt := Workload{T: last.MinT, Seqs: 1}
	if err := s.add(p, last, prompt); err != nil {
		return nil, err
	}
	slices.SortFunc(s.Links, func(a, b LinkShare) int { return cmp.Or(a.From-b.From, a.To-b.To) })
	s.Speedup = Speedup{
		Token:  speedup(s.Devices, func(d *DeviceShare) int64 { return d.Read }),
		Prompt: speedup(s.Devices, func(d *DeviceShare) int64 { return d.MACs }),
	}
	return s, nil
}

// add adds the work per token of a program's steps under a workload. A workload with logits counts
// bytes read, one without counts multiply-accumulates; both count the bytes transferred.
func (s *DeviceBreakdown) add(p *Plan, g *Program, l Workload) error {
	costs := NewCoster(p)
	macs := make([]int64, len(s.Devices))
	for _, st := range g.Steps() {
		var c Cost
		for worker := range p.Device(st.Device).Threads {
			part, err := costs.Step(g, st, l, worker, p.Device(st.Device).Threads)
			if err != nil {
				return err
			}
			c = c.Plus(part)
		}
		switch {
		case IsTransfer(st.Kernel) && l.R > 0:
			s.shareOf(p, g, st).Token += c.Written
		case IsTransfer(st.Kernel):
			s.shareOf(p, g, st).Prompt += c.Written / l.T
		case l.R > 0:
			s.Devices[st.Device].Read = plus(s.Devices[st.Device].Read, c.Read())
		default:
			macs[st.Device] = plus(macs[st.Device], c.MACs)
		}
	}
	for i := range macs {
		s.Devices[i].MACs += macs[i] / l.T
	}
	return nil
}

// shareOf returns the LinkShare of the link that a transfer uses.
func (s *DeviceBreakdown) shareOf(p *Plan, g *Program, st *Step) *LinkShare {
	from := st.Device
	for _, a := range st.Args {
		if a.Role == "x" {
			from = p.Buffer(g, a.Buffer).Device
		}
	}
	at := slices.IndexFunc(s.Links, func(l LinkShare) bool { return l.From == from && l.To == st.Device })
	if at < 0 {
		at = len(s.Links)
		s.Links = append(s.Links, LinkShare{From: from, To: st.Device})
	}
	return &s.Links[at]
}

func speedup(devices []DeviceShare, of func(*DeviceShare) int64) float64 {
	sum, most := 0.0, 0.0
	for i := range devices {
		n := float64(of(&devices[i]))
		sum, most = sum+n, max(most, n)
	}
	if most == 0 {
		return 1
	}
	return sum / most
}
