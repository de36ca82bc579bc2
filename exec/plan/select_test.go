package plan_test

import (
	"slices"
	"testing"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

// chunked returns a plan for up to 32 tokens with a program for chunks of 16 tokens.
func chunked(t *testing.T) *plan.Plan {
	p := plantest.Plan(1)
	g := editor{p, t}.chunked(16)
	g.MaxR = 3
	if err := plan.Verify(p); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProgramFor(t *testing.T) {
	p := chunked(t)
	for _, c := range []struct {
		load plan.Workload
		want string
	}{
		{plan.Workload{T: 1, R: 1, Seqs: 1}, "decode"},
		{plan.Workload{T: 15, R: 1, Seqs: 1}, "prefill"},
		{plan.Workload{T: 16, R: 1, Seqs: 1}, "tiles"},
		{plan.Workload{T: 16, R: 4, Seqs: 1}, "prefill"}, // more rows than program tiles has
		{plan.Workload{T: 16, Seqs: 1, Pos: 32}, "tiles"},
		{plan.Workload{T: 16, Seqs: 1, Pos: 8}, "prefill"},
		{plan.Workload{T: 17, Seqs: 1}, "prefill"},
		{plan.Workload{T: 32, Seqs: 1, Pos: 16}, "tiles"},
		{plan.Workload{T: 32, Seqs: 2}, "tiles"},
		{plan.Workload{T: 32, Seqs: 4}, "prefill"}, // chunks of 8
		{plan.Workload{T: 32, Seqs: 3}, "prefill"},
		{plan.Workload{T: 33, Seqs: 1}, ""},
		{plan.Workload{T: 1, R: 5}, ""},
	} {
		got := ""
		if g := p.ProgramFor(c.load); g != nil {
			got = g.Name
		}
		if got != c.want {
			t.Errorf("%+v runs %q, want %q", c.load, got, c.want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		chunks bool
		pos, n int64
		want   []int64
	}{
		{false, 0, 80, []int64{32, 32, 16}},
		{false, 3, 1, []int64{1}},
		{true, 0, 1, []int64{1}},
		{true, 0, 15, []int64{15}},
		{true, 0, 16, []int64{16}},
		{true, 0, 17, []int64{16, 1}},
		{true, 0, 80, []int64{32, 32, 16}},
		{true, 0, 50, []int64{32, 16, 2}},
		{true, 1, 15, []int64{15}},
		{true, 1, 30, []int64{30}}, // no whole chunk
		{true, 1, 31, []int64{15, 16}},
		{true, 15, 50, []int64{1, 32, 16, 1}},
		{true, 31, 16, []int64{16}},
	} {
		p := plantest.Plan(1)
		if c.chunks {
			p = chunked(t)
		}
		var got []int64
		for pos, n := c.pos, c.n; n > 0; {
			step := p.ChunkLen(pos, n)
			if step < 1 || step > n {
				t.Fatalf("%+v: a step of %d of %d tokens", c, step, n)
			}
			got, pos, n = append(got, step), pos+step, n-step
			if again := p.ChunkLen(pos-step, step); again != step {
				t.Errorf("%+v: the step of %d alone is cut to %d", c, step, again)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d tokens at %d, chunks %v: steps %v, want %v", c.n, c.pos, c.chunks, got, c.want)
		}
	}
}
