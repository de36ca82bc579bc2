//go:build amd64 && !purego

package kernel

import (
	"math"
	"testing"

	"pesti/exec/cpu/isa"
	"pesti/gguf/numfmt"
)

// TestE4M3Panel dequantizes panels with all E4M3 numbers.
func TestE4M3Panel(t *testing.T) {
	if _, err := isa.UpTo("avx2"); err != nil {
		t.Skip(err)
	}
	var codes [256]byte
	for i := range codes {
		codes[i] = byte(i)
	}
	for _, columns := range []int{0, 1, 16} {
		values, m := guarded(16 * columns)
		if columns > 0 {
			panel16DequantizeF8_E4M3(&values[0], &codes[0], columns)
		}
		untouched(t, "F8_E4M3", m)
		for i, x := range values {
			if want := numfmt.E4M3ToF32(codes[i]); math.Float32bits(x) != math.Float32bits(want) && (x == x || want == want) {
				t.Errorf("%#02x is %v, expected %v", codes[i], x, want)
			}
		}
	}
}
