package exec

import (
	"fmt"

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
	return checkFit(plan.DeviceMemoryUse(e.plan, 0), ram, " on the CPU", "compile with more GPU layers, a shorter context, fewer sequences or a smaller ubatch")
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
