package numfmt

import (
	"math"
	"testing"
)

// e4m3 returns the value of an E4M3 number by the definition of the format.
func e4m3(b uint8) float64 {
	sign := 1 - 2*float64(b>>7)
	exponent, mantissa := int(b>>3&15), float64(b&7)
	switch {
	case exponent == 15 && mantissa == 7:
		return math.NaN()
	case exponent == 0:
		return sign * math.Ldexp(mantissa, -9)
	}
	return sign * math.Ldexp(8+mantissa, exponent-10)
}

func TestEveryE4M3(t *testing.T) {
	for i := range 1 << 8 {
		b := uint8(i)
		got, want := float64(E4M3ToF32(b)), e4m3(b)
		if got != want && (got == got || want == want) || math.Signbit(got) != (b>>7 == 1) {
			t.Fatalf("%#02x is %v, expected %v", b, got, want)
		}
		if back := F32ToE4M3(E4M3ToF32(b)); back != b {
			t.Fatalf("%#02x comes back as %#02x", b, back)
		}
	}
	if top := e4m3(0x7e); top != E4M3Max {
		t.Errorf("the largest number is %v, expected %v", top, E4M3Max)
	}
}

// TestE4M3RoundsToNearest compares with a search for the nearest code, ties to even, for numbers of
// every exponent, the midpoints between neighbors, and the numbers next to these.
func TestE4M3RoundsToNearest(t *testing.T) {
	nearest := func(x float64) uint8 {
		best := uint8(0)
		for code := uint8(1); code < 0x7f; code++ {
			a, b := math.Abs(e4m3(best)-x), math.Abs(e4m3(code)-x)
			if b < a || b == a && code&1 == 0 {
				best = code
			}
		}
		return best
	}
	check := func(x float32) {
		want := nearest(float64(x))
		if got := F32ToE4M3(x); got != want {
			t.Fatalf("%v gives %#02x, expected %#02x", x, got, want)
		}
		if got := F32ToE4M3(-x); got != want|0x80 {
			t.Fatalf("%v gives %#02x, expected %#02x", -x, got, want|0x80)
		}
	}
	for code := range uint8(0x7e) {
		middle := float32((e4m3(code) + e4m3(code+1)) / 2)
		check(middle)
		check(math.Nextafter32(middle, 0))
		check(math.Nextafter32(middle, 1e9))
	}
	for bits := uint32(0); bits < 0x7f800000; bits += 99991 {
		check(math.Float32frombits(bits))
	}
	for _, x := range []float32{448, 449, 463, 464, 465, 480, 1e30, math.MaxFloat32, float32(math.Inf(1))} {
		if got := F32ToE4M3(x); got != 0x7e {
			t.Errorf("%v gives %#02x, expected the largest number", x, got)
		}
	}
	for _, bits := range []uint32{0x7f800001, 0x7fc00000, 0xffffffff} {
		if got := E4M3ToF32(F32ToE4M3(math.Float32frombits(bits))); got == got {
			t.Errorf("NaN %#08x gives %v", bits, got)
		}
	}
}
