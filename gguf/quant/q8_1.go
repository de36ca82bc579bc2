package quant

import "pesti/gguf/numfmt"

// Q8_1: 32 elements as x = d·q. Block: f16 d, f16 s, which is d·Σq and serves
// products only, 32 signed bytes. Made for activations.

func dequantizeQ8_1(dst []float32, src []byte) {
	for len(dst) >= 32 {
		y, b := (*[32]float32)(dst), (*[36]byte)(src)
		d := numfmt.F16ToF32(le.Uint16(b[0:]))
		for i, q := range b[4:36] {
			y[i] = d * float32(int8(q))
		}
		dst, src = dst[32:], src[36:]
	}
}
