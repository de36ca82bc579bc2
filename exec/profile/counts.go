package profile

import (
	"cmp"
	"slices"

	"pesti/exec/cuda"
	"pesti/exec/plan"
)

// A CountReport compares a profile in counts with the limits of a GPU and with the bytes that the
// plan needs. Seconds are predictions: lower bounds for a GPU. The same steps give the same report.
type CountReport struct {
	Plan      string          `json:"plan"` // its plan.Digest
	Model     string          `json:"model"`
	ISA       string          `json:"isa"`
	Precision string          `json:"precision"`
	KV        string          `json:"kv"`
	GPU       cuda.GPU        `json:"gpu"`
	Programs  []ProgramCounts `json:"programs"`
}

// A ProgramCounts holds the counts of one program's runs.
type ProgramCounts struct {
	Program   string    `json:"program"`
	Runs      int64     `json:"runs"`
	Tokens    int64     `json:"tokens"`
	Total     Counted   `json:"total"`
	TokensS   float64   `json:"tokens_s"`        // tokens per second, if every kernel took its predicted time
	MemoryTS  float64   `json:"memory_tokens_s"` // the same, if only the memory traffic that the plan needs took time
	Kernels   []Counted `json:"kernels"`         // by the name in the PTX, the longest first
	Steps     []Counted `json:"steps"`           // by ID
	Fallbacks int       `json:"fallbacks"`       // steps that ran on the host, where nothing is counted
}

// A Counted holds the counts of one step, of all steps with a kernel, or of all steps.
type Counted struct {
	cuda.Counts
	Name      string  `json:"name"`
	Step      int     `json:"step"` // −1 for a kernel
	Wave      int     `json:"wave"` // −1 for a kernel
	Layer     int     `json:"layer"`
	Needed    int64   `json:"needed"`    // bytes of weights and caches that the plan needs to read; for steps only
	By        string  `json:"by"`        // the limit that bounds it, see cuda.GPU.Bound
	Predicted float64 `json:"predicted"` // seconds on the GPU
	Memory    float64 `json:"memory"`    // seconds that the GPU's memory needs for the bytes fetched and stored
	Share     float64 `json:"share"`     // of the predicted time of the program
}

// ClassShare returns the share of warp instructions that are of a class, which is an index of Classes. It is 0 if
// there are no instructions.
func (c *Counted) ClassShare(class int) float64 {
	return float64(c.Instructions[class]) / float64(max(c.Instructions.All(), 1))
}

// CountReport compares the profile of a device that counts with the costs of the plan and the limits of a GPU.
func (p *Profile) CountReport(of *plan.Plan, g cuda.GPU) (*CountReport, error) {
	t := &of.Target
	r := &CountReport{Plan: plan.Digest(of), Model: of.Model.Name, ISA: t.ISA, Precision: t.Precision, KV: t.KV, GPU: g}
	costs := plan.NewCoster(of)
	for i := range p.Programs {
		c, err := p.Programs[i].counted(costs, &g)
		if err != nil {
			return nil, err
		}
		r.Programs = append(r.Programs, *c)
	}
	return r, nil
}

// counted compares one program with its costs.
func (t *ProgramTimes) counted(costs *plan.Coster, g *cuda.GPU) (*ProgramCounts, error) {
	c := &ProgramCounts{Program: t.Program.Name, Runs: t.Runs, Tokens: t.Tokens, Total: Counted{Name: "all", Step: -1, Wave: -1, Layer: -1}}
	for i, st := range t.Program.Steps() {
		cost, err := costs.Step(t.Program, st, t.Load, 0, 1)
		if err != nil {
			return nil, err
		}
		s := Counted{Name: st.Name, Step: st.ID, Wave: i, Layer: st.Layer, Needed: t.Runs * cost.Stream()}
		if !plan.IsCUDAKernel(st.Kernel) {
			c.Fallbacks++
		}
		for k := range t.Counts[st.ID] {
			n := &t.Counts[st.ID][k]
			s.add(n, g)
			kernelOf(&c.Kernels, n.Kernel).add(n, g)
			c.Total.add(n, g)
		}
		s.Kernel = stepKind(st)
		c.Total.Needed += s.Needed
		c.Steps = append(c.Steps, s)
	}
	all := c.Total.Predicted
	c.Total.settle(g, all)
	for _, list := range [][]Counted{c.Kernels, c.Steps} {
		for i := range list {
			list[i].settle(g, all)
		}
	}
	slices.SortStableFunc(c.Kernels, func(a, b Counted) int { return cmp.Compare(b.Predicted, a.Predicted) })
	if c.Total.Predicted > 0 {
		c.TokensS = float64(t.Tokens) / c.Total.Predicted
	}
	if c.Total.Needed > 0 {
		c.MemoryTS = float64(t.Tokens) * g.Bandwidth / float64(c.Total.Needed)
	}
	return c, nil
}

// kernelOf returns the row of a kernel.
func kernelOf(list *[]Counted, name string) *Counted {
	at := slices.IndexFunc(*list, func(c Counted) bool { return c.Name == name })
	if at < 0 {
		at = len(*list)
		*list = append(*list, Counted{Name: name, Counts: cuda.Counts{Kernel: name}, Step: -1, Wave: -1, Layer: -1})
	}
	return &(*list)[at]
}

// add adds the counts of a kernel in a step. Kernels of a stream run one after the other, so that their
// predicted times add up.
func (c *Counted) add(n *cuda.Counts, g *cuda.GPU) {
	c.Counts.Add(n, 1)
	c.Predicted += g.Bound(n).Seconds
}

// settle computes the derived fields from the sums.
func (c *Counted) settle(g *cuda.GPU, all float64) {
	c.By, c.Memory = g.Bound(&c.Counts).By, g.Memory(&c.Counts)
	if all > 0 {
		c.Share = c.Predicted / all
	}
}
