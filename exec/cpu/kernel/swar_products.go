package kernel

import "pesti/gguf/quant"

// span is the number of elements that are unpacked at a time: one block of the K types, eight blocks
// of the others.
const span = 256

// A rowLoader unpacks up to a span of elements, from element at of k, of rows i and i+1 of the n rows
// w. If row i is the last one, it may be loaded twice.
type rowLoader func(l *swarSpan, w []byte, k, i, n, at int)

// fileRows returns the rowLoader for the layout of the file.
func (t *swarType) fileRows() rowLoader {
	info, _ := quant.Lookup(t.typ)
	return func(l *swarSpan, w []byte, k, i, n, at int) {
		rowBytes := k / info.BlockLen * info.BlockBytes
		from := at / info.BlockLen * info.BlockBytes
		to := min(from+span/info.BlockLen*info.BlockBytes, rowBytes)
		r0, r1 := w[i*rowBytes:][:rowBytes], w[min(i+1, n-1)*rowBytes:][:rowBytes]
		t.unpack(l, r0[from:to], r1[from:to])
	}
}

// swarTile returns the tile kernel that multiplies integers unpacked by load. Sums within a block are
// exact; blocks are added in order in float32.
func swarTile(t *swarType, load rowLoader) func(y []float32, w []byte, n int, x *activation) {
	return func(y []float32, w []byte, n int, x *activation) {
		l, blocks := x.swar, x.k/32
		for i := 0; i < n; i += 2 {
			// An odd last row is computed twice, so that one code path computes all rows.
			var acc [2][tileTokens]float32
			for at := 0; at < x.k; at += span {
				load(l, w, x.k, i, n, at)
				for m := range x.m {
					s := x.scales[m*blocks+at/32:][:min(span, x.k-at)/32]
					acc[0][m], acc[1][m] = t.add(acc[0][m], acc[1][m], l, s, x.words[m*x.k+at:])
				}
			}
			for m := range x.m {
				out := y[m*x.width+i:]
				out[0] = acc[0][m]
				if i+1 < n {
					out[1] = acc[1][m]
				}
			}
		}
	}
}

// add adds to a0 and a1 the products of a span with activations.
func (t *swarType) add(a0, a1 float32, l *swarSpan, s []qscale, words []int16) (float32, float32) {
	// Compute all integer products first: they are calls, which spill registers.
	var p [2 * span / 32]int64
	switch t.block {
	case narrow32:
		for b := range s {
			p[b] = dotNarrow(&l.u[b], (*[32]int16)(words[32*b:]))
		}
	case wide32:
		for b := range s {
			p[b] = dotWide(&l.u[b], (*[32]int16)(words[32*b:]))
		}
	case narrow16:
		for b := range s {
			u, q := &l.u[b], (*[32]int16)(words[32*b:])
			p[2*b] = dotNarrow16((*[4]uint64)(u[:4]), (*[16]int16)(q[:16]))
			p[2*b+1] = dotNarrow16((*[4]uint64)(u[4:]), (*[16]int16)(q[16:]))
		}
		for b := range 2 * len(s) {
			x := &s[b/2]
			total := x.half
			if b%2 == 1 {
				total = x.sum - x.half
			}
			p0, p1 := halves(p[b])
			a0 += float32(float32(p0-t.zero*total) * float32(l.d[0][b]*x.scale))
			a1 += float32(float32(p1-t.zero*total) * float32(l.d[1][b]*x.scale))
		}
		return a0, a1
	}
	for b := range s {
		x := &s[b]
		p0, p1 := halves(p[b])
		a0 += float32(float32(p0-t.zero*x.sum) * float32(l.d[0][b]*x.scale))
		a1 += float32(float32(p1-t.zero*x.sum) * float32(l.d[1][b]*x.scale))
		if t.min {
			a0 += float32(x.offset * l.m[0][b])
			a1 += float32(x.offset * l.m[1][b])
		}
	}
	return a0, a1
}

