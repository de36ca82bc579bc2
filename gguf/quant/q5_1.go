package quant

import "pesti/gguf/numfmt"

// Q5_1: 32 elements as x = d·q + m. Block: f16 d, f16 m, then as Q5_0.

func dequantizeQ5_1(dst []float32, src []byte) {
	for len(dst) >= 32 {
		y, b := (*[32]float32)(dst), (*[24]byte)(src)
		d, m := numfmt.F16ToF32(le.Uint16(b[0:])), numfmt.F16ToF32(le.Uint16(b[2:]))
		high := le.Uint32(b[4:])
		for i, q := range b[8:24] {
			y[i] = float32(d*float32(uint32(q&15)|high>>i<<4&16)) + m
			y[i+16] = float32(d*float32(uint32(q>>4)|high>>(i+16)<<4&16)) + m
		}
		dst, src = dst[32:], src[24:]
	}
}

func quantizeQ5_1(dst []byte, src []float32) {
	for len(src) >= 32 {
		x, b := (*[32]float32)(src), (*[24]byte)(dst)
		lowest, highest := bounds(x[:])
		d := (highest - lowest) / 31
		id := inverse(d)
		le.PutUint16(b[0:], numfmt.F32ToF16(d))
		le.PutUint16(b[2:], numfmt.F32ToF16(lowest))
		var high uint32
		for i := range b[8:24] {
			lo := min(truncate(float32((x[i]-lowest)*id)+0.5), 31)
			hi := min(truncate(float32((x[i+16]-lowest)*id)+0.5), 31)
			b[8+i] = lo&15 | hi<<4
			high |= uint32(lo>>4)<<i | uint32(hi>>4)<<(i+16)
		}
		le.PutUint32(b[4:], high)
		src, dst = src[32:], dst[24:]
	}
}
