package quant

import "pesti/gguf/numfmt"

// Q8_0: 32 elements as x = d·q. Block: f16 d, 32 signed bytes.

func dequantizeQ8_0(dst []float32, src []byte) {
	for len(dst) >= 32 {
		y, b := (*[32]float32)(dst), (*[34]byte)(src)
		d := numfmt.F16ToF32(le.Uint16(b[0:]))
		for i, q := range b[2:34] {
			y[i] = d * float32(int8(q))
		}
		dst, src = dst[32:], src[34:]
	}
}

func quantizeQ8_0(dst []byte, src []float32) {
	for len(src) >= 32 {
		x, b := (*[32]float32)(src), (*[34]byte)(dst)
		d := abs(largest(x[:])) / 127
		id := inverse(d)
		le.PutUint16(b[0:], numfmt.F32ToF16(d))
		for i, v := range x {
			b[2+i] = truncate(roundAway(v * id))
		}
		src, dst = src[32:], dst[34:]
	}
}
