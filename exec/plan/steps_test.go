package plan_test

import (
	"testing"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

// TestSteps checks that the iterators visit each step once, in order, and stop when the loop
// breaks.
func TestSteps(t *testing.T) {
	p := plantest.Plan(2)
	type visit struct {
		program *plan.Program
		step    *plan.Step
	}
	var want []visit
	for i := range p.Programs {
		g := &p.Programs[i]
		n := 0
		for w := range g.Waves {
			for s := range g.Waves[w].Steps {
				want = append(want, visit{g, &g.Waves[w].Steps[s]})
			}
		}
		for wave, st := range g.Steps() {
			if st.ID != n || st.ID < g.Waves[wave].Steps[0].ID {
				t.Fatalf("program %s: step %d of wave %d comes as number %d", g.Name, st.ID, wave, n)
			}
			n++
		}
	}
	at := 0
	for g, st := range p.Steps() {
		if want[at] != (visit{g, st}) {
			t.Fatalf("step %d of program %s comes as number %d of all", st.ID, g.Name, at)
		}
		if at++; at == len(want)-1 {
			break
		}
	}
	if at != len(want)-1 {
		t.Errorf("%d of %d steps were visited", at, len(want))
	}
}

// TestBuffer finds each buffer by its number, and none by another number.
func TestBuffer(t *testing.T) {
	p := plantest.Plan(2)
	for i := range p.Programs {
		g := &p.Programs[i]
		n := len(p.Buffers) + len(g.Buffers)
		for id := range n {
			if b := p.Buffer(g, id); b == nil || b.ID != id {
				t.Errorf("program %s: buffer %d is %v", g.Name, id, b)
			}
		}
		if a, b := p.Buffer(g, -1), p.Buffer(g, n); a != nil || b != nil {
			t.Errorf("program %s: found the buffers %v and %v, want none", g.Name, a, b)
		}
	}
}
