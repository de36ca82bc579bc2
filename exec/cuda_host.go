package exec

import (
	"fmt"
	"math"

	"pesti/exec/cpu"
	"pesti/exec/cpu/isa"
	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
)

// anyDevice returns one of the CUDA devices.
func (d *cudaBackend) anyDevice() *cudaDevice { return d.devices[len(d.devices)-1] }

// openHost prepares the host if it is among the plan's devices: it checks that this machine can run the
// host's steps, creates the workers, and returns the instruction sets that kernels may use.
func (d *cudaBackend) openHost(o Options) ([]string, error) {
	e := d.engine
	if !e.plan.HasHost() {
		return nil, nil
	}
	sets, err := isa.UpTo(e.plan.Device(0).ISA)
	if err != nil {
		return nil, fmt.Errorf("plan: %w; compile the model again on this machine, with the same number of GPU layers", err)
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

// fitsHost returns an error if the host's part of the plan needs more memory than is available.
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
	return fmt.Errorf("plan: needs %s of memory on the CPU (weights %s, KV cache %s, arena %s, input and output %s), expected at most the available %s of this machine's %s; compile with more GPU layers, a shorter context, fewer sequences or a smaller ubatch",
		h(int64(min(all, math.MaxInt64/2))), h(weights), h(m.State), h(m.Arena), h(m.IO), h(ram.Available), h(ram.Total))
}

// packHost packs the weights that the host's kernels read in a layout.
func (d *cudaBackend) packHost(sets []string) error {
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
func (d *cudaBackend) shares(g *plan.Program, st *plan.Step, weights map[string]weight, sets []string) ([]kernel.Func, error) {
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

// alone returns the schedule of a single step.
func alone(shares []kernel.Func) cpu.Schedule {
	s := make(cpu.Schedule, len(shares))
	for w := range s {
		s[w] = [][]kernel.Func{{shares[w]}}
	}
	return s
}

func (d *cudaBackend) closeHost() error {
	e := d.engine
	if e.machine == nil {
		return nil
	}
	e.machine.Close()
	return e.free()
}
