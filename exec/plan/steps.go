package plan

import "iter"

// Steps returns the steps of a program in execution order, each with the number of its wave.
func (g *Program) Steps() iter.Seq2[int, *Step] {
	return func(yield func(int, *Step) bool) {
		for i := range g.Waves {
			for j := range g.Waves[i].Steps {
				if !yield(i, &g.Waves[i].Steps[j]) {
					return
				}
			}
		}
	}
}

// Steps returns the steps of all programs, each with its program.
func (p *Plan) Steps() iter.Seq2[*Program, *Step] {
	return func(yield func(*Program, *Step) bool) {
		for i := range p.Programs {
			for _, st := range p.Programs[i].Steps() {
				if !yield(&p.Programs[i], st) {
					return
				}
			}
		}
	}
}

// Buffer returns the buffer with an ID, shared or of program g; nil if there is none.
func (p *Plan) Buffer(g *Program, id int) *Buffer {
	switch n := id - len(p.Buffers); {
	case id < 0:
		return nil
	case n < 0:
		return &p.Buffers[id]
	case n < len(g.Buffers):
		return &g.Buffers[n]
	}
	return nil
}
