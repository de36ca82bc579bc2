package profile

import (
	"slices"
	"strings"
	"time"

	"pesti/exec/cpu"
	"pesti/exec/cpu/kernel"
	"pesti/exec/load"
	"pesti/exec/plan"
)

// A Report compares a profile with the costs of the plan and the roofline of the machine. Times are
// in seconds, summed over all runs. A time is the mean over workers, so that steps, waits and the
// rest add up to the elapsed time.
type Report struct {
	Plan      string          `json:"plan"` // its plan.Digest
	Model     string          `json:"model"`
	ISA       string          `json:"isa"`
	Precision string          `json:"precision"`
	KV        string          `json:"kv"`
	Workers   int             `json:"workers"`
	Roofline  *cpu.Roofline   `json:"roofline"`
	Programs  []ProgramReport `json:"programs"`

	// Others is the number of processors that other programs used meanwhile, nil if that is not known. Busy
	// says that they used so many that times say little about the machine. SetLoad sets both.
	Others *float64 `json:"others,omitempty"`
	Busy   bool     `json:"busy,omitempty"`
}

// A ProgramReport holds the times of one program's runs. Costs are for the mean workload.
type ProgramReport struct {
	Program   string     `json:"program"`
	Runs      int64      `json:"runs"`
	Tokens    int64      `json:"tokens"`
	Seconds   float64    `json:"seconds"`   // elapsed
	Waits     float64    `json:"waits"`     // part of Seconds: waiting for the last worker of a wave
	Rest      float64    `json:"rest"`      // part of Seconds: before, between and after waves
	Predicted float64    `json:"predicted"` // predicted Seconds from costs and roofline
	Kernels   []Measured `json:"kernels"`   // the longest first
	Steps     []Measured `json:"steps"`     // by ID
	Waves     []Waited   `json:"waves"`
}

// A Measured is one step, or all steps of one kind.
type Measured struct {
	Name      string    `json:"name"` // of the step, or the kind
	Kernel    string    `json:"kernel"`
	Step      int       `json:"step"` // −1 for a kind
	Wave      int       `json:"wave"` // −1 for a kind
	Layer     int       `json:"layer"`
	Calls     int64     `json:"calls"`
	Seconds   float64   `json:"seconds"`
	Share     float64   `json:"share"` // of the elapsed time
	Bytes     int64     `json:"bytes"` // read
	MACs      int64     `json:"macs"`
	BytesS    float64   `json:"bytes_s"`
	MACsS     float64   `json:"macs_s"`
	Limit     float64   `json:"limit"`     // seconds, if all workers ran at the roofline all the time
	OfLimit   float64   `json:"of_limit"`  // limit ÷ seconds
	Predicted float64   `json:"predicted"` // seconds, with the plan's split of the work
	Imbalance float64   `json:"imbalance"` // relative excess of the busiest worker's time over the mean
	Workers   []float64 `json:"workers"`   // seconds of each
}

// A Waited describes how evenly the workers shared a wave.
type Waited struct {
	Wave      int       `json:"wave"`
	Seconds   float64   `json:"seconds"` // of work, mean over workers
	Waits     float64   `json:"waits"`
	Predicted float64   `json:"predicted"`
	Imbalance float64   `json:"imbalance"`
	Workers   []float64 `json:"workers"` // seconds of work of each
}

// Report compares the profile with the costs of the plan and a roofline.
func (p *Profile) Report(of *plan.Plan, r *cpu.Roofline) (*Report, error) {
	t := &of.Target
	rep := &Report{Plan: plan.Digest(of), Model: of.Model.Name, ISA: t.ISA, Precision: t.Precision, KV: t.KV, Workers: p.Workers, Roofline: r}
	coster := plan.NewCoster(of)
	for i := range p.Programs {
		g, err := p.Programs[i].report(coster, r, p.Workers)
		if err != nil {
			return nil, err
		}
		rep.Programs = append(rep.Programs, *g)
	}
	return rep, nil
}

// SetLoad sets the load of the processor during the runs. It changes nothing in a report of a device.
func (r *Report) SetLoad(l load.Load) {
	if r.Roofline == nil || r.Roofline.Near <= 0 {
		return
	}
	r.Others = l.Others
	r.Busy, _ = l.Busy()
}

// report compares one program with its costs.
func (t *ProgramTimes) report(costs *plan.Coster, r *cpu.Roofline, workers int) (*ProgramReport, error) {
	g := &ProgramReport{Program: t.Program.Name, Runs: t.Runs, Tokens: t.Tokens, Seconds: t.Wall.Seconds()}
	busy := 0.0
	for i := range t.Program.Waves {
		wave := Waited{Wave: i, Waits: mean(t.Waits[i]), Workers: make([]float64, workers)}
		ahead := make([]float64, workers) // predicted time of each worker
		for j := range t.Program.Waves[i].Steps {
			st := &t.Program.Waves[i].Steps[j]
			m, predicted, err := t.measured(st, costs, r, workers)
			if err != nil {
				return nil, err
			}
			m.Wave = i
			for w := range workers {
				wave.Workers[w] += m.Workers[w]
				ahead[w] += predicted[w]
			}
			g.Steps = append(g.Steps, *m)
		}
		wave.Predicted = slices.Max(ahead) + float64(t.Runs)*r.Wave
		wave.Imbalance = plan.Imbalance(wave.Workers)
		wave.Seconds = sum(wave.Workers) / float64(workers)
		busy += wave.Seconds
		g.Waits += wave.Waits
		g.Predicted += wave.Predicted
		g.Waves = append(g.Waves, wave)
	}
	g.Rest = g.Seconds - busy - g.Waits
	g.Kernels = kinds(g.Steps)
	return g, nil
}

