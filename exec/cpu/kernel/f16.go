package kernel

import "pesti/gguf/numfmt"

// halfValues has the value of every IEEE 754 binary16 number. A table look-up is the fastest conversion
// in portable Go; the scales of a model use a small, cached part of the table.
var halfValues = func() (values [1 << 16]float32) {
	for h := range values {
		values[h] = numfmt.F16ToF32(uint16(h))
	}
	return values
}()

// f16 returns the value of the binary16 number h.
func f16(h uint16) float32 { return halfValues[h] }

func portableWiden(dst []float32, src []uint16) {
	for i, h := range src[:len(dst)] {
		dst[i] = f16(h)
	}
}

func portableNarrow(dst []uint16, src []float32) {
	for i, x := range src[:len(dst)] {
		dst[i] = numfmt.F32ToF16(x)
	}
}
