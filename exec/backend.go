package exec

import (
	"fmt"
	"slices"

	"pesti/exec/cpu"
	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
)

// A backend runs an engine's programs on this machine's processor or on CUDA devices. It reads the
// inputs of a run from the memory of the engine's io buffers and writes the outputs there.
type backend interface {
	// run runs all steps of a program. If the engine's forward pass is canceled meanwhile, run
	// returns cpu.ErrCanceled after all work has stopped; so do runStep, fetch and contents.
	run(g *program, r kernel.Run) error
	// runStep runs one step of a program. The steps before it must have run.
	runStep(g *program, wave, step int, r kernel.Run) error
	// fetch copies the outputs of the last run to the io buffers again, after the set of wanted
	// outputs has changed.
	fetch(r kernel.Run) error
	// contents returns the format and the first rows of a buffer, each of cols elements. If each
	// worker has a copy, it is worker 0's. The view is valid until the next step.
	contents(g *plan.Program, id, rows, cols int) (format string, data []byte, err error)
	// poison fills the arena with NaN.
	poison() error
	workers() int
	// cancelOn sets the channel that cancels later runs, see Engine.done.
	cancelOn(done <-chan struct{})
	close() error
}

// A processor is this machine as a backend: the engine's own workers and memory.
type processor struct{ *Engine }

func (p processor) run(g *program, r kernel.Run) error { return p.machine.Run(p.done, g.schedule, r) }

// runStep lets all workers do their shares of one step.
func (p processor) runStep(g *program, wave, step int, r kernel.Run) error {
	one := make(cpu.Schedule, len(g.schedule))
	for w := range one {
		one[w] = [][]kernel.Func{{g.schedule[w][wave][step]}}
	}
	return p.machine.Run(p.done, one, r)
}

func (p processor) contents(g *plan.Program, id, _, _ int) (string, []byte, error) {
	format, data := p.buffer(g, id, 0)
	return format, data, nil
}

func (p processor) poison() error {
	p.poisonArena()
	return nil
}

// poisonArena fills the processor's arena with NaN.
func (e *Engine) poisonArena() {
	for i := range e.arenas[0] {
		e.arenas[0][i] = 0xff
	}
}

func (p processor) cancelOn(<-chan struct{}) {} // the workers poll Engine.done

func (p processor) workers() int { return p.machine.Workers() }

func (p processor) close() error {
	p.machine.Close()
	return p.free()
}

func (p processor) fetch(kernel.Run) error { return nil } // outputs are in host memory already

// wanted reports whether the caller reads an io buffer after a run. Of the buffers for logits,
// argmax and top-k, the caller reads one kind.
func (e *Engine) wanted(name string) bool {
	switch name {
	case "logits":
		return e.top == 0
	case plan.Argmax:
		return e.top == 1
	case plan.TopIDs, plan.TopLogits:
		return e.top > 1
	}
	return true
}

// idle reports whether nobody reads the argmax or top-k that a step finds. An observer reads all.
func (e *Engine) idle(st *plan.Step) bool {
	if st.Kernel != "cuda.top" || e.observe != nil {
		return false
	}
	for _, a := range st.Args {
		if a.Role == "ids" {
			return !e.wanted(e.plan.Buffers[a.Buffer].Name)
		}
	}
	return false
}

// outputs returns the io buffers that steps write and the caller reads, with their numbers of
// elements after a run.
func (e *Engine) outputs(r kernel.Run) ([]output, error) {
	scope := e.plan.Scope(nil)
	scope.T, scope.R = int64(r.T), int64(r.R)
	var list []output
	for i := range e.plan.Buffers {
		b := &e.plan.Buffers[i]
		if b.Class != plan.IO || slices.ContainsFunc(plan.Inputs(), func(in plan.Input) bool { return in.Name == b.Name }) || !e.wanted(b.Name) {
			continue
		}
		n, err := scope.Eval(b.Elems)
		if err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
		if n > 0 {
			list = append(list, output{i, n})
		}
	}
	return list, nil
}

type output struct {
	id    int
	elems int64
}
