package plan

import (
	"math"
	"testing"
)

// TestSees compares the mean with a count per token, and checks its bounds for huge workloads.
func TestSees(t *testing.T) {
	for _, l := range []Workload{{T: 1, Pos: 0}, {T: 7, Pos: 3}, {T: 20, Pos: 9}, {T: 20, Pos: 10}, {T: 20, Pos: 30}, {T: 3, Pos: 7}} {
		const window = 10
		var sum int64
		for i := range l.T {
			sum += min(l.Pos+i+1, window)
		}
		if got, want := sees(l, window), float64(sum)/float64(l.T); math.Abs(float64(got)-want) > 0.51 {
			t.Errorf("%+v sees %d, want %.2f", l, got, want)
		}
	}
	if got := sees(Workload{T: 1 << 33}, 1<<32); got < 1<<31 || got > 1<<32 {
		t.Errorf("a huge load sees %d of a window of 2^32", got)
	}
}
