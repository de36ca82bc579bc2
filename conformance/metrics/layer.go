package metrics

import (
	"math"
	"slices"
)

// Tolerance is the largest d by which a layer in precision exact may differ from another correct
// computation of it.
const Tolerance = 1e-4

// floorCounts is the d of float32 from which on it widens the tolerance, floorFactor times.
const (
	floorCounts = 3e-5
	floorFactor = 3
)

// Allowed returns the largest d of a layer in precision exact where float32 itself loses floor: the
// d of that layer between two passes of a trusted program, in float32 and in float64. A floor that
// is infinite or NaN allows no more than Tolerance.
func Allowed(floor float64) float64 {
	if floor > floorCounts && floor <= math.MaxFloat64 {
		return max(Tolerance, floorFactor*floor)
	}
	return Tolerance
}

// A Deviation is d, and the element that has it. Where nothing differs that is the first.
type Deviation struct {
	D        float64
	Row, Dim int
}

// Layer returns the worst d of rows of cols elements, such as a residual stream f32[T, n_embd],
// of which want is the one to be trusted:
//
//	d = max |got − want| / (|want| + median |want|)    the median over the dims of the row
//
// An element that is NaN or infinite on either side has an infinite d. Only an infinity that is
// the same on both, such as a masked score, has none, and is not part of the median. got and want
// have the same length, a multiple of cols.
func Layer[A, B Float](got []A, want []B, cols int) Deviation {
	var worst Deviation
	each(got, want, cols, func(d Deviation) bool {
		if d.D > worst.D {
			worst = d
		}
		return true
	})
	return worst
}

// First returns the first element of which d is above the bound, and whether there is one.
func First[A, B Float](got []A, want []B, cols int, bound float64) (first Deviation, found bool) {
	each(got, want, cols, func(d Deviation) bool {
		if d.D > bound {
			first, found = d, true
		}
		return !found
	})
	return first, found
}

// each yields d of every element that differs at all.
func each[A, B Float](got []A, want []B, cols int, yield func(Deviation) bool) {
	size := make([]float64, 0, cols)
	for at := 0; at < len(want); at += cols {
		size = size[:0]
		for i, x := range want[at : at+cols] {
			if g, w := float64(got[at+i]), float64(x); !math.IsInf(w, 0) || g != w {
				size = append(size, math.Abs(w))
			}
		}
		median := median(size)
		for i, x := range want[at : at+cols] {
			if g, w := float64(got[at+i]), float64(x); g != w && !yield(Deviation{deviation(g, w, median), at / cols, i}) {
				return
			}
		}
	}
}

// deviation is d of one element, for two that differ.
func deviation(got, want, median float64) float64 {
	diff := math.Abs(got - want)
	if !(diff <= math.MaxFloat64) {
		return math.Inf(1)
	}
	return diff / (math.Abs(want) + median) // infinite where that is 0
}

// median returns the middle of x, which it sorts, 0 of nothing.
func median(x []float64) float64 {
	slices.Sort(x)
	n := len(x)
	switch {
	case n == 0:
		return 0
	case n%2 == 0:
		return (x[n/2-1] + x[n/2]) / 2
	default:
		return x[n/2]
	}
}
