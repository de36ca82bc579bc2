package lower

import (
	"fmt"

	"pesti/exec/plan"
	"pesti/lower/memplan"
)

// place sets the offset of every arena buffer, and sums the memory of each device. Programs never
// run at the same time, so they share the arenas, and an arena has the size of its largest program.
// Lifetimes are whole waves, since the steps of a wave run concurrently.
func place(p *plan.Plan, layouts []*layout, planner string) error {
	memory := make([]plan.Memory, p.NumDevices())
	for i, l := range layouts {
		prog := &p.Programs[i]
		spans := lifetimes(prog, l, len(p.Buffers))
		for d := range memory {
			if err := placeOn(d, l.buffers, spans, &memory[d], planner); err != nil {
				return fmt.Errorf("program %s: %w", prog.Name, err)
			}
		}
		prog.Buffers = l.buffers
	}
	return p.Sum(memory)
}

// lifetimes sets the first and last step of each buffer, and returns its size and the waves in
// which it is live.
func lifetimes(prog *plan.Program, l *layout, base int) []memplan.Buffer {
	first := make([]int, len(l.buffers))
	spans := make([]memplan.Buffer, len(l.buffers))
	for k, b := range l.buffers {
		first[k] = -1
		spans[k] = memplan.Buffer{Size: b.Size, Align: plan.ArenaAlign}
	}
	for w, st := range prog.Steps() {
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
	return spans
}

// placeOn sets the offsets of one device's buffers in its arena.
func placeOn(device int, buffers []plan.Buffer, spans []memplan.Buffer, m *plan.Memory, planner string) error {
	var own []memplan.Buffer
	var at []int
	for k := range buffers {
		if buffers[k].Device == device {
			own, at = append(own, spans[k]), append(at, k)
		}
	}
	best, err := memplan.Best(own, memplan.Options{Planner: planner})
	if err != nil {
		return err
	}
	if err := memplan.Check(own, best.Offsets, best.Size); err != nil {
		return fmt.Errorf("planner %s: %w", best.Planner, err)
	}
	for i, k := range at {
		buffers[k].Offset = best.Offsets[i]
	}
	m.Arena = max(m.Arena, best.Size)
	m.ArenaLowerBound = max(m.ArenaLowerBound, best.Bound)
	m.ArenaUnshared = max(m.ArenaUnshared, best.Unshared)
	return nil
}
