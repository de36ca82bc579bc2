package cuda_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pesti/exec/cuda"
	"pesti/exec/plan"
)

// TestTop compares the greatest elements with a sort, for rows of one part and of several, with equal elements and with
// elements that are not finite.
func TestTop(t *testing.T) {
	b := newBench(t, "sm_75")
	rng := rand.New(rand.NewPCG(4, 4))
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	const part = plan.CUDATop
	for _, c := range []struct{ n, k int }{{1, 1}, {5, 5}, {31, 2}, {257, 257}, {1000, 1}, {part, 8}, {part + 1, 8}, {3*part - 1, 40}, {16 * part, 64}, {64*part - 5, 1}} {
		const m = 3
		x := make([]float32, m*c.n)
		for i := range x {
			x[i] = float32(rng.IntN(c.n/2 + 1))
		}
		if c.n > 4 { // in the second row
			x[c.n+1], x[c.n+2], x[c.n+3], x[2*c.n-1] = inf, nan, -inf, nan
		}
		for i := range c.n { // in the last row
			x[2*c.n+i] = -inf
		}
		parts := (c.n + part - 1) / part
		p := cuda.Top{X: b.put(x), Ids: b.alloc(4 * m * c.k), Values: b.alloc(4 * m * c.k), Work: b.alloc(4 * m * parts * c.k),
			Arrived: b.put(make([]int32, m)), N: uint32(c.n), M: m, K: uint32(c.k)}
		for range 2 { // the first launch must leave the counters at 0
			b.launch(p.Call())
			ids, values := get[int32](b, p.Ids, m*c.k), get[float32](b, p.Values, m*c.k)
			for r := range m {
				row := x[r*c.n : (r+1)*c.n]
				order := make([]int32, c.n)
				for i := range order {
					order[i] = int32(i)
				}
				finite := func(v float32) bool { return v-v == 0 }
				rank := func(i int32) float32 {
					if v := row[i]; finite(v) || v < 0 {
						return v
					}
					return inf
				}
				slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(rank(b), rank(a)) })
				for i := range c.k {
					want, v := order[i], row[order[i]]
					if !finite(v) {
						want = ^want
					}
					if got := ids[r*c.k+i]; got != want || math.Float32bits(values[r*c.k+i]) != math.Float32bits(v) {
						t.Fatalf("n=%d k=%d row %d: place %d is %d (%v), expected %d (%v)", c.n, c.k, r, i, got, values[r*c.k+i], want, v)
					}
				}
			}
		}
	}
}

// TestTopTooMany checks the limit on k: one block must be able to merge the results of all parts.
func TestTopTooMany(t *testing.T) {
	for _, p := range []cuda.Top{{N: 5, M: 1, K: 6}, {N: 64*plan.CUDATop + 1, M: 1, K: 64}} {
		if _, err := p.Call(); err == nil || !strings.Contains(err.Error(), "expected at most") {
			t.Errorf("%+v: error %v", p, err)
		}
	}
}
