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

// NumSteps returns the number of steps of a program.
func (g *Program) NumSteps() int {
	n := 0
	for i := range g.Waves {
		n += len(g.Waves[i].Steps)
	}
	return n
}

// WeightsByName returns the weights of a plan by their names.
func (p *Plan) WeightsByName() map[string]*Weight {
	weights := make(map[string]*Weight, len(p.Weights))
	for i := range p.Weights {
		weights[p.Weights[i].Name] = &p.Weights[i]
	}
	return weights
}

// SharedBuffer returns the first state or io buffer with a name, or nil if there is none.
func (p *Plan) SharedBuffer(class Class, name string) *Buffer {
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Class == class && b.Name == name {
			return b
		}
	}
	return nil
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
