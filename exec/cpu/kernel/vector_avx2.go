//go:build amd64 && !purego

package kernel

import (
	"unsafe"

	"pesti/exec/plan"
	"pesti/gguf/numfmt"
	"pesti/ops/ref"
)

// assemblyVectors are the inner loops in assembly. The functions in this file call assembly for whole
// vectors and handle the remaining elements.
var assemblyVectors = []*vectors{{
	isa: "avx2",
	gates: map[string]gate{
		"silu":      inEights(siluGateAVX2),
		"gelu_tanh": inEights(geluTanhGateAVX2),
		"gelu_erf":  actThenMul(ref.GELUErf), // no supported model uses it
	},
	sumSquares:   sumSquaresOnAVX2,
	normalize:    normalizeOnAVX2,
	normalizeAdd: normalizeAddOnAVX2,
	quantize:     map[string]func(row []byte, x []float32){"q8x2": quantizeQ8x2OnAVX2, "q8": quantizeQ8OnAVX2},
	round:        roundOnAVX2,
	sines:        sinesOnAVX2,
	rotateHalves: rotateHalvesOnAVX2,
	rotatePairs:  rotatePairsOnAVX2,
	scores: func(scores, x, tile []float32, n int) {
		scoresAVX2(&scores[0], &x[0], &tile[0], n, len(x)/n)
	},
	weigh: weighOnAVX2,
	accumulate: func(acc, weights, shrink, tile []float32, n, x, y int) {
		accumulateAVX2(&acc[0], &weights[0], &shrink[0], &tile[0], n, len(acc)/n, x, y)
	},
	divide: divideOnAVX2,
	scoresHalf: func(scores, x []float32, tile []uint16, n int) {
		scoresHalfAVX2(&scores[0], &x[0], &tile[0], n, len(x)/n)
	},
	accumulateHalf: func(acc, weights, shrink []float32, tile []uint16, n, x, y int) {
		accumulateHalfAVX2(&acc[0], &weights[0], &shrink[0], &tile[0], n, len(acc)/n, x, y)
	},
	prefetch:  func(data []byte) { prefetchAVX2(unsafe.SliceData(data), len(data)) },
	widen:     widenOnAVX2,
	widenE4M3: widenE4M3OnAVX2,
	narrow:    narrowOnAVX2,
	q8Keys: func(tile []float32, part []byte, groups int) {
		q8KeysAVX2(&tile[0], &part[0], groups)
	},
	q8Values: func(row []float32, blocks []byte, n int) {
		q8ValuesAVX2(&row[0], &blocks[0], n)
	},
}}

// inEights returns a gate for any number of elements from f, which computes a multiple of 8.
func inEights(f func(dst, x, up *float32, n int)) gate {
	return func(dst, x, up []float32) {
		whole := len(dst) &^ 7
		if whole > 0 {
			f(&dst[0], &x[0], &up[0], whole)
		}
		if whole < len(dst) {
			var d, a, b [8]float32
			copy(a[:], x[whole:])
			copy(b[:], up[whole:])
			f(&d[0], &a[0], &b[0], len(d))
			copy(dst[whole:], d[:])
		}
	}
}

func sumSquaresOnAVX2(x []float32) float64 {
	var sums [4]float64
	whole := len(x) &^ 3
	sumSquaresAVX2(&sums, unsafe.SliceData(x), whole)
	for _, v := range x[whole:] {
		sums[0] += float64(float64(v) * float64(v))
	}
	return sums[0] + sums[1] + sums[2] + sums[3]
}

func normalizeOnAVX2(y, x, w []float32, scale float64) {
	whole := len(y) &^ 3
	normalizeAVX2(unsafe.SliceData(y), unsafe.SliceData(x), unsafe.SliceData(w), scale, whole)
	portableNormalize(y[whole:], x[whole:], w[whole:], scale)
}

func normalizeAddOnAVX2(y, x, d, w []float32, scale float64) {
	whole := len(y) &^ 3
	normalizeAddAVX2(unsafe.SliceData(y), unsafe.SliceData(x), unsafe.SliceData(d), unsafe.SliceData(w), scale, whole)
	portableNormalizeAdd(y[whole:], x[whole:], d[whole:], w[whole:], scale)
}

func quantizeQ8x2OnAVX2(row []byte, x []float32) {
	if n := len(x); n > 0 {
		scale, sum := view[float32](row[2*n:]), view[float32](row[2*n+n/8:])
		quantizeQ8x2AVX2(&row[0], &row[n], &scale[0], &sum[0], &x[0], n/numfmt.BlockLen)
	}
}

func quantizeQ8OnAVX2(row []byte, x []float32) {
	if n := len(x); n > 0 {
		scale, sum := view[float32](row[n:]), view[float32](row[n+n/8:])
		quantizeQ8AVX2(&row[0], &scale[0], &sum[0], &x[0], n/numfmt.BlockLen)
	}
}

func sinesOnAVX2(cos, sin []float32, speed []float64, pos, magnitude float64) {
	whole := len(cos) &^ 3
	sinesAVX2(unsafe.SliceData(cos), unsafe.SliceData(sin), unsafe.SliceData(speed), pos, magnitude, whole)
	if whole < len(cos) {
		var c, s [4]float32
		var rest [4]float64
		copy(rest[:], speed[whole:])
		sinesAVX2(&c[0], &s[0], &rest[0], pos, magnitude, len(c))
		copy(cos[whole:], c[:])
		copy(sin[whole:], s[:])
	}
}

func rotateHalvesOnAVX2(x, y, cos, sin []float32) {
	whole := len(x) &^ 7
	rotateHalvesAVX2(unsafe.SliceData(x), unsafe.SliceData(y), unsafe.SliceData(cos), unsafe.SliceData(sin), whole)
	portableRotateHalves(x[whole:], y[whole:], cos[whole:], sin[whole:])
}

func rotatePairsOnAVX2(x, cos, sin []float32) {
	whole := len(cos) &^ 3
	rotatePairsAVX2(unsafe.SliceData(x), unsafe.SliceData(cos), unsafe.SliceData(sin), whole)
	portableRotatePairs(x[2*whole:], cos[whole:], sin[whole:])
}

func weighOnAVX2(scores, top, sum, shrink []float32, x, y int, scale float32) {
	var seen [plan.PageTokens]int32
	for i := x; i < y; i++ {
		seen[i] = -1
	}
	weighAVX2(&scores[0], &top[0], &sum[0], &shrink[0], len(top), &seen, scale)
}

func divideOnAVX2(dst, src []float32, by float32) {
	whole := len(dst) &^ 7
	divideAVX2(unsafe.SliceData(dst), unsafe.SliceData(src), by, whole)
	portableDivide(dst[whole:], src[whole:], by)
}

// widenE4M3OnAVX2 uses the kernel that dequantizes columns of a panel, which also have 16 elements.
func widenE4M3OnAVX2(dst []float32, src []uint8) {
	whole := len(dst) &^ (panelRows - 1)
	if whole > 0 {
		panel16DequantizeF8_E4M3(&dst[0], &src[0], whole/panelRows)
	}
	portableWidenE4M3(dst[whole:], src[whole:])
}

func widenOnAVX2(dst []float32, src []uint16) {
	whole := len(dst) &^ 7
	widenAVX2(unsafe.SliceData(dst), unsafe.SliceData(src), whole)
	portableWiden(dst[whole:], src[whole:])
}

func narrowOnAVX2(dst []uint16, src []float32) {
	whole := len(dst) &^ 7
	narrowAVX2(unsafe.SliceData(dst), unsafe.SliceData(src), whole)
	portableNarrow(dst[whole:], src[whole:])
}
