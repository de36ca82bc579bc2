package kernel

import "pesti/gguf/quant"

// span is the number of elements that are unpacked at a time: one block of the K types, eight of
// the others.
const span = 256

// laneTile returns the tile kernel that multiplies unpacked integers. Sums within a block are
// exact; blocks are added in order in float32.
func laneTile(t *laneType) func(y *tile, w []byte, n int, x *activation) {
	info, _ := quant.Lookup(t.typ)
	return func(y *tile, w []byte, n int, x *activation) {
		rowBytes := x.k / info.BlockLen * info.BlockBytes
		spanBytes := span / info.BlockLen * info.BlockBytes
		l := x.lanes
		for i := 0; i < n; i += 2 {
			// An odd last row is computed twice, so that one code path computes all rows.
			r0 := w[i*rowBytes : (i+1)*rowBytes]
			r1 := w[min(i+1, n-1)*rowBytes:][:rowBytes]
			var acc [2][tileTokens]float32
			for at, from := 0, 0; at < x.k; at, from = at+span, from+spanBytes {
				to := min(from+spanBytes, rowBytes)
				t.unpack(l, r0[from:to], r1[from:to])
				elems := min(span, x.k-at)
				for m := range x.m {
					q := x.q[m*x.k+at:][:elems]
					scale, sum := x.scale[m][at/32:], x.sum[m][at/16:]
					if t.block == 32 {
						acc[0][m], acc[1][m] = t.dot32s(acc[0][m], acc[1][m], l, q, scale, sum)
					} else {
						acc[0][m], acc[1][m] = t.dot16s(acc[0][m], acc[1][m], l, q, scale, sum)
					}
				}
			}
			for m := range x.m {
				out := y[m*tileRows+i : (m+1)*tileRows]
				out[0] = acc[0][m]
				if i+1 < n {
					out[1] = acc[1][m]
				}
			}
		}
	}
}

// dot32s adds to a0 and a1 the products of a span with the activations q, for types with a scale
// per 32 elements.
func (t *laneType) dot32s(a0, a1 float32, l *lanes, q []int16, scale []float32, sum []int32) (float32, float32) {
	blocks := len(q) / 32
	scale, sum = scale[:blocks], sum[:2*blocks]
	for b := range blocks {
		p := dot16((*[16]uint64)(l.u[b*32:]), (*[16]int16)(q[b*32:])) +
			dot16((*[16]uint64)(l.u[b*32+16:]), (*[16]int16)(q[b*32+16:]))
		total := sum[2*b] + sum[2*b+1]
		p0, p1 := halves(p)
		p0 -= t.zero * total
		p1 -= t.zero * total
		s := scale[b]
		a0 += float32(float32(p0) * float32(l.d[0][b]*s))
		a1 += float32(float32(p1) * float32(l.d[1][b]*s))
		if t.min {
			f := float32(float32(total) * s)
			a0 += float32(f * l.m[0][b])
			a1 += float32(f * l.m[1][b])
		}
	}
	return a0, a1
}

// dot16s is dot32s for types with a scale per 16 elements.
func (t *laneType) dot16s(a0, a1 float32, l *lanes, q []int16, scale []float32, sum []int32) (float32, float32) {
	blocks := len(q) / 16
	scale, sum = scale[:blocks/2], sum[:blocks]
	for b := range blocks {
		p0, p1 := halves(dot16((*[16]uint64)(l.u[b*16:]), (*[16]int16)(q[b*16:])))
		p0 -= t.zero * sum[b]
		p1 -= t.zero * sum[b]
		s := scale[b/2]
		a0 += float32(float32(p0) * float32(l.d[0][b]*s))
		a1 += float32(float32(p1) * float32(l.d[1][b]*s))
	}
	return a0, a1
}

// halves splits a word of two signed sums. The low half borrowed from the high one where it is
// negative.
func halves(p int64) (lo, hi int32) {
	lo = int32(p)
	return lo, int32((p - int64(lo)) >> 32)
}

// dot16 is Σ u·q of both rows.
func dot16(u *[16]uint64, q *[16]int16) int64 {
	a := int64(u[0])*int64(q[0]) + int64(u[1])*int64(q[1]) + int64(u[2])*int64(q[2]) + int64(u[3])*int64(q[3])
	b := int64(u[4])*int64(q[4]) + int64(u[5])*int64(q[5]) + int64(u[6])*int64(q[6]) + int64(u[7])*int64(q[7])
	c := int64(u[8])*int64(q[8]) + int64(u[9])*int64(q[9]) + int64(u[10])*int64(q[10]) + int64(u[11])*int64(q[11])
	d := int64(u[12])*int64(q[12]) + int64(u[13])*int64(q[13]) + int64(u[14])*int64(q[14]) + int64(u[15])*int64(q[15])
	return a + b + c + d
}
