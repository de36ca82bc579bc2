package plan_test

import (
	"math"
	"reflect"
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

// TestKinds sums waves by hand. Waves of another device, or with the same kernels in another order, are other kinds.
func TestKinds(t *testing.T) {
	b := plan.Balance{Waves: []plan.WaveBalance{
		{Kernels: []string{"norm", "gated"}, Bytes: []int64{1, 2}, Imbalance: 0.25},
		{Kernels: []string{"attention"}, Bytes: []int64{10, 20}, Imbalance: 0.5},
		{Kernels: []string{"norm", "gated"}, Bytes: []int64{100, 200}, Imbalance: 0.125},
		{Device: 1, Kernels: []string{"attention"}, Bytes: []int64{7}},
		{Kernels: []string{"gated", "norm"}, Bytes: []int64{3, 4}},
		{Kernels: []string{"norm, gated"}, Bytes: []int64{5, 6}},
		{Kernels: nil, Bytes: []int64{0, 0}},
	}}
	want := []plan.WaveKind{
		{Kernels: []string{"norm", "gated"}, Waves: 2, Bytes: []int64{101, 202}, Imbalance: 0.25},
		{Kernels: []string{"attention"}, Waves: 1, Bytes: []int64{10, 20}, Imbalance: 0.5},
		{Device: 1, Kernels: []string{"attention"}, Waves: 1, Bytes: []int64{7}},
		{Kernels: []string{"gated", "norm"}, Waves: 1, Bytes: []int64{3, 4}},
		{Kernels: []string{"norm, gated"}, Waves: 1, Bytes: []int64{5, 6}},
		{Waves: 1, Bytes: []int64{0, 0}},
	}
	if got := b.Kinds(); !reflect.DeepEqual(got, want) {
		t.Errorf("found %+v, want %+v", got, want)
	}
	if b.Waves[0].Bytes[0] != 1 {
		t.Error("Kinds changed the balance")
	}
	if got := (&plan.Balance{}).Kinds(); got != nil {
		t.Errorf("no waves have kinds %+v", got)
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
