package conformance

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// The bounds that "exact" meets, see CONFORMANCE.md for why they are what they are.
const (
	tolerance       = 1e-4 // of d, at every position of every layer
	floorCountsFrom = 3e-5 // below this the float32 floor does not widen the tolerance
	floorFactor     = 3
	logitTolerance  = 1e-3 // of |Δlogit|
)

// deviation is d = max over dims of |a−b| / (|b| + median|b|), b the oracle's row. NaN in either
// is infinite.
func deviation(a []float32, b []float64) float64 {
	size := make([]float64, len(b))
	for i, x := range b {
		size[i] = math.Abs(x)
	}
	sorted := slices.Clone(size)
	slices.Sort(sorted)
	median := sorted[len(sorted)/2]
	if len(sorted)%2 == 0 {
		median = (median + sorted[len(sorted)/2-1]) / 2
	}
	worst := 0.0
	for i, x := range a {
		diff := math.Abs(float64(x) - b[i])
		switch {
		case diff == 0:
		case !(diff <= math.MaxFloat64):
			return math.Inf(1)
		default:
			worst = max(worst, diff/(size[i]+median))
		}
	}
	return worst
}

func allowed(floor float64) float64 {
	if floor > floorCountsFrom {
		return max(tolerance, floorFactor*floor)
	}
	return tolerance
}

// A verdict is how a pass compares to the oracle.
type verdict struct {
	layers   []float64 // worst d of each layer
	worst    float64   // largest d relative to what is allowed: ≤ 1 passes
	where    string
	logits   float64 // worst |Δlogit|
	argmaxes int     // positions whose argmax differs though the oracle's margin is above the tolerance
}

func (v verdict) passes() bool {
	return v.worst <= 1 && v.logits <= logitTolerance && v.argmaxes == 0
}

func (v verdict) String() string {
	return fmt.Sprintf("worst d %.1e of what is allowed, %s; |Δlogit| %.1e; %d argmaxes differ", v.worst, v.where, v.logits, v.argmaxes)
}

// compare holds a pass of ours against the oracle's.
func compare(ours *ourPass, oracle *oraclePass) verdict {
	var v verdict
	for l := range oracle.layers {
		worst := 0.0
		for t := range oracle.layers[l] {
			d := deviation(ours.layers[l][t], oracle.layers[l][t])
			worst = max(worst, d)
			if r := d / allowed(oracle.floor.Layers[l]); r > v.worst {
				v.worst, v.where = r, fmt.Sprintf("layer %d position %d (d %.1e)", l, t, d)
			}
		}
		v.layers = append(v.layers, worst)
	}
	for t, want := range oracle.logits {
		got := ours.logits[t]
		for i := range want {
			if d := math.Abs(float64(got[i]) - want[i]); !(d <= v.logits) {
				v.logits = d
			}
		}
		best, margin := top(want)
		mine := 0
		for i, x := range got {
			if x > got[mine] {
				mine = i
			}
		}
		if mine != best && margin > logitTolerance {
			v.argmaxes++
		}
	}
	return v
}

// top returns the index of the largest logit and its distance to the second.
func top(logits []float64) (best int, margin float64) {
	for i, x := range logits {
		if x > logits[best] {
			best = i
		}
	}
	second := math.Inf(-1)
	for i, x := range logits {
		if i != best {
			second = max(second, x)
		}
	}
	return best, logits[best] - second
}

func TestDeviation(t *testing.T) {
	for _, c := range []struct {
		a    []float32
		b    []float64
		want float64
	}{
		{[]float32{1, 2, 3}, []float64{1, 2, 3}, 0},
		{[]float32{1, 2, 4}, []float64{1, 2, 3}, 0.2}, // 1 / (3 + 2)
		{[]float32{1, 0.5, 3, 5}, []float64{1, 0, 3, 5}, 0.25},
		{[]float32{0, 1}, []float64{0, 0}, math.Inf(1)},
		{[]float32{float32(math.NaN()), 1}, []float64{1, 1}, math.Inf(1)},
		{[]float32{1, 1}, []float64{math.NaN(), 1}, math.Inf(1)},
	} {
		if got := deviation(c.a, c.b); math.Abs(got-c.want) > 1e-12 && got != c.want {
			t.Errorf("deviation(%v, %v) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
