package exec

import (
	"fmt"
	"math"

	"pesti/exec/cpu"
	"pesti/exec/cpu/isa"
	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
)

// any is a card of the plan, whichever.
func (d *device) any() *card { return d.cards[len(d.cards)-1] }

// openHost sees that this machine can run the steps of a plan that has the host among its devices, makes
// their workers, and returns the instruction sets that kernels may use.
func (d *device) openHost(o Options) ([]string, error) {
	e := d.engine
	if !e.plan.HasHost() {
		return nil, nil
	}
	sets, err := isa.UpTo(e.plan.Device(0).ISA)
	if err != nil {
		return nil, fmt.Errorf("plan: %w; compile the model again on this machine, with --gpu-layers", err)
	}
	threads, err := e.workersFor(o)
	if err != nil {
		return nil, err
	}
	if err := e.fitsHost(o.RAM); err != nil {
		return nil, err
	}
	e.machine = e.newMachine(threads)
	return sets, nil
}

// fitsHost refuses a plan whose part on the host needs more memory than is available.
func (e *Engine) fitsHost(ram cpu.RAM) error {
	if ram.Total == 0 {
		ram = cpu.DetectRAM()
	}
	m, weights := e.plan.Device(0).Memory, int64(0)
	for i := range e.plan.Weights {
		if w := &e.plan.Weights[i]; w.LiesOn(0) {
			if weights += w.Size; w.Layout != "" {
				weights += w.Packed - w.Size // its pages are given back
			}
		}
	}
	all, h := float64(weights)+float64(m.State)+float64(m.Arena)+float64(m.IO), plan.HumanBytes // which may exceed an int64
	if ram.Total == 0 || all <= float64(ram.Available) {
		return nil
	}
	return fmt.Errorf("plan: needs %s of memory on the processor (weights %s, KV cache %s, arena %s, input and output %s), expected at most the %s of this machine's %s that are available; compile with more --gpu-layers, or a smaller --ctx, --sequences or --ubatch",
		h(int64(min(all, math.MaxInt64/2))), h(weights), h(m.State), h(m.Arena), h(m.IO), h(ram.Available), h(ram.Total))
}

// packHost gives the host's kernels the weights that they read in a layout of their own.
func (d *device) packHost(sets []string) error {
	e := d.engine
	if e.machine == nil {
		return nil
	}
	if err := e.allocatePacked(sets); err != nil {
		return err
	}
	return e.pack()
}

// shares binds a step of the host for each worker.
func (d *device) shares(g *plan.Program, st *plan.Step, weights map[string]weight, sets []string) ([]kernel.Func, error) {
	workers := d.engine.machine.Workers()
	list := make([]kernel.Func, workers)
	for w := range list {
		var err error
		if list[w], err = d.engine.bindStep(g, st, weights, w, workers, sets); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// alone is the schedule of one step.
func alone(shares []kernel.Func) cpu.Schedule {
	s := make(cpu.Schedule, len(shares))
	for w := range s {
		s[w] = [][]kernel.Func{{shares[w]}}
	}
	return s
}

func (d *device) closeHost() error {
	e := d.engine
	if e.machine == nil {
		return nil
	}
	e.machine.Close()
	return e.free()
}
