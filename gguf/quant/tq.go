package quant

import "pesti/gguf/numfmt"

// These types store 256 ternary elements as x = d·(q − 1), q in 0…2.

// TQ1_0: block of 48 bytes with five q each, 4 bytes with four each, f16 d. A
// byte is a fraction of 256 whose digits in base 3 are the q, the first one
// first. Elements 32k+i, k < 5, are digit k of byte i; elements 160+16k+i digit
// k of byte 32+i; elements 240+4k+i, k < 4, digit k of byte 48+i.

func dequantizeTQ1_0(dst []float32, src []byte) {
	for len(dst) >= 256 {
		y, b := dst[:256], (*[54]byte)(src)
		d := numfmt.F16ToF32(le.Uint16(b[52:]))
		for _, part := range [...]struct{ from, to, digits int }{{0, 32, 5}, {32, 48, 5}, {48, 52, 4}} {
			power := byte(1)
			for range part.digits {
				for i, q := range b[part.from:part.to] {
					// The product overflows, which drops the digits before it.
					y[i] = d * float32(int32(uint32(q*power)*3>>8)-1)
				}
				y = y[part.to-part.from:]
				power *= 3
			}
		}
		dst, src = dst[256:], src[54:]
	}
}

// TQ2_0: block of 64 bytes with the 2-bit q as in Q2_K, f16 d.

func dequantizeTQ2_0(dst []float32, src []byte) {
	for len(dst) >= 256 {
		y, b := (*[256]float32)(dst), (*[66]byte)(src)
		d := numfmt.F16ToF32(le.Uint16(b[64:]))
		for h := range 2 {
			for k := range 4 {
				y := (*[32]float32)(y[128*h+32*k:])
				for i, q := range (*[32]byte)(b[32*h:]) {
					y[i] = d * float32(int32(q>>(2*k)&3)-1)
				}
			}
		}
		dst, src = dst[256:], src[66:]
	}
}
