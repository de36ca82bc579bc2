package numfmt

import (
	"math"
	"math/big"
	"testing"
)

// TestF32ToBF16FTZ compares rounding with that of package math/big to 8 bits of precision, near the
// midpoint of two numbers and at the limits of the range.
func TestF32ToBF16FTZ(t *testing.T) {
	for h := range uint32(1 << 16) {
		for _, low := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff} {
			f := math.Float32frombits(h<<16 | low)
			got := F32ToBF16FTZ(f)
			value := math.Float32frombits(uint32(got) << 16)
			switch exact := float64(f); {
			case f != f:
				if value == value {
					t.Fatalf("NaN %#x became %#x", math.Float32bits(f), got)
				}
			case math.Abs(exact) < 0x1p-126:
				if value != 0 || math.Signbit(float64(value)) != math.Signbit(exact) {
					t.Fatalf("%g became %g, expected zero of its sign", f, value)
				}
			case math.IsInf(exact, 0):
				if value != f {
					t.Fatalf("%g became %g", f, value)
				}
			default:
				want, _ := new(big.Float).SetPrec(8).SetMode(big.ToNearestEven).SetFloat64(exact).Float32()
				if value != want {
					t.Fatalf("%g (%#x) became %g, expected %g", f, math.Float32bits(f), value, want)
				}
			}
		}
	}
	x := []float32{1, -2, 0x1.01p0}
	row := make([]byte, 6)
	EncodeBF16(row, x)
	back := make([]float32, 3)
	DecodeBF16(back, row)
	if back[0] != 1 || back[1] != -2 || back[2] != 1 { // a tie, to even
		t.Errorf("%v as bf16 is %v", x, back)
	}
}

func TestF32ToBF16(t *testing.T) {
	for i := range 0x7f80 {
		h := uint16(i)
		a := BF16ToF32(h)
		if got := F32ToBF16(a); got != h {
			t.Fatalf("F32ToBF16(%v) = %#x, want %#x", a, got, h)
		}
		mid := math.Float32frombits(math.Float32bits(a) | 0x8000)
		for _, c := range []struct {
			x    float32
			want uint16
		}{
			{mid, h + h&1},
			{math.Nextafter32(mid, 0), h},
			{math.Nextafter32(mid, float32(math.Inf(1))), h + 1},
			{-mid, (h + h&1) | 0x8000},
		} {
			if got := F32ToBF16(c.x); got != c.want {
				t.Fatalf("F32ToBF16(%v) = %#x, want %#x", c.x, got, c.want)
			}
		}
	}
}
