package measure

import (
	"math"
	"slices"
)

// Tolerance is the largest d by which a layer in precision exact may differ from another correct
// computation of it.
const Tolerance = 1e-4

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
// An element that is NaN or infinite on either side has an infinite d. got and want have the same
// length, a multiple of cols.
func Layer[A, B Float](got []A, want []B, cols int) Deviation {
	var worst Deviation
	size := make([]float64, cols)
	for at := 0; at < len(want); at += cols {
		row := want[at : at+cols]
		for i, x := range row {
			size[i] = math.Abs(float64(x))
		}
		median := median(size)
		for i, x := range row {
			if d := deviation(float64(got[at+i]), float64(x), median); d > worst.D {
				worst = Deviation{d, at / cols, i}
			}
		}
	}
	return worst
}

func deviation(got, want, median float64) float64 {
	diff := math.Abs(got - want)
	switch {
	case diff == 0:
		return 0 // where the median is 0 too
	case !(diff <= math.MaxFloat64):
		return math.Inf(1)
	}
	return diff / (math.Abs(want) + median)
}

// median returns the middle of x, which it sorts.
func median(x []float64) float64 {
	slices.Sort(x)
	n := len(x)
	if n%2 == 0 {
		return (x[n/2-1] + x[n/2]) / 2
	}
	return x[n/2]
}
