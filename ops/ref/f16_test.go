package ref

import (
	"math"
	"testing"
)

// value is the number that the bits of a binary16 mean, by the definition of the format.
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
		got, want := float64(F32(h)), value(h)
		if got != want && (got == got || want == want) || math.Signbit(got) != (h>>15 == 1) {
			t.Fatalf("%#04x is %v, expected %v", h, got, want)
		}
		if back := F16(F32(h)); back != h && (want == want || F32(back) == F32(back)) {
			t.Fatalf("%#04x comes back as %#04x", h, back)
		}
	}
}

// Between two neighbours, and just beside their middle, F16 takes the nearest; the middle goes to
// the even one.
func TestF16RoundsToNearestEven(t *testing.T) {
	for h := uint16(0); h < 0x7c00; h++ {
		a, b := value(h), value(h+1)
		if h == 0x7bff {
			b = 65536 // what the next number would be decides where infinity begins
		}
		middle := float32((a + b) / 2)
		even := h + h&1
		below, above := math.Nextafter32(middle, 0), math.Nextafter32(middle, float32(math.Inf(1)))
		for _, c := range []struct {
			x    float32
			want uint16
		}{{middle, even}, {below, h}, {above, h + 1}} {
			if got := F16(c.x); got != c.want {
				t.Fatalf("%v gives %#04x, expected %#04x", c.x, got, c.want)
			}
			if got := F16(-c.x); got != c.want|0x8000 {
				t.Fatalf("%v gives %#04x, expected %#04x", -c.x, got, c.want|0x8000)
			}
		}
	}
	for _, x := range []float32{1e30, math.MaxFloat32, float32(math.Inf(1))} {
		if got := F16(x); got != 0x7c00 {
			t.Errorf("%v gives %#04x, expected infinity", x, got)
		}
	}
	for _, bits := range []uint32{0x7f800001, 0x7fc00000, 0xffffffff} {
		if got := F32(F16(math.Float32frombits(bits))); got == got {
			t.Errorf("NaN %#08x gives %v", bits, got)
		}
	}
}
