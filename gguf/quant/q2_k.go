package quant

import "pesti/gguf/numfmt"

// Q2_K: 256 elements in 16 sub-blocks of 16, each x = (d·s)·q − (dmin·m) with
// 4-bit s and m. Block: 16 bytes with s in the low nibble and m in the high one,
// 64 bytes with the 2-bit q, f16 d, f16 dmin. Element 32k+i of each half of 128
// elements is in byte i of the half's 32, at bit 2k.

func dequantizeQ2_K(dst []float32, src []byte) {
	for len(dst) >= 256 {
		y, b := (*[256]float32)(dst), (*[84]byte)(src)
		d, dmin := numfmt.F16ToF32(le.Uint16(b[80:])), numfmt.F16ToF32(le.Uint16(b[82:]))
		for j, s := range b[:16] {
			scale, low := d*float32(s&15), dmin*float32(s>>4)
			y, q, shift := (*[16]float32)(y[16*j:]), (*[16]byte)(b[16+32*(j/8)+16*(j%2):]), j/2%4*2
			for i, q := range q {
				y[i] = float32(scale*float32(q>>shift&3)) - low
			}
		}
		dst, src = dst[256:], src[84:]
	}
}
