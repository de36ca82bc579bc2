package quant

// Q5_K: as Q4_K with 5-bit q. Block: the 16 bytes of scales of Q4_K, 32 bytes
// whose bit j holds the fifth bits of sub-block j, 128 bytes of nibbles.

func dequantizeQ5_K(dst []float32, src []byte) {
	for len(dst) >= 256 {
		y, b := (*[256]float32)(dst), (*[176]byte)(src)
		scale, low := subScales((*[16]byte)(b[:16]))
		high := (*[32]byte)(b[16:])
		for c := range 4 {
			d0, m0 := scale[2*c], low[2*c]
			d1, m1 := scale[2*c+1], low[2*c+1]
			y0, y1 := (*[32]float32)(y[64*c:]), (*[32]float32)(y[64*c+32:])
			for i, q := range (*[32]byte)(b[48+32*c:]) {
				h := high[i] >> (2 * c)
				y0[i] = float32(d0*float32(q&15|h<<4&16)) - m0
				y1[i] = float32(d1*float32(q>>4|h<<3&16)) - m1
			}
		}
		dst, src = dst[256:], src[176:]
	}
}

func quantizeQ5_K(dst []byte, src []float32) {
	for len(src) >= 256 {
		b := (*[176]byte)(dst)
		var q [256]uint8
		fitSubBlocks(&q, (*[16]byte)(b[:16]), (*[256]float32)(src), 31)
		clear(b[16:48])
		for c := range 4 {
			for i := range 32 {
				q0, q1 := q[64*c+i], q[64*c+32+i]
				b[48+32*c+i] = q0&15 | q1<<4
				b[16+i] |= (q0>>4 | q1>>4<<1) << (2 * c)
			}
		}
		src, dst = src[256:], dst[176:]
	}
}
