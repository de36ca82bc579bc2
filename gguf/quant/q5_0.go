package quant

import "pesti/gguf/numfmt"

// Q5_0: 32 elements as x = d·(q − 16). Block: f16 d, u32 with the fifth bit of
// element i at bit i, 16 bytes with the other four as in Q4_0.

func dequantizeQ5_0(dst []float32, src []byte) {
	for len(dst) >= 32 {
		y, b := (*[32]float32)(dst), (*[22]byte)(src)
		d := numfmt.F16ToF32(le.Uint16(b[0:]))
		high := le.Uint32(b[2:])
		for i, q := range b[6:22] {
			y[i] = d * float32(int32(uint32(q&15)|high>>i<<4&16)-16)
			y[i+16] = d * float32(int32(uint32(q>>4)|high>>(i+16)<<4&16)-16)
		}
		dst, src = dst[32:], src[22:]
	}
}

func quantizeQ5_0(dst []byte, src []float32) {
	for len(src) >= 32 {
		x, b := (*[32]float32)(src), (*[22]byte)(dst)
		d := largest(x[:]) / -16
		id := inverse(d)
		le.PutUint16(b[0:], numfmt.F32ToF16(d))
		var high uint32
		for i := range b[6:22] {
			lo := min(truncate(float32(x[i]*id)+16.5), 31)
			hi := min(truncate(float32(x[i+16]*id)+16.5), 31)
			b[6+i] = lo&15 | hi<<4
			high |= uint32(lo>>4)<<i | uint32(hi>>4)<<(i+16)
		}
		le.PutUint32(b[2:], high)
		src, dst = src[32:], dst[22:]
	}
}
