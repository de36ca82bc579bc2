package quant

import "pesti/gguf/numfmt"

// Q4_1: 32 elements as x = d·q + m. Block: f16 d, f16 m, nibbles as in Q4_0.

func dequantizeQ4_1(dst []float32, src []byte) {
	for len(dst) >= 32 {
		y, b := (*[32]float32)(dst), (*[20]byte)(src)
		d, m := numfmt.F16ToF32(le.Uint16(b[0:])), numfmt.F16ToF32(le.Uint16(b[2:]))
		for i, q := range b[4:20] {
			y[i] = float32(d*float32(q&15)) + m
			y[i+16] = float32(d*float32(q>>4)) + m
		}
		dst, src = dst[32:], src[20:]
	}
}

func quantizeQ4_1(dst []byte, src []float32) {
	for len(src) >= 32 {
		x, b := (*[32]float32)(src), (*[20]byte)(dst)
		lowest, highest := bounds(x[:])
		d := (highest - lowest) / 15
		id := inverse(d)
		le.PutUint16(b[0:], numfmt.F32ToF16(d))
		le.PutUint16(b[2:], numfmt.F32ToF16(lowest))
		for i := range b[4:20] {
			lo := min(truncate(float32((x[i]-lowest)*id)+0.5), 15)
			hi := min(truncate(float32((x[i+16]-lowest)*id)+0.5), 15)
			b[4+i] = lo | hi<<4
		}
		src, dst = src[32:], dst[20:]
	}
}
