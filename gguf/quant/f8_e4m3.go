package quant

import (
	"math"

	"pesti/gguf/numfmt"
)

// F8E4M3 is the type of weights in FP8 that are stored in a separate file in another format (package
// gguf/sidecar). It is no GGML type and has none of their ids: GGUF files cannot hold it, and Lookup
// does not find it.
const F8E4M3 Type = math.MaxUint32

// f8e4m3 is the row of F8E4M3.
var f8e4m3 = Info{Type: F8E4M3, Name: "F8_E4M3", BlockLen: 1, BlockBytes: 1, Dequantize: dequantizeF8E4M3}

// dequantizeF8E4M3 returns the E4M3 numbers without the scales of their rows, which are stored
// elsewhere.
func dequantizeF8E4M3(dst []float32, src []byte) {
	for i, b := range src[:len(dst)] {
		dst[i] = numfmt.E4M3ToF32(b)
	}
}
