package quant

import "pesti/gguf/numfmt"

// Q4_K: 256 elements in 8 sub-blocks of 32, each x = (d·s)·q − (dmin·m) with
// 6-bit s and m. Block: f16 d, f16 dmin, 12 bytes with the eight s and m (see
// unpackScales), 128 bytes of nibbles; bytes 32c to 32c+31 hold sub-block 2c in
// their low nibbles and 2c+1 in their high nibbles.

func dequantizeQ4_K(dst []float32, src []byte) {
	for len(dst) >= 256 {
		y, b := (*[256]float32)(dst), (*[144]byte)(src)
		scale, low := subScales((*[16]byte)(b[:16]))
		for c := range 4 {
			d0, m0 := scale[2*c], low[2*c]
			d1, m1 := scale[2*c+1], low[2*c+1]
			y0, y1 := (*[32]float32)(y[64*c:]), (*[32]float32)(y[64*c+32:])
			for i, q := range (*[32]byte)(b[16+32*c:]) {
				y0[i] = float32(d0*float32(q&15)) - m0
				y1[i] = float32(d1*float32(q>>4)) - m1
			}
		}
		dst, src = dst[256:], src[144:]
	}
}

func quantizeQ4_K(dst []byte, src []float32) {
	for len(src) >= 256 {
		b := (*[144]byte)(dst)
		var q [256]uint8
		fitSubBlocks(&q, (*[16]byte)(b[:16]), (*[256]float32)(src), 15)
		for c := range 4 {
			for i := range 32 {
				b[16+32*c+i] = q[64*c+i] | q[64*c+32+i]<<4
			}
		}
		src, dst = src[256:], dst[144:]
	}
}

// subScales returns the scale d·s and the offset dmin·m of the eight sub-blocks
// from the first 16 bytes of a Q4_K or Q5_K block.
func subScales(head *[16]byte) (scale, low [8]float32) {
	d, dmin := numfmt.F16ToF32(le.Uint16(head[0:])), numfmt.F16ToF32(le.Uint16(head[2:]))
	s, m := unpackScales((*[12]byte)(head[4:]))
	for j := range 8 {
		scale[j], low[j] = d*float32(s[j]), dmin*float32(m[j])
	}
	return scale, low
}

// unpackScales reads eight pairs of 6-bit numbers. Bytes 0–3 hold s of the
// first four, bytes 4–7 their m; of the last four, bytes 8–11 hold the low four
// bits (s below m), and the top bits of bytes 0–7 the high two.
func unpackScales(b *[12]byte) (s, m [8]uint8) {
	for j := range 4 {
		s[j], m[j] = b[j]&63, b[4+j]&63
		s[4+j] = b[8+j]&15 | b[j]>>6<<4
		m[4+j] = b[8+j]>>4 | b[4+j]>>6<<4
	}
	return s, m
}

// packScales is the inverse of unpackScales.
func packScales(b *[12]byte, s, m *[8]uint8) {
	for j := range 4 {
		b[j] = s[j] | s[4+j]>>4<<6
		b[4+j] = m[j] | m[4+j]>>4<<6
		b[8+j] = s[4+j]&15 | m[4+j]<<4
	}
}
