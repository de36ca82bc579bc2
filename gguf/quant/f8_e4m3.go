package quant

import "math"

// F8E4M3 is the type of weights in FP8 that lie beside a model file, in one of another format (package
// gguf/sidecar). It is no GGML type: files cannot hold it, so that Lookup does not know it and its id
// is none of theirs.
const F8E4M3 Type = math.MaxUint32

// f8e4m3 is the row of F8E4M3.
var f8e4m3 = Info{Type: F8E4M3, Name: "F8_E4M3", BlockLen: 1, BlockBytes: 1, Dequantize: dequantizeF8E4M3}

// dequantizeF8E4M3 gives numbers of E4M3 (OCP 8-bit Floating Point 1.0, section 5) without the scales
// of their rows, which lie elsewhere: a sign, four bits of exponent of bias 7, three of mantissa; all
// bits but the sign set is NaN.
func dequantizeF8E4M3(dst []float32, src []byte) {
	for i, b := range src[:len(dst)] {
		dst[i] = e4m3Values[b]
	}
}

var e4m3Values = func() (values [1 << 8]float32) {
	for b := range values {
		x := readUE4M3([]byte{byte(b)})
		if b >= 0x80 {
			x = -readUE4M3([]byte{byte(b & 0x7f)})
		}
		values[b] = x
	}
	return values
}()