// measured compares one step with its costs, and returns the predicted time of each worker.
func (t *ProgramTimes) measured(st *plan.Step, costs *plan.Coster, r *cpu.Roofline, workers int) (*Measured, []float64, error) {
	m := &Measured{Name: st.Name, Kernel: stepKind(st), Step: st.ID, Layer: st.Layer, Calls: t.Runs, Workers: make([]float64, workers)}
	predicted := make([]float64, workers)
	var all plan.Cost
	unit, runs := unitOf(st), float64(t.Runs)
	for w := range workers {
		c, err := costs.Step(t.Program, st, t.Load, w, workers)
		if err != nil {
			return nil, nil, err
		}
		all = all.Plus(c)
		m.Workers[w] = t.Steps[st.ID][w].Seconds()
		predicted[w] = runs * seconds(r, c, unit, 1/float64(workers))
	}
	m.Seconds = mean(t.Steps[st.ID])
	m.Bytes, m.MACs = t.Runs*all.Read(), t.Runs*all.MACs
	m.Limit = runs * seconds(r, all, unit, 1)
	m.Predicted = slices.Max(predicted)
	m.rate(t.Wall.Seconds())
	return m, predicted, nil
}

// rate computes the derived fields from the sums.
func (m *Measured) rate(wall float64) {
	if m.Seconds > 0 {
		m.BytesS, m.MACsS, m.OfLimit = float64(m.Bytes)/m.Seconds, float64(m.MACs)/m.Seconds, m.Limit/m.Seconds
	}
	if wall > 0 {
		m.Share = m.Seconds / wall
	}
	m.Imbalance = plan.Imbalance(m.Workers)
}

// kinds adds up the steps of each kind, the longest first.
func kinds(steps []Measured) []Measured {
	var list []Measured
	wall := 0.0
	for i := range steps {
		s := &steps[i]
		if s.Share > 0 {
			wall = s.Seconds / s.Share
		}
		at := slices.IndexFunc(list, func(m Measured) bool { return m.Kernel == s.Kernel })
		if at < 0 {
			at = len(list)
			list = append(list, Measured{Name: s.Kernel, Kernel: s.Kernel, Step: -1, Wave: -1, Layer: -1, Workers: make([]float64, len(s.Workers))})
		}
		m := &list[at]
		m.Calls += s.Calls
		m.Seconds += s.Seconds
		m.Bytes += s.Bytes
		m.MACs += s.MACs
		m.Limit += s.Limit
		m.Predicted += s.Predicted
		for w := range s.Workers {
			m.Workers[w] += s.Workers[w]
		}
	}
	for i := range list {
		list[i].rate(wall)
	}
	slices.SortStableFunc(list, func(a, b Measured) int {
		switch {
		case a.Seconds > b.Seconds:
			return -1
		case a.Seconds < b.Seconds:
			return 1
		}
		return 0
	})
	return list
}

// stepKind returns the names of a step's kernel and matmul kernels: "gated gemv.q4_k.q8x2".
func stepKind(st *plan.Step) string {
	names := []string{}
	for _, a := range st.Args {
		if a.Kernel != "" && !slices.Contains(names, a.Kernel) {
			names = append(names, a.Kernel)
		}
	}
	slices.Sort(names)
	return strings.Join(append([]string{st.Kernel}, names...), " ")
}

// units names the probes for integer products, by the format of activations. Products with two
// planes of bytes count as 16-bit products: there are twice as many, at twice the rate. For 8-bit
// weights with one plane the limit is twice too high, since kernels multiply them as 16-bit words,
// too.
var units = map[string]string{"q8x2": kernel.ProbeInt16, "q8": kernel.ProbeInt8}

// unitOf returns the name of the probe with a step's kind of arithmetic.
func unitOf(st *plan.Step) string {
	for _, a := range st.Args {
		if k, ok := plan.ParseMatmul(a.Kernel); ok && units[k.Activations] != "" {
			return units[k.Activations]
		}
	}
	return kernel.ProbeF32
}

// mean returns the mean of durations in seconds.
func mean(x []time.Duration) float64 {
	var all time.Duration
	for _, d := range x {
		all += d
	}
	return all.Seconds() / float64(max(len(x), 1))
}

func sum(x []float64) (s float64) {
	for _, v := range x {
		s += v
	}
	return s
}
