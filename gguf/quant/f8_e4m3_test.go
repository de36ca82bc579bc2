package quant

import (
	"math"
	"testing"
)

// TestF8E4M3 compares every number with the definition of the format, and checks that no file can
// have the type.
func TestF8E4M3(t *testing.T) {
	info, ok := ByName("f8_e4m3")
	if !ok || info.Type != F8E4M3 || info.Type.String() != "F8_E4M3" {
		t.Fatalf("f8_e4m3 is %+v", info)
	}
	if _, ok := Lookup(F8E4M3); ok || RowBytes(F8E4M3, 32) != 0 {
		t.Error("it passes for a type of files")
	}
	codes, got := make([]byte, 256), make([]float32, 256)
	for i := range codes {
		codes[i] = byte(i)
	}
	info.Dequantize(got, codes)
	for i, x := range got {
		sign, exponent, mantissa := 1-2*float64(i>>7), i>>3&15, float64(i&7)
		want := sign * math.Ldexp(8+mantissa, exponent-10)
		switch {
		case i&0x7f == 0x7f:
			if x == x {
				t.Errorf("%#02x is %v, expected NaN", i, x)
			}
			continue
		case exponent == 0:
			want = sign * math.Ldexp(mantissa, -9)
		}
		if float64(x) != want || math.Signbit(float64(x)) != (i >= 0x80) {
			t.Errorf("%#02x is %v, expected %v", i, x, want)
		}
	}
}
