package numfmt

import (
	"encoding/binary"
	"math"
)

// BlockLen is the number of elements that share a scale in Q8_0, q8 and q8x2.
const BlockLen = 32

// Q8_0Bytes is the size of a block of Q8_0, x ≈ d·q: d float16, q int8[32]. The layout is that of
// GGUF's Q8_0 (github.com/ggml-org/ggml, docs/gguf.md).
const Q8_0Bytes = 34

// QuantizeQ8_0 stores BlockLen elements as one block: d = amax/127, and q = x/d before d is rounded,
// to the nearest integer, halves away from zero. A block with NaN or Inf gets a NaN scale. (For blocks
// of finite elements, gguf/quant stores the same bytes in files.)
func QuantizeQ8_0(dst []byte, x []float32) {
	amax := float32(0)
	for _, v := range x[:BlockLen] {
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
	binary.LittleEndian.PutUint16(dst, F32ToF16(d))
	for i, v := range x[:BlockLen] {
		dst[2+i] = byte(nearest(v * inv))
	}
}

// nearest rounds to the nearest integer, halves away from zero. What does not fit an int8 becomes 0.
func nearest(v float32) int8 {
	if !(v > -128 && v < 127.5) {
		return 0
	}
	return int8(float64(v) + math.Copysign(0.5, float64(v)))
}

// DequantizeQ8_0 writes the values of one block to dst, BlockLen elements.
func DequantizeQ8_0(dst []float32, block []byte) {
	d := F16ToF32(binary.LittleEndian.Uint16(block))
	for i := range dst[:BlockLen] {
		dst[i] = d * float32(int8(block[2+i]))
	}
}
