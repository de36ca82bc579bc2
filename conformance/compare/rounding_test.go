package compare

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pesti/exec/plan"
	"pesti/gguf/numfmt"
)

// stored rounds a row to a format and back with the functions that define the format.
var stored = map[string]func(x []float32) []float32{
	"f32":     func(x []float32) []float32 { return slices.Clone(x) },
	"f16":     each(func(x float32) float32 { return numfmt.F16ToF32(numfmt.F32ToF16(x)) }),
	"bf16":    each(func(x float32) float32 { return numfmt.BF16ToF32(numfmt.F32ToBF16FTZ(x)) }),
	"f8_e4m3": each(func(x float32) float32 { return numfmt.E4M3ToF32(numfmt.F32ToE4M3(x)) }),
	"q8": func(x []float32) []float32 {
		row, back := make([]byte, numfmt.Q8Bytes(len(x))), make([]float32, len(x))
		numfmt.QuantizeQ8(row, x)
		numfmt.DequantizeQ8(back, row)
		return back
	},
	"q8x2": func(x []float32) []float32 {
		row, back := make([]byte, numfmt.Q8x2Bytes(len(x))), make([]float32, len(x))
		numfmt.QuantizeQ8x2(row, x)
		numfmt.DequantizeQ8x2(back, row)
		return back
	},
	"q8_0": func(x []float32) []float32 {
		block, back := make([]byte, numfmt.Q8_0Bytes), make([]float32, len(x))
		for at := 0; at < len(x); at += numfmt.BlockLen {
			numfmt.QuantizeQ8_0(block, x[at:])
			numfmt.DequantizeQ8_0(back[at:], block)
		}
		return back
	},
}

func each(f func(x float32) float32) func(x []float32) []float32 {
	return func(x []float32) []float32 {
		y := make([]float32, len(x))
		for i, v := range x {
			y[i] = f(v)
		}
		return y
	}
}

// TestRoundings checks that the rounding error of a format does not count, for rows of any magnitude, and that little more
// than that is allowed.
func TestRoundings(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for format := range roundings {
		if stored[format] == nil {
			t.Fatalf("no function stores %s", format)
		}
		needed := 0.0 // the largest part of the allowed difference that rounding took
		for _, size := range []float64{1, 1e-6, 1e-3, 300, 3e4} {
			for range 50 {
				row, want := make([]float32, 3*numfmt.BlockLen), make([]float64, 3*numfmt.BlockLen)
				for i := range row {
					row[i] = float32(size / 3 * random.NormFloat64())
					want[i] = float64(row[i])
				}
				got := stored[format](row)
				if d := deviation(got, want, len(row), format, nil); d.D > 1e-6 {
					t.Errorf("%s: %v stored as %v has d %.1e", format, row[d.Dim], got[d.Dim], d.D)
				}
				lost := make([]float64, len(row))
				roundings[format](lost, want)
				for i := range lost {
					if lost[i] > 0 {
						needed = max(needed, math.Abs(float64(got[i])-want[i])/lost[i])
					}
				}
			}
		}
		if format != "f32" && (needed < 0.9 || needed > 1.01) {
			t.Errorf("%s: rounding takes %.2f of what is allowed for it", format, needed)
		}
	}
	for _, format := range plan.CacheFormats() {
		if roundings[format] == nil {
			t.Errorf("cache format %s has no rounding", format)
		}
	}
}

// TestDeviation checks that a wrong factor on a row is detected although each element is within the rounding of its
// format, since the largest element of a block is stored exactly. Elements that are not finite are detected too. For a
// sum, d is relative to the added value.
func TestDeviation(t *testing.T) {
	row, want := make([]float32, 64), make([]float64, 64)
	for i := range row {
		row[i] = float32(1+i) / 64
		want[i] = float64(row[i])
	}
	for _, format := range []string{"q8", "q8x2"} {
		got := stored[format](row)
		for i := range got {
			got[i] *= 1.001
		}
		if d := deviation(got, want, 64, format, nil); d.D < 4e-4 || d.D > 1.1e-3 || d.Dim%32 != 31 {
			t.Errorf("%s times 1.001: %+v", format, d)
		}
	}
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		got := slices.Clone(row)
		got[40] = bad
		if d := deviation(got, want, 32, "q8", nil); !math.IsInf(d.D, 1) || d.Row != 1 || d.Dim != 8 {
			t.Errorf("with %v: %+v", bad, d)
		}
	}
	base := &stepValue{data: make([]float32, 64)}
	got := make([]float32, 64)
	for i := range base.data {
		base.data[i] = float32(1000 * (i + 1))
		want[i] = float64(base.data[i]) + float64(row[i])
		got[i] = base.data[i] + row[i]
	}
	if d := deviation(got, want, 64, "f32", base); d.D > 1e-6 {
		t.Errorf("a sum that is rounded: %+v", d)
	}
	got[5] = base.data[5] + 1.25*row[5]
	if d := deviation(got, want, 64, "f32", base); d.D < 0.01 || d.Dim != 5 {
		t.Errorf("a sum of something else: %+v", d)
	}
}
