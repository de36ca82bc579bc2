package draw

import "pesti/exec/plan"

// A contents is one value in a buffer of the arena: from the step that writes it to the step that overwrites it,
// or to the last step that uses the buffer. A residual stream is one buffer with a new value after each half of a
// block.
type contents struct {
	name        string // of the value, without its block: "out"
	value       string // with it: "blk.0.out"
	kind        string // of the step that writes it
	first, last int    // steps [first, last)
}

// scratchKind is the kind and the name of a step's scratch.
const scratchKind = "scratch"

// contentsOf returns the values of each buffer in a verified program's arena, in order.
func contentsOf(p *plan.Plan, g *plan.Program) map[*plan.Buffer][]contents {
	all := map[*plan.Buffer][]contents{}
	steps := stepsOf(g)
	for i, list := range touches(p, g) {
		st := steps[i]
		for _, t := range list {
			b := t.buffer
			if !t.writes || b.Class != plan.Arena {
				continue
			}
			value := valueIn(b, st, list)
			h := contents{name: inLayer(value, st.Layer), value: value, kind: kindOfKernel(st.Kernel), first: i, last: b.Last}
			if b.ID == st.Scratch {
				h.name, h.kind = scratchKind, scratchKind
			}
			if n := len(all[b]); n > 0 {
				all[b][n-1].last = i
			}
			all[b] = append(all[b], h)
		}
	}
	return all
}

// valueIn names the value that a step leaves in a buffer: the step's name, or for a step with
// several results the buffer's name, since such a buffer holds no other value.
func valueIn(b *plan.Buffer, st *plan.Step, list []touch) string {
	if b.ID == st.Scratch || b.Class == plan.State || len(results(st, list)) > 1 {
		return b.Name
	}
	return st.Name
}

// results returns the buffers that a step leaves values in.
func results(st *plan.Step, list []touch) []*plan.Buffer {
	var all []*plan.Buffer
	for _, t := range list {
		if t.writes && t.buffer.Class != plan.State && t.buffer.ID != st.Scratch {
			all = append(all, t.buffer)
		}
	}
	return all
}
