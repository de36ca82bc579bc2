package plan_test

import (
	"math"
	"testing"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

// A balance is the sum of its waves, which are the sums of their steps.
func TestBalance(t *testing.T) {
	p := plantest.Plan(2)
	for i := range p.Programs {
		g := &p.Programs[i]
		b, err := plan.BalanceOf(p, g)
		if err != nil {
			t.Fatal(err)
		}
		want, err := plan.NewCoster(p).Program(g, p.FullWorkload(g), plantest.Threads)
		if err != nil || b.Cost != want || len(b.Waves) != len(g.Waves) {
			t.Errorf("%s: %d waves that cost %+v, want %d and %+v, %v", g.Name, len(b.Waves), b.Cost, len(g.Waves), want, err)
		}
		var bytes, macs, most int64
		for j, w := range b.Waves {
			if len(w.Kernels) != len(g.Waves[j].Steps) || len(w.Bytes) != plantest.Threads {
				t.Errorf("%s: wave %d is %+v", g.Name, j, w)
			}
			for _, n := range w.Bytes {
				bytes += n
			}
			for _, n := range w.MACs {
				macs += n
			}
			wave := max(w.Bytes[0], w.Bytes[1])
			most += wave
			if want := float64(2*wave)/float64(w.Bytes[0]+w.Bytes[1]) - 1; math.Abs(w.Imbalance-want) > 1e-12 {
				t.Errorf("%s: wave %d has imbalance %v, want %v", g.Name, j, w.Imbalance, want)
			}
		}
		if bytes != want.Read() || macs != want.MACs || math.Abs(b.Imbalance-(2*float64(most)/float64(bytes)-1)) > 1e-12 {
			t.Errorf("%s: waves read %d bytes with an imbalance of %v, want %d", g.Name, bytes, b.Imbalance, want.Read())
		}
	}
}

func TestFullLoad(t *testing.T) {
	p := &plan.Plan{Target: plan.Target{Ctx: 100, Sequences: 4}}
	for _, c := range []struct {
		g    plan.Program
		want plan.Workload
	}{
		{plan.Program{MaxT: 4, MaxR: 4}, plan.Workload{T: 4, R: 4, Seqs: 4, Pos: 49}},
		{plan.Program{MaxT: 3, MaxR: 2}, plan.Workload{T: 3, R: 2, Seqs: 3, Pos: 49}},
		{plan.Program{MaxT: 32, MaxR: 8}, plan.Workload{T: 32, R: 1, Seqs: 1, Pos: 34}},
		{plan.Program{MaxT: 512, MaxR: 8}, plan.Workload{T: 512, R: 1, Seqs: 1}},
	} {
		if got := p.FullWorkload(&c.g); got != c.want {
			t.Errorf("up to %d tokens: %+v, want %+v", c.g.MaxT, got, c.want)
		}
	}
}
