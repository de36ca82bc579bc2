package quant

import (
	"encoding/binary"
	"math"

	"pesti/gguf/numfmt"
)

// This file holds the types without blocks.

var le = binary.LittleEndian

func dequantizeF32(dst []float32, src []byte) {
	src = src[:4*len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(le.Uint32(src[4*i:]))
	}
}

func quantizeF32(dst []byte, src []float32) {
	dst = dst[:4*len(src)]
	for i, x := range src {
		le.PutUint32(dst[4*i:], math.Float32bits(x))
	}
}

func dequantizeF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = numfmt.F16ToF32(le.Uint16(src[2*i:]))
	}
}

func quantizeF16(dst []byte, src []float32) {
	dst = dst[:2*len(src)]
	for i, x := range src {
		le.PutUint16(dst[2*i:], numfmt.F32ToF16(x))
	}
}

func dequantizeBF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = numfmt.BF16ToF32(le.Uint16(src[2*i:]))
	}
}

func quantizeBF16(dst []byte, src []float32) {
	dst = dst[:2*len(src)]
	for i, x := range src {
		le.PutUint16(dst[2*i:], numfmt.F32ToBF16(x))
	}
}

// dequantizeF64 rounds to the nearest float32. Values out of range become
// infinities.
func dequantizeF64(dst []float32, src []byte) {
	src = src[:8*len(dst)]
	for i := range dst {
		dst[i] = float32(math.Float64frombits(le.Uint64(src[8*i:])))
	}
}

func dequantizeI8(dst []float32, src []byte) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = float32(int8(src[i]))
	}
}

func dequantizeI16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = float32(int16(le.Uint16(src[2*i:])))
	}
}

// dequantizeI32 rounds values beyond ±2^24 to the nearest float32, as does
// dequantizeI64.
func dequantizeI32(dst []float32, src []byte) {
	src = src[:4*len(dst)]
	for i := range dst {
		dst[i] = float32(int32(le.Uint32(src[4*i:])))
	}
}

func dequantizeI64(dst []float32, src []byte) {
	src = src[:8*len(dst)]
	for i := range dst {
		dst[i] = float32(int64(le.Uint64(src[8*i:])))
	}
}
