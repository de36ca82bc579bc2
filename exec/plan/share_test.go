package plan_test

import (
	"math"
	"testing"

	"pesti/exec/plan"
)

// TestShareGroup compares shares with a walk through all units: a unit belongs to the worker whose
// part of the whole length contains the unit's middle.
func TestShareGroup(t *testing.T) {
	for _, c := range []struct{ rows, sizes []int64 }{
		{[]int64{1}, []int64{1}}, {[]int64{0}, []int64{5}}, {[]int64{16}, []int64{3}}, {[]int64{17, 1, 1}, []int64{7, 7, 7}},
		{[]int64{896, 128, 128}, []int64{616, 616, 952}}, {[]int64{64, 5000}, []int64{1000, 1}},
	} {
		for unit := int64(1); unit <= 16; unit += 5 {
			for workers := int64(1); workers <= 7; workers++ {
				total := int64(0)
				for i, n := range c.rows {
					total += (n + unit - 1) / unit * c.sizes[i]
				}
				at := int64(0)
				for i, n := range c.rows {
					owner := map[int64]int64{}
					for row := int64(0); row < n; row += unit {
						// 2·middle·workers ÷ 2·total, in integers.
						owner[row] = (2*at + c.sizes[i]) * workers / (2 * total)
						at += c.sizes[i]
					}
					for w := range workers {
						r := plan.Split{By: "rows", Unit: unit}.ShareGroup(c.rows, c.sizes, w, workers)[i]
						for row := int64(0); row < n; row += unit {
							if has := r.Lo <= row && row < r.Hi; has != (owner[row] == w) {
								t.Fatalf("rows %v of sizes %v in units of %d: row %d of weight %d is worker %d's of %d: %v, want worker %d's", c.rows, c.sizes, unit, row, i, w, workers, has, owner[row])
							}
						}
					}
				}
			}
		}
	}
}

// TestShare checks that the shares of any number of items are disjoint, complete, and whole units.
func TestShare(t *testing.T) {
	for _, n := range []int64{0, 1, 15, 16, 17, 100, math.MaxInt64 - 1} {
		for _, unit := range []int64{0, 1, 16, 1 << 30} {
			for _, workers := range []int64{1, 2, 7, 1000} {
				s := plan.Split{By: "rows", Unit: unit}
				next := int64(0)
				for w := range workers {
					lo, hi := s.Share(n, w, workers)
					if lo != next || hi < lo || unit > 0 && lo%unit != 0 && lo != n {
						t.Fatalf("%d items in units of %d: worker %d of %d has [%d, %d), expected it to begin at %d", n, unit, w, workers, lo, hi, next)
					}
					next = hi
				}
				if next != n {
					t.Errorf("%d items in units of %d: %d workers have %d", n, unit, workers, next)
				}
			}
		}
	}
	if lo, hi := (plan.Split{By: "each"}).Share(5, 1, 2); lo != 0 || hi != 5 {
		t.Errorf("each has [%d, %d), want all", lo, hi)
	}
	if lo, hi := (plan.Split{By: "one"}).Share(5, 1, 2); lo < hi {
		t.Errorf("with one worker another has [%d, %d)", lo, hi)
	}
}
