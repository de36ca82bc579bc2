package ref

import (
	"encoding/binary"
	"math"
)

// The q8_0 format holds elements in blocks of 32 as x ≈ d·q: d float16, q int8[32], 34 bytes, as in
// GGUF files (github.com/ggml-org/ggml, docs/gguf.md).
const (
	Q8Block = 32
	Q8Bytes = 34
)

// QuantiseQ8 stores x, Q8Block elements, as one block in dst: d = amax/127 and q = x/d, before d
// is rounded, to the nearest integer, halves away from zero. A block with NaN or Inf has a NaN
// scale.
func QuantiseQ8(dst []byte, x []float32) {
	amax := float32(0)
	for _, v := range x[:Q8Block] {
		v = float32(math.Abs(float64(v)))
		if v-v != 0 {
			amax = float32(math.NaN())
			break
		}
		amax = max(amax, v)
	}
	d, inv := amax/127, float32(0)
	if d > 0 {
		inv = 1 / d
	}
	binary.LittleEndian.PutUint16(dst, F16(d))
	for i, v := range x[:Q8Block] {
		dst[2+i] = byte(nearest(v * inv))
	}
}

// nearest rounds to the nearest integer, halves away from zero; what is no int8 is 0.
func nearest(v float32) int8 {
	if !(v > -128 && v < 127.5) {
		return 0
	}
	return int8(float64(v) + math.Copysign(0.5, float64(v)))
}

// DequantiseQ8 writes the values of one block to dst, Q8Block elements.
func DequantiseQ8(dst []float32, block []byte) {
	d := F32(binary.LittleEndian.Uint16(block))
	for i := range dst[:Q8Block] {
		dst[i] = d * float32(int8(block[2+i]))
	}
}
