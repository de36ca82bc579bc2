package quant

import "pesti/gguf/numfmt"

// Q4_0: 32 elements as x = d·(q − 8). Block: f16 d, 16 bytes of nibbles; the
// low nibbles are elements 0–15, the high nibbles 16–31.

func dequantizeQ4_0(dst []float32, src []byte) {
	for len(dst) >= 32 {
		y, b := (*[32]float32)(dst), (*[18]byte)(src)
		d := numfmt.F16ToF32(le.Uint16(b[0:]))
		for i, q := range b[2:18] {
			y[i] = d * float32(int32(q&15)-8)
			y[i+16] = d * float32(int32(q>>4)-8)
		}
		dst, src = dst[32:], src[18:]
	}
}

func quantizeQ4_0(dst []byte, src []float32) {
	for len(src) >= 32 {
		x, b := (*[32]float32)(src), (*[18]byte)(dst)
		d := largest(x[:]) / -8
		id := inverse(d)
		le.PutUint16(b[0:], numfmt.F32ToF16(d))
		for i := range b[2:18] {
			lo := min(truncate(float32(x[i]*id)+8.5), 15)
			hi := min(truncate(float32(x[i+16]*id)+8.5), 15)
			b[2+i] = lo | hi<<4
		}
		src, dst = src[32:], dst[18:]
	}
}
