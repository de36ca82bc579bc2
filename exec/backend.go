package exec

import (
	"fmt"
	"slices"

	"pesti/exec/cpu"
	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
)

// A backend computes what an engine's programs say: on this machine's processor, or on a device. The
// inputs of a step are in the memory of the engine's io buffers, and so are then its outputs.
type backend interface {
	// run runs all steps of a program. Where the engine's pass is cancelled meanwhile, it returns
	// cpu.ErrCancelled, with nothing still in progress, as runStep, fetch and contents do.
	run(g *program, r kernel.Run) error
	// runStep runs one step of a program, after those before it.
	runStep(g *program, wave, step int, r kernel.Run) error
	// fetch brings the outputs of the last run once more, where others are wanted than then.
	fetch(r kernel.Run) error
	// contents returns the first rows of a buffer, or of the first worker's copy of it, each of cols
	// elements, in a view that holds until the next step, and their format.
	contents(g *plan.Program, id, rows, cols int) (format string, data []byte, err error)
	// poison fills the arena with NaN.
	poison() error
	workers() int
	// cancelOn tells the backend which channel cancels what it runs from now on, see Engine.done.
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

func (p processor) fetch(kernel.Run) error { return nil } // all are here

// wanted reports whether the caller will look at an io buffer after a run: of the logits and what is found
// of them it is one.
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

// idle reports whether nobody will look at what a step finds. An observer looks at all.
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

// outputs returns the io buffers that steps write and the caller wants, with how many elements they have
// after a run.
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