// A block says how many elements share a scale and how wide their integers are.
type block uint8

const (
	narrow32 block = iota // 32 elements of up to 5 bits
	wide32                // 32 elements of up to 8 bits
	narrow16              // 16 elements of up to 6 bits
)

// halves splits a word into its two signed sums. A negative low half has borrowed from the high half.
func halves(p int64) (lo, hi int32) {
	lo = int32(p)
	return lo, int32((p - int64(lo)) >> 32)
}

// Each half of a sum must stay within 31 bits and a sign, or it would overflow into the other half.
// |q| is at most 16256, which has 14 bits.
const (
	byte0 = 255 * ones
	byte1 = byte0 << 8
)

// narrow adds the products of four elements, whose q are in the order 0, 2, 1, 3. Odd bytes are
// multiplied without a shift, so b accumulates 256 times their products.
func narrow(a, b int64, u uint64, q *[4]int16) (int64, int64) {
	a += int64(u&byte0) * int64(q[0])
	b += int64(u&byte1) * int64(q[2])
	u >>= 16
	a += int64(u&byte0) * int64(q[1])
	b += int64(u&byte1) * int64(q[3])
	return a, b
}

// dotNarrow16 is Σ u·q of 16 elements, u < 64: for 8 of them 63 · 16256 · 8 · 256 < 2³¹.
func dotNarrow16(u *[4]uint64, q *[16]int16) int64 {
	a, b := narrow(0, 0, u[0], (*[4]int16)(q[0:]))
	a, b = narrow(a, b, u[1], (*[4]int16)(q[4:]))
	a, b = narrow(a, b, u[2], (*[4]int16)(q[8:]))
	a, b = narrow(a, b, u[3], (*[4]int16)(q[12:]))
	return a + b>>8
}

// dotNarrow is Σ u·q of 32 elements, u < 32: for 16 of them 31 · 16256 · 16 · 256 < 2³¹.
func dotNarrow(u *[8]uint64, q *[32]int16) int64 {
	a, b := narrow(0, 0, u[0], (*[4]int16)(q[0:]))
	a, b = narrow(a, b, u[1], (*[4]int16)(q[4:]))
	a, b = narrow(a, b, u[2], (*[4]int16)(q[8:]))
	a, b = narrow(a, b, u[3], (*[4]int16)(q[12:]))
	a, b = narrow(a, b, u[4], (*[4]int16)(q[16:]))
	a, b = narrow(a, b, u[5], (*[4]int16)(q[20:]))
	a, b = narrow(a, b, u[6], (*[4]int16)(q[24:]))
	a, b = narrow(a, b, u[7], (*[4]int16)(q[28:]))
	return a + b>>8
}

// wide adds the products of four elements, whose q are in the order 0, 2, 1, 3.
func wide(a int64, u uint64, q *[4]int16) int64 {
	a += int64(u&byte0) * int64(q[0])
	a += int64(u>>8&byte0) * int64(q[2])
	a += int64(u>>16&byte0) * int64(q[1])
	a += int64(u>>24&byte0) * int64(q[3])
	return a
}

// dotWide is Σ u·q of 32 elements, u < 256: 255 · 16256 · 32 < 2²⁷.
func dotWide(u *[8]uint64, q *[32]int16) int64 {
	a := wide(0, u[0], (*[4]int16)(q[0:]))
	a = wide(a, u[1], (*[4]int16)(q[4:]))
	a = wide(a, u[2], (*[4]int16)(q[8:]))
	a = wide(a, u[3], (*[4]int16)(q[12:]))
	a = wide(a, u[4], (*[4]int16)(q[16:]))
	a = wide(a, u[5], (*[4]int16)(q[20:]))
	a = wide(a, u[6], (*[4]int16)(q[24:]))
	a = wide(a, u[7], (*[4]int16)(q[28:]))
	return a
}
