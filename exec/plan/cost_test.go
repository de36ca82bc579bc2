package plan_test

import (
	"math"
	"testing"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

// step returns the step with a name in a program.
func step(t *testing.T, g *plan.Program, name string) *plan.Step {
	t.Helper()
	for i := range g.Waves {
		for j := range g.Waves[i].Steps {
			if st := &g.Waves[i].Steps[j]; st.Name == name {
				return st
			}
		}
	}
	t.Fatalf("program %s has no step %q", g.Name, name)
	return nil
}

// TestStepCost compares costs with counts by hand for the shapes of plantest: hidden 64, 4 heads
// and 2 key-value heads of 16 elements, feed-forward 96, vocabulary 100. An element of a weight
// takes 1 byte or 4.
func TestStepCost(t *testing.T) {
	const q8 = 76 // bytes of 32 activations
	p := plantest.Plan(1)
	costs := plan.NewCoster(p)
	decode, prefill := &p.Programs[0], &p.Programs[1]
	one := plan.Workload{T: 1, R: 1, Seqs: 1, Pos: 20}
	many := plan.Workload{T: 8, R: 1, Seqs: 1, Pos: 4}
	for _, c := range []struct {
		name            string
		g               *plan.Program
		load            plan.Workload
		worker, workers int
		want            plan.Cost
	}{
		{"embd", decode, one, 1, 2, plan.Cost{Weights: 64, Values: 4, Written: 256, FLOPs: 64}},
		{"blk.0.attn_norm", decode, one, 1, 2, plan.Cost{Weights: 256, Values: 256, Written: 2 * q8, FLOPs: 256}},
		{"blk.0.attn_norm", prefill, many, 0, 2, plan.Cost{Weights: 256, Values: 8 * 256, Written: 8 * 2 * q8, FLOPs: 8 * 256}},
		// q has 4 units of 16 rows, k and v 2 each: 8 units of equal weight.
		{"blk.0.qkv", decode, one, 0, 1, plan.Cost{Weights: 128*64 + 4*128, Values: 2 * q8, Written: 4 * 128, MACs: 128 * 64}},
		{"blk.0.qkv", decode, one, 0, 2, plan.Cost{Weights: 64*64 + 4*64, Values: 2 * q8, Written: 4 * 64, MACs: 64 * 64}},
		{"blk.0.qkv", decode, one, 2, 3, plan.Cost{Weights: 48*64 + 4*48, Values: 2 * q8, Written: 4 * 48, MACs: 48 * 64}},
		{"blk.0.qkv", prefill, many, 0, 1, plan.Cost{Weights: 128*64 + 4*128, Values: 8 * 2 * q8, Written: 8 * 4 * 128, MACs: 8 * 128 * 64}},
		// One token sees 21 positions. Each has keys and values of 2 heads of 16 elements of 2
		// bytes. A context of 40 has 3 pages of 16.
		{"blk.0.attn", decode, one, 0, 1, plan.Cost{State: 21 * 2 * 32 * 2, Values: 4*64 + 2*4*32 + 4 + 4 + 12, Written: 4*64 + 2*32*2,
			MACs: 2 * 4 * 16 * 21, FLOPs: 12*4*21 + 4*6*16}},
		{"blk.0.attn", decode, one, 1, 2, plan.Cost{State: 21 * 2 * 16 * 2, Values: (4*64 + 2*4*32 + 4 + 4 + 12) / 2, Written: 4*32 + 2*16*2,
			MACs: 2 * 2 * 16 * 21, FLOPs: 12*2*21 + 4*3*16}},
		// Blocks of 16 and 14 tokens for each of 4 heads are 8 pairs. Worker 1 of 3 has two of
		// them: the last pair of the first key-value head and the first pair of the second.
		{"blk.0.attn", prefill, plan.Workload{T: 30, R: 1, Seqs: 1}, 1, 3, plan.Cost{State: 15 * 2 * 32 * 2, Values: (30*(4*64+2*4*32+4+4) + 12) * 2 / 8,
			Written: 30 * (4*64 + 2*32*2) * 2 / 8, MACs: 30 * 2 * 4 * 16 * 15 * 2 / 8, FLOPs: 30 * (12*4*15 + 4*6*16) * 2 / 8}},
		// Tokens at positions 4 to 11 see 5 to 12 positions. The mean, 8.5, is rounded down.
		{"blk.0.attn", prefill, many, 0, 1, plan.Cost{State: 8 * 2 * 32 * 2, Values: 8*(4*64+2*4*32+4+4) + 12, Written: 8 * (4*64 + 2*32*2),
			MACs: 8 * 2 * 4 * 16 * 8, FLOPs: 8 * (12*4*8 + 4*6*16)}},
		{"blk.0.ffn_act", decode, one, 0, 1, plan.Cost{Weights: 2 * 96 * 64, Values: 2 * q8, Written: 4 * 96, MACs: 2 * 96 * 64, FLOPs: 14 * 96}},
		{"blk.0.ffn_act", decode, one, 5, 7, plan.Cost{Weights: 2 * 16 * 64, Values: 2 * q8, Written: 4 * 16, MACs: 2 * 16 * 64, FLOPs: 14 * 16}},
		{"blk.0.ffn_act", decode, one, 0, 7, plan.Cost{}}, // 6 units for 7 workers
		{"blk.0.ffn_out", decode, one, 0, 1, plan.Cost{Weights: 64 * 96, Values: 3*q8 + 256, Written: 256, MACs: 64 * 96}},
		{"picked", prefill, many, 0, 1, plan.Cost{Values: 256 + 4, Written: 256}},
		{"logits", prefill, many, 0, 1, plan.Cost{Weights: 6400, Values: 2 * q8, Written: 400, MACs: 6400}},
		{"logits", prefill, plan.Workload{T: 8}, 0, 1, plan.Cost{Weights: 6400}},
	} {
		got, err := costs.Step(c.g, step(t, c.g, c.name), c.load, c.worker, c.workers)
		if err != nil || got != c.want {
			t.Errorf("%s of %s, worker %d of %d, %+v:\n got %+v, %v\nwant %+v", c.name, c.g.Name, c.worker, c.workers, c.load, got, err, c.want)
		}
	}
	// Products read the packed copy of a weight, row gathers do not.
	w := &p.Weights[0]
	w.Layout, w.Packed = "panel16", 7000
	for name, want := range map[string]int64{"logits": 7000, "embd": 64} {
		if got, err := costs.Step(decode, step(t, decode, name), one, 0, 1); err != nil || got.Weights != want {
			t.Errorf("%s reads %d bytes of a packed weight, %v; want %d", name, got.Weights, err, want)
		}
	}
	step(t, decode, "blk.0.ffn_act").Params[0].Value = int64(math.MaxInt64)
	if _, err := costs.Step(decode, step(t, decode, "blk.0.ffn_act"), one, 0, 1); err == nil {
		t.Error("a product beyond an int64 is no error")
	}
}

// A window bounds the positions that a token sees. The oracle counts token by token.
func TestCostOfWindows(t *testing.T) {
	p := plantest.Plan(1)
	g := &p.Programs[1]
	st := step(t, g, "blk.0.attn")
	for _, window := range []int64{0, 1, 7, 16, 1000} {
		for _, l := range []plan.Workload{{T: 1, Seqs: 1}, {T: 1, Seqs: 1, Pos: 30}, {T: 9, Seqs: 1}, {T: 9, Seqs: 1, Pos: 3}, {T: 9, Seqs: 1, Pos: 12}, {T: 8, Seqs: 4, Pos: 10}} {
			for i := range st.Params {
				if st.Params[i].Name == "window" {
					st.Params[i].Value = window
				}
			}
			var seen int64
			for i := range l.T / l.Seqs {
				n := l.Pos + i + 1
				if window > 0 {
					n = min(n, window)
				}
				seen += l.Seqs * n
			}
			got, err := plan.NewCoster(p).Step(g, st, l, 0, 1)
			want := float64(2 * plantest.Heads * plantest.HeadDim * seen)
			if err != nil || math.Abs(float64(got.MACs)-want) > float64(l.T*2*plantest.Heads*plantest.HeadDim) {
				t.Errorf("window %d, %+v: %d multiplications, %v; counted %v", window, l, got.MACs, err, want)
			}
		}
	}
}

// The workers together read every weight and cache once, write every value once, and compute as
// much as one worker alone, except in steps that every worker does whole.
func TestWorkersShareCost(t *testing.T) {
	p := plantest.Plan(2)
	costs := plan.NewCoster(p)
	for i := range p.Programs {
		g := &p.Programs[i]
		load := plan.Workload{T: g.MaxT, R: g.MaxR, Seqs: 1, Pos: 5}
		for w := range g.Waves {
			for j := range g.Waves[w].Steps {
				st := &g.Waves[w].Steps[j]
				whole, err := costs.Step(g, st, load, 0, 1)
				if err != nil {
					t.Fatal(err)
				}
				for workers := 1; workers <= 4; workers++ {
					var sum plan.Cost
					for worker := range workers {
						c, err := costs.Step(g, st, load, worker, workers)
						if err != nil {
							t.Fatal(err)
						}
						sum = sum.Plus(c)
					}
					times := int64(1)
					if st.Split.By == "each" {
						times = int64(workers)
					}
					if st.Split.By == "heads" && workers > plantest.KVHeads {
						continue // two workers share the heads of a key-value head, so both read its keys
					}
					if sum.MACs != times*whole.MACs || sum.FLOPs != times*whole.FLOPs || sum.Stream() != times*whole.Stream() || sum.Written != times*whole.Written {
						t.Errorf("%s of %s on %d workers: %+v together, %+v alone", st.Name, g.Name, workers, sum, whole)
					}
				}
			}
		}
	}
}

func TestImbalance(t *testing.T) {
	for _, c := range []struct {
		shares []float64
		want   float64
	}{{nil, 0}, {[]float64{0, 0}, 0}, {[]float64{3}, 0}, {[]float64{2, 2}, 0}, {[]float64{3, 1}, 0.5}, {[]float64{0, 0, 6}, 2}} {
		if got := plan.Imbalance(c.shares); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("Imbalance(%v) = %v, want %v", c.shares, got, c.want)
		}
	}
}
