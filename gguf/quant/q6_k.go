package quant

import "pesti/gguf/numfmt"

// Q6_K: 256 elements in 16 sub-blocks of 16, each x = (d·s)·(q − 32) with a
// signed 8-bit s. Block: 128 bytes with the low four bits of q, 64 bytes with
// the high two, 16 signed bytes s, f16 d. Of each half of 128 elements, element
// 32k+i has its low bits in byte 32(k mod 2)+i of the half's 64 (k < 2 the low
// nibble, else the high one), and its high bits in byte i of the half's 32, at
// bit 2k.

func dequantizeQ6_K(dst []float32, src []byte) {
	for len(dst) >= 256 {
		y, b := (*[256]float32)(dst), (*[210]byte)(src)
		d := numfmt.F16ToF32(le.Uint16(b[208:]))
		var scale [16]float32
		for j, s := range b[192:208] {
			scale[j] = d * float32(int8(s))
		}
		for h := range 2 {
			y := (*[128]float32)(y[128*h:])
			low, high := (*[64]byte)(b[64*h:]), (*[32]byte)(b[128+32*h:])
			s := (*[8]float32)(scale[8*h:])
			for i, t := range high {
				a, c := low[i], low[32+i]
				j := i >> 4
				y[i] = s[j] * float32(int32(a&15|t<<4&48)-32)
				y[32+i] = s[2+j] * float32(int32(c&15|t<<2&48)-32)
				y[64+i] = s[4+j] * float32(int32(a>>4|t&48)-32)
				y[96+i] = s[6+j] * float32(int32(c>>4|t>>2&48)-32)
			}
		}
		dst, src = dst[256:], src[210:]
	}
}

func quantizeQ6_K(dst []byte, src []float32) {
	for len(src) >= 256 {
		b := (*[210]byte)(dst)
		var q [256]uint8
		d, s := fitSymmetric(&q, (*[256]float32)(src))
		for j := range s {
			b[192+j] = uint8(s[j])
		}
		le.PutUint16(b[208:], d)
		for h := range 2 {
			q := (*[128]uint8)(q[128*h:])
			for i := range 32 {
				b[64*h+i] = q[i]&15 | q[64+i]<<4
				b[64*h+32+i] = q[32+i]&15 | q[96+i]<<4
				b[128+32*h+i] = q[i]>>4 | q[32+i]>>4<<2 | q[64+i]>>4<<4 | q[96+i]>>4<<6
			}
		}
		src, dst = src[256:], dst[210:]
	}
}
