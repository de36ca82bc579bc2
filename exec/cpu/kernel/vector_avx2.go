//go:build amd64 && !purego

package kernel

import (
	"unsafe"

	"pesti/exec/plan"
	"pesti/gguf/numfmt"
	"pesti/ops/ref"
)

// assemblyVectors are the inner loops in assembly, which compute whole vectors. Portable loops, or a padded vector,
// compute the remaining elements. Both sets give the same bits: AVX-512 has the lanes of two vectors of AVX2 in one, and
// adds across them in the same order. Where sums have four lanes, or vectors are short, its set has loops of AVX2.
var assemblyVectors = []*vectors{{
	isa: "avx2",
	gates: map[string]gate{
		"silu":      padded(8, siluGateAVX2),
		"gelu_tanh": padded(8, geluTanhGateAVX2),
		"gelu_erf":  actThenMul(ref.GELUErf), // no supported model uses it
	},
	sumSquares:     sumSquaresOnAVX2,
	normalize:      normalizeIn(4, normalizeAVX2),
	normalizeAdd:   normalizeAddIn(4, normalizeAddAVX2),
	quantize:       map[string]func(row []byte, x []float32){"q8x2": quantizeQ8x2With(quantizeQ8x2AVX2), "q8": quantizeQ8With(quantizeQ8AVX2)},
	round:          roundOnAVX2,
	sines:          sinesOnAVX2,
	rotateHalves:   rotateHalvesOnAVX2,
	rotatePairs:    rotatePairsOnAVX2,
	scores:         scoresWith(scoresAVX2),
	weigh:          weighWith(weighAVX2),
	accumulate:     accumulateWith(accumulateAVX2),
	divide:         divideIn(8, divideAVX2),
	scoresHalf:     scoresWith(scoresHalfAVX2),
	accumulateHalf: accumulateWith(accumulateHalfAVX2),
	prefetch:       prefetchOnAVX2,
	widen:          widenIn(8, widenAVX2),
	widenE4M3:      widenE4M3OnAVX2,
	narrow:         narrowIn(8, narrowAVX2),
	q8Keys:         q8KeysOnAVX2,
	q8Values:       q8ValuesOnAVX2,
}, {
	isa: "avx512vnni",
	gates: map[string]gate{
		"silu":      padded(16, siluGateAVX512),
		"gelu_tanh": padded(16, geluTanhGateAVX512),
		"gelu_erf":  actThenMul(ref.GELUErf),
	},
	sumSquares:     sumSquaresOnAVX2,
	normalize:      normalizeIn(8, normalizeAVX512),
	normalizeAdd:   normalizeAddIn(8, normalizeAddAVX512),
	quantize:       map[string]func(row []byte, x []float32){"q8x2": quantizeQ8x2With(quantizeQ8x2AVX512), "q8": quantizeQ8With(quantizeQ8AVX512)},
	round:          roundOnAVX2,
	sines:          sinesOnAVX2,
	rotateHalves:   rotateHalvesOnAVX2,
	rotatePairs:    rotatePairsOnAVX2,
	scores:         scoresWith(scoresAVX512),
	weigh:          weighWith(weighAVX512),
	accumulate:     accumulateWith(accumulateAVX512),
	divide:         divideIn(16, divideAVX512),
	scoresHalf:     scoresWith(scoresHalfAVX512),
	accumulateHalf: accumulateWith(accumulateHalfAVX512),
	prefetch:       prefetchOnAVX2,
	widen:          widenIn(16, widenAVX512),
	widenE4M3:      widenE4M3OnAVX2,
	narrow:         narrowIn(16, narrowAVX512),
	q8Keys:         q8KeysOnAVX2,
	q8Values:       q8ValuesOnAVX2,
}}

// The following functions return loops for any number of elements from assembly for a multiple of lanes, a power of
// two of at most 16.

func padded(lanes int, f func(dst, x, up *float32, n int)) gate {
	return func(dst, x, up []float32) {
		whole := len(dst) &^ (lanes - 1)
		if whole > 0 {
			f(&dst[0], &x[0], &up[0], whole)
		}
		if whole < len(dst) {
			var d, a, b [16]float32
			copy(a[:], x[whole:])
			copy(b[:], up[whole:])
			f(&d[0], &a[0], &b[0], lanes)
			copy(dst[whole:], d[:])
		}
	}
}

func normalizeIn(lanes int, f func(y, x, w *float32, scale float64, n int)) func(y, x, w []float32, scale float64) {
	return func(y, x, w []float32, scale float64) {
		whole := len(y) &^ (lanes - 1)
		f(unsafe.SliceData(y), unsafe.SliceData(x), unsafe.SliceData(w), scale, whole)
		portableNormalize(y[whole:], x[whole:], w[whole:], scale)
	}
}

