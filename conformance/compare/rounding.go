package compare

import (
	"math"

	"pesti/conformance/metrics"
	"pesti/gguf/numfmt"
)

// roundings has, by the format of a value, a function that sets lost to the largest rounding error of each element
// of a row when it is stored. The numbers follow from the definitions in package numfmt.
var roundings = map[string]func(lost, row []float64){
	"f32":     func(lost, _ []float64) { clear(lost) },
	"f16":     floatRounding(0x1p-11, 0x1p-25, math.Inf(1)), // 11 bits, multiples of 2⁻²⁴
	"bf16":    floatRounding(0x1p-8, 0x1p-126, math.Inf(1)), // 8 bits, no subnormal numbers
	"f8_e4m3": floatRounding(0x1p-4, 0x1p-10, numfmt.E4M3Max),
	"q8":      blockRounding(127, 0, 0),
	"q8x2":    blockRounding(127*128, 0, 0),
	"q8_0":    blockRounding(127, 0x1p-11, 127*0x1p-25), // its scale is a float16
}

// floatRounding is the rounding to a floating-point format: relative, or for the smallest numbers absolute.
// Numbers above the largest one are clamped to it.
func floatRounding(relative, absolute, largest float64) func(lost, row []float64) {
	return func(lost, row []float64) {
		for i, x := range row {
			x = math.Abs(x)
			lost[i] = max(relative*x, absolute, x-largest)
		}
	}
}

// blockRounding is the rounding to blocks of integers of at most steps, whose scale has a relative and an
// absolute error. The largest element of a block has no other error.
func blockRounding(steps, relative, absolute float64) func(lost, row []float64) {
	return func(lost, row []float64) {
		for at := 0; at < len(row); at += numfmt.BlockLen {
			block, largest := row[at:min(at+numfmt.BlockLen, len(row))], 0
			for i, x := range block {
				if math.Abs(x) > math.Abs(block[largest]) {
					largest = i
				}
			}
			size := math.Abs(block[largest])
			scale := max(relative*size, absolute)
			for i := range block {
				lost[at+i] = scale + size/(2*steps)
			}
			lost[at+largest] = scale
		}
	}
}

// deviation returns the worst d of rows of cols elements, as metrics.Layer, but counts only what differs
// beyond the rounding of the format. Of a sum, base has the first operand: d is relative to what was added
// to it, since a residual stream is far larger, and the rounding of the sum does not count.
func deviation[A metrics.Float](got []A, want []float64, cols int, format string, base *stepValue) metrics.Deviation {
	return metrics.Beyond(got, want, cols, func(at int, lost, size []float64) {
		row := want[at : at+cols]
		roundings[format](lost, row)
		if base == nil {
			return
		}
		for i, x := range row {
			lost[i] += math.Abs(x) * 0x1p-24
			size[i] = x - float64(base.data[at+i])
		}
	})
}
