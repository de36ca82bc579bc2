package kernel

import (
	"math"
	"testing"

	"pesti/gguf/numfmt"
)

func TestF16(t *testing.T) {
	for h := range 1 << 16 {
		got, want := f16(uint16(h)), numfmt.F16ToF32(uint16(h))
		if math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("f16(%#04x) = %v, expected %v", h, got, want)
		}
	}
}