func normalizeAddIn(lanes int, f func(y, x, d, w *float32, scale float64, n int)) func(y, x, d, w []float32, scale float64) {
	return func(y, x, d, w []float32, scale float64) {
		whole := len(y) &^ (lanes - 1)
		f(unsafe.SliceData(y), unsafe.SliceData(x), unsafe.SliceData(d), unsafe.SliceData(w), scale, whole)
		portableNormalizeAdd(y[whole:], x[whole:], d[whole:], w[whole:], scale)
	}
}

func divideIn(lanes int, f func(dst, src *float32, by float32, n int)) func(dst, src []float32, by float32) {
	return func(dst, src []float32, by float32) {
		whole := len(dst) &^ (lanes - 1)
		f(unsafe.SliceData(dst), unsafe.SliceData(src), by, whole)
		portableDivide(dst[whole:], src[whole:], by)
	}
}

func widenIn(lanes int, f func(dst *float32, src *uint16, n int)) func(dst []float32, src []uint16) {
	return func(dst []float32, src []uint16) {
		whole := len(dst) &^ (lanes - 1)
		f(unsafe.SliceData(dst), unsafe.SliceData(src), whole)
		portableWiden(dst[whole:], src[whole:])
	}
}

func narrowIn(lanes int, f func(dst *uint16, src *float32, n int)) func(dst []uint16, src []float32) {
	return func(dst []uint16, src []float32) {
		whole := len(dst) &^ (lanes - 1)
		f(unsafe.SliceData(dst), unsafe.SliceData(src), whole)
		portableNarrow(dst[whole:], src[whole:])
	}
}

// The following functions return loops whose assembly takes any number of elements.

func quantizeQ8x2With(f func(hi, lo *byte, scale, sum, x *float32, blocks int)) func(row []byte, x []float32) {
	return func(row []byte, x []float32) {
		if n := len(x); n > 0 {
			scale, sum := view[float32](row[2*n:]), view[float32](row[2*n+n/8:])
			f(&row[0], &row[n], &scale[0], &sum[0], &x[0], n/numfmt.BlockLen)
		}
	}
}

func quantizeQ8With(f func(q *byte, scale, sum, x *float32, blocks int)) func(row []byte, x []float32) {
	return func(row []byte, x []float32) {
		if n := len(x); n > 0 {
			scale, sum := view[float32](row[n:]), view[float32](row[n+n/8:])
			f(&row[0], &scale[0], &sum[0], &x[0], n/numfmt.BlockLen)
		}
	}
}

func scoresWith[E float32 | uint16](f func(scores, x *float32, tile *E, n, d int)) func(scores, x []float32, tile []E, n int) {
	return func(scores, x []float32, tile []E, n int) { f(&scores[0], &x[0], &tile[0], n, len(x)/n) }
}

func accumulateWith[E float32 | uint16](f func(acc, weights, shrink *float32, tile *E, n, stride, from, to int)) func(acc, weights, shrink []float32, tile []E, n, x, y int) {
	return func(acc, weights, shrink []float32, tile []E, n, x, y int) {
		f(&acc[0], &weights[0], &shrink[0], &tile[0], n, len(acc)/n, x, y)
	}
}

func weighWith(f func(scores, top, sum, shrink *float32, n int, seen *[plan.PageTokens]int32, scale float32)) func(scores, top, sum, shrink []float32, x, y int, scale float32) {
	return func(scores, top, sum, shrink []float32, x, y int, scale float32) {
		var seen [plan.PageTokens]int32
		for i := x; i < y; i++ {
			seen[i] = -1
		}
		f(&scores[0], &top[0], &sum[0], &shrink[0], len(top), &seen, scale)
	}
}

func prefetchOnAVX2(data []byte) { prefetchAVX2(unsafe.SliceData(data), len(data)) }

func q8KeysOnAVX2(tile []float32, part []byte, groups int) { q8KeysAVX2(&tile[0], &part[0], groups) }

func q8ValuesOnAVX2(row []float32, blocks []byte, n int) { q8ValuesAVX2(&row[0], &blocks[0], n) }

func sumSquaresOnAVX2(x []float32) float64 {
	var sums [4]float64
	whole := len(x) &^ 3
	sumSquaresAVX2(&sums, unsafe.SliceData(x), whole)
	for _, v := range x[whole:] {
		sums[0] += float64(float64(v) * float64(v))
	}
	return sums[0] + sums[1] + sums[2] + sums[3]
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

// widenE4M3OnAVX2 uses the kernel that dequantizes columns of a panel, which also have 16 elements.
func widenE4M3OnAVX2(dst []float32, src []uint8) {
	whole := len(dst) &^ (panelRows - 1)
	if whole > 0 {
		panel16DequantizeF8_E4M3(&dst[0], &src[0], whole/panelRows)
	}
	portableWidenE4M3(dst[whole:], src[whole:])
}
