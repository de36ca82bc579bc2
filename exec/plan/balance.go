package plan

import "slices"

// A Balance describes how evenly a plan's workers share one run of a program, by the costs of its
// steps. Bytes are bytes read.
type Balance struct {
	Tokens    int64         `json:"tokens"`
	Rows      int64         `json:"rows"`
	Position  int64         `json:"position"` // positions cached of each sequence before the run
	Sequences int64         `json:"sequences"`
	Cost      Cost          `json:"cost"`      // of all workers
	Imbalance float64       `json:"imbalance"` // Σ of each wave's largest share of bytes ÷ Σ of their means − 1
	Waves     []WaveBalance `json:"waves"`
}

// A WaveBalance is each worker's share of one wave.
type WaveBalance struct {
	Device    int      `json:"device,omitempty"`
	Kernels   []string `json:"kernels"` // of the wave's steps
	Bytes     []int64  `json:"bytes"`   // read by each worker
	MACs      []int64  `json:"macs"`
	Imbalance float64  `json:"imbalance"` // of bytes
}

// FullWorkload returns the largest workload of a program halfway through the context, with one row
// of logits per sequence. A program for few tokens gets one token of each of as many sequences as
// it takes, any other program all its tokens from one sequence.
func (p *Plan) FullWorkload(g *Program) Workload {
	l := Workload{T: g.MaxT, R: 1, Seqs: 1}
	if g.MaxT <= p.Target.Sequences {
		l.Seqs = g.MaxT
	}
	l.R = min(l.Seqs, g.MaxR)
	l.Pos = max(p.Target.Ctx-l.T/max(l.Seqs, 1), 0) / 2
	return l
}

// BalanceOf returns the balance of a program under its full workload on all of the plan's workers.
func BalanceOf(p *Plan, g *Program) (*Balance, error) {
	l := p.FullWorkload(g)
	b := &Balance{Tokens: l.T, Rows: l.R, Position: l.Pos, Sequences: l.Seqs}
	costs := NewCoster(p)
	var most, mean float64
	for i := range g.Waves {
		w := WaveBalance{}
		for j := range g.Waves[i].Steps {
			w.Device = g.Waves[i].Steps[j].Device // one device runs the whole wave
			w.Kernels = append(w.Kernels, g.Waves[i].Steps[j].Kernel)
		}
		workers := p.Device(w.Device).Threads
		shares := make([]float64, workers)
		for worker := range workers {
			c, err := costs.Wave(g, i, l, worker, workers)
			if err != nil {
				return nil, err
			}
			b.Cost = b.Cost.Plus(c)
			w.Bytes, w.MACs = append(w.Bytes, c.Read()), append(w.MACs, c.MACs)
			shares[worker] = float64(c.Read())
			mean += shares[worker] / float64(workers)
		}
		most += slices.Max(shares)
		w.Imbalance = Imbalance(shares)
		b.Waves = append(b.Waves, w)
	}
	if mean > 0 {
		b.Imbalance = most/mean - 1
	}
	return b, nil
}

// A WaveKind sums the waves of a program that run the same kernels on one device.
type WaveKind struct {
	Device    int
	Kernels   []string // of the steps of each wave
	Waves     int      // number of waves
	Bytes     []int64  // read by each worker in all these waves
	Imbalance float64  // the worst of a wave
}

// Kinds sums the waves that run the same kernels on the same device, in order of first occurrence.
func (b *Balance) Kinds() []WaveKind {
	var kinds []WaveKind
	for i := range b.Waves {
		w := &b.Waves[i]
		at := slices.IndexFunc(kinds, func(k WaveKind) bool { return k.Device == w.Device && slices.Equal(k.Kernels, w.Kernels) })
		if at < 0 {
			at = len(kinds)
			kinds = append(kinds, WaveKind{Device: w.Device, Kernels: w.Kernels, Bytes: make([]int64, len(w.Bytes))})
		}
		k := &kinds[at]
		k.Waves++
		k.Imbalance = max(k.Imbalance, w.Imbalance)
		for j, n := range w.Bytes {
			k.Bytes[j] += n
		}
	}
	return kinds
}
