package quant

import "pesti/gguf/numfmt"

// Q3_K: 256 elements in 16 sub-blocks of 16, each x = (d·(s − 32))·(q − 4) with
// 6-bit s. Block: 32 bytes with the third bits of q, 64 bytes with the other two
// as in Q2_K, 12 bytes with the s, f16 d. The third bit of element 32k+i is bit
// k of byte i.

func dequantizeQ3_K(dst []float32, src []byte) {
	for len(dst) >= 256 {
		y, b := (*[256]float32)(dst), (*[110]byte)(src)
		d := numfmt.F16ToF32(le.Uint16(b[108:]))
		s := (*[12]byte)(b[96:])
		for j := range 16 {
			// The low four bits of all s come first, in nibbles, then the high two.
			six := s[j%8]>>(j/8*4)&15 | s[8+j%4]>>(j/4*2)&3<<4
			scale := d * float32(int32(six)-32)
			y, q, shift := (*[16]float32)(y[16*j:]), (*[16]byte)(b[32+32*(j/8)+16*(j%2):]), j/2%4*2
			high := (*[16]byte)(b[16*(j%2):])
			for i, q := range q {
				y[i] = scale * float32(int32(q>>shift&3|high[i]>>(j/2)&1<<2)-4)
			}
		}
		dst, src = dst[256:], src[110:]
	}
}
