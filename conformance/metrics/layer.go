package metrics

import (
	"math"
	"slices"
)

// Tolerance is the largest d by which a layer in precision exact may differ from another correct
// computation of it.
const Tolerance = 1e-4

// floorCounts is the float32 floor above which the tolerance is floorFactor times the floor.
const (
	floorCounts = 3e-5
	floorFactor = 3
)

// Allowed returns the largest d of a layer in precision exact. floor is the d of that layer between
// a pass in float32 and one in float64 of a reference program. If floor is infinite or NaN, Allowed
// returns Tolerance.
func Allowed(floor float64) float64 {
	if floor > floorCounts && floor <= math.MaxFloat64 {
		return max(Tolerance, floorFactor*floor)
	}
	return Tolerance
}

// A Deviation is d and the element that has it. If nothing differs it is the first element.
type Deviation struct {
	D        float64
	Row, Dim int
}

// Layer returns the worst d of rows of cols elements, such as a residual stream f32[T, n_embd].
// want is the reference:
//
//	d = max |got − want| / (|want| + median |want|)    the median over the dims of the row
//
// An element that is NaN or infinite on either side has an infinite d. Equal infinities, such as
// masked scores, do not differ and are not part of the median. got and want have the same length, a
// multiple of cols.
func Layer[A, B Float](got []A, want []B, cols int) Deviation { return Beyond(got, want, cols, nil) }

// Beyond returns the worst d as Layer does, but counts only what differs by more than lost, and
// relative to size:
//
//	d = max (|got − want| − lost) / (|size| + median |size|)
//
// adjust sets both for the row that begins at an element. Before, lost is 0 and size is want. nil
// leaves them so.
func Beyond[A, B Float](got []A, want []B, cols int, adjust func(at int, lost, size []float64)) Deviation {
	var worst Deviation
	each(got, want, cols, adjust, func(d Deviation) bool {
		if d.D > worst.D {
			worst = d
		}
		return true
	})
	return worst
}

// First returns the first element whose d is above the bound, and whether there is one.
func First[A, B Float](got []A, want []B, cols int, bound float64) (first Deviation, found bool) {
	each(got, want, cols, nil, func(d Deviation) bool {
		if d.D > bound {
			first, found = d, true
		}
		return !found
	})
	return first, found
}

// each yields d of every element that differs.
func each[A, B Float](got []A, want []B, cols int, adjust func(at int, lost, size []float64), yield func(Deviation) bool) {
	lost, size, sizes := make([]float64, cols), make([]float64, cols), make([]float64, 0, cols)
	for at := 0; at < len(want); at += cols {
		clear(lost)
		for i, x := range want[at : at+cols] {
			size[i] = float64(x)
		}
		if adjust != nil {
			adjust(at, lost, size)
		}
		sizes = sizes[:0]
		for i, x := range want[at : at+cols] {
			size[i] = math.Abs(size[i])
			if g, w := float64(got[at+i]), float64(x); !math.IsInf(w, 0) || g != w {
				sizes = append(sizes, size[i])
			}
		}
		median := median(sizes)
		for i, x := range want[at : at+cols] {
			if g, w := float64(got[at+i]), float64(x); g != w && !yield(Deviation{deviation(math.Abs(g-w)-lost[i], size[i]+median), at / cols, i}) {
				return
			}
		}
	}
}

// deviation is d of one element, from its difference and the divisor. It is infinite if one of them is
// NaN, or if the divisor is 0.
func deviation(diff, divisor float64) float64 {
	if diff <= 0 {
		return 0
	}
	if d := diff / divisor; d <= math.MaxFloat64 {
		return d
	}
	return math.Inf(1)
}

// median sorts x and returns its median, or 0 if x is empty.
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
