package numfmt

import (
	"math"
	"testing"
)

// value returns the value of a binary16 number by the definition of the format.
func value(h uint16) float64 {
	sign := 1 - 2*float64(h>>15)
	exponent, fraction := int(h>>10&31), float64(h&1023)
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

func TestEveryF16(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		got, want := float64(F16ToF32(h)), value(h)
		if got != want && (got == got || want == want) || math.Signbit(got) != (h>>15 == 1) {
			t.Fatalf("%#04x is %v, expected %v", h, got, want)
		}
		if back := F32ToF16(F16ToF32(h)); back != h && (want == want || F16ToF32(back) == F16ToF32(back)) {
			t.Fatalf("%#04x comes back as %#04x", h, back)
		}
	}
}

// F16 rounds numbers between two neighbors to the nearest, also close to the midpoint; the
// midpoint goes to the even neighbor.
func TestF16RoundsToNearestEven(t *testing.T) {
	for h := uint16(0); h < 0x7c00; h++ {
		a, b := value(h), value(h+1)
		if h == 0x7bff {
			b = 65536 // the next number if the range were larger; values from the midpoint on become infinity
		}
		middle := float32((a + b) / 2)
		even := h + h&1
		below, above := math.Nextafter32(middle, 0), math.Nextafter32(middle, float32(math.Inf(1)))
		for _, c := range []struct {
			x    float32
			want uint16
		}{{middle, even}, {below, h}, {above, h + 1}} {
			if got := F32ToF16(c.x); got != c.want {
				t.Fatalf("%v gives %#04x, expected %#04x", c.x, got, c.want)
			}
			if got := F32ToF16(-c.x); got != c.want|0x8000 {
				t.Fatalf("%v gives %#04x, expected %#04x", -c.x, got, c.want|0x8000)
			}
		}
	}
	for _, x := range []float32{1e30, math.MaxFloat32, float32(math.Inf(1))} {
		if got := F32ToF16(x); got != 0x7c00 {
			t.Errorf("%v gives %#04x, expected infinity", x, got)
		}
	}
	for _, bits := range []uint32{0x7f800001, 0x7fc00000, 0xffffffff} {
		if got := F16ToF32(F32ToF16(math.Float32frombits(bits))); got == got {
			t.Errorf("NaN %#08x gives %v", bits, got)
		}
	}
}

func TestF16(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		want := value(h)
		got := F16ToF32(h)
		if math.Float32bits(got) != math.Float32bits(float32(want)) && (got == got || want == want) {
			t.Fatalf("F16ToF32(%#x) = %v, want %v", h, got, want)
		}
		if back := F32ToF16(got); back != h && !math.IsNaN(want) || math.IsNaN(want) && !math.IsNaN(value(back)) {
			t.Fatalf("F32ToF16(%v) = %#x, want %#x", got, back, h)
		}
	}
	// Between two neighbors the result is the nearer one, and at the midpoint the
	// even one. The last interval ends at infinity; its midpoint is 65520.
	for i := range 0x7c00 {
		a := value(uint16(i))
		b := value(uint16(i + 1))
		if i == 0x7bff {
			b = 65536
		}
		mid := float32((a + b) / 2)
		even := uint16(i + i&1)
		for _, c := range []struct {
			x    float32
			want uint16
		}{
			{mid, even},
			{math.Nextafter32(mid, 0), uint16(i)},
			{math.Nextafter32(mid, 1e6), uint16(i + 1)},
			{-mid, even | 0x8000},
		} {
			if got := F32ToF16(c.x); got != c.want {
				t.Fatalf("F32ToF16(%v) = %#x, want %#x", c.x, got, c.want)
			}
		}
	}
	for _, c := range []struct {
		x    float32
		want uint16
	}{
		{0x1p-26, 0}, {math.SmallestNonzeroFloat32, 0}, {-math.SmallestNonzeroFloat32, 0x8000},
		{65504, 0x7bff}, {1e30, 0x7c00}, {float32(math.Inf(-1)), 0xfc00},
	} {
		if got := F32ToF16(c.x); got != c.want {
			t.Errorf("F32ToF16(%v) = %#x, want %#x", c.x, got, c.want)
		}
	}
}

func TestKeepNaN(t *testing.T) {
	// All payloads in the low bits, which the narrow formats drop.
	for _, bits := range []uint32{0x7f800001, 0xff800001, 0x7fc00000, 0x7f801fff, 0xffffffff} {
		x := math.Float32frombits(bits)
		if y := F16ToF32(F32ToF16(x)); y == y {
			t.Errorf("NaN %#x became %v in F16", bits, y)
		}
		if y := BF16ToF32(F32ToBF16(x)); y == y {
			t.Errorf("NaN %#x became %v in BF16", bits, y)
		}
	}
}
