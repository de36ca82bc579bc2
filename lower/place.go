package lower

import (
	"fmt"

	"pesti/exec/plan"
	"pesti/lower/memplan"
)

// place gives every arena buffer its offset. Programs never run at the same time, so each has
// the arena to itself, and the arena is as large as the largest needs. Lifetimes are counted in
// waves: steps of one wave run side by side.
func place(p *plan.Plan, layouts []*layout, planner string) error {
	for i, l := range layouts {
		prog := &p.Programs[i]
		base := len(p.Buffers)
		first := make([]int, len(l.buffers))
		spans := make([]memplan.Buffer, len(l.buffers))
		for k, b := range l.buffers {
			first[k] = -1
			spans[k] = memplan.Buffer{Size: b.Size, Align: plan.ArenaAlign}
		}
		for w := range prog.Waves {
			for s := range prog.Waves[w].Steps {
				st := &prog.Waves[w].Steps[s]
				touch := func(id int) {
					k := id - base
					if k < 0 {
						return
					}
					if first[k] < 0 {
						first[k] = st.ID
						spans[k].First = w
					}
					l.buffers[k].First = first[k]
					l.buffers[k].Last = st.ID + 1
					spans[k].Last = w + 1
				}
				for _, a := range st.Args {
					touch(a.Buffer)
				}
				touch(st.Scratch)
			}
		}
		best, err := memplan.Best(spans, memplan.Options{Planner: planner})
		if err != nil {
			return fmt.Errorf("program %s: %w", prog.Name, err)
		}
		if err := memplan.Check(spans, best.Offsets, best.Size); err != nil {
			return fmt.Errorf("program %s: planner %s: %w", prog.Name, best.Planner, err)
		}
		for k := range l.buffers {
			l.buffers[k].Offset = best.Offsets[k]
		}
		prog.Buffers = l.buffers
		p.Memory.Arena = max(p.Memory.Arena, best.Size)
		p.Memory.ArenaLowerBound = max(p.Memory.ArenaLowerBound, best.Bound)
		p.Memory.ArenaUnshared = max(p.Memory.ArenaUnshared, best.Unshared)
	}
	for i := range p.Weights {
		p.Memory.Weight += p.Weights[i].Size
		p.Memory.Packed += p.Weights[i].Packed
	}
	for i := range p.Buffers {
		switch b := &p.Buffers[i]; b.Class {
		case plan.State:
			p.Memory.State += b.Size
		case plan.Table:
			p.Memory.Tables += b.Size
		default:
			p.Memory.IO += b.Size
		}
	}
	return nil
}
