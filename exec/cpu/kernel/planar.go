package kernel

import (
	"slices"
	"unsafe"
)

// A planar is a matrix of activations in planes of int8. In two, format q8x2, a row of n elements is
// hi int8[n], lo int8[n], scale float32[n/32], sum int32[n/16], where x ≈ scale·(hi + lo/128) and sum
// holds Σ(128·hi + lo) of 16 elements each. In one, format q8, there is no lo: x ≈ scale·hi, and sum
// holds Σ hi.
type planar struct {
	data   []byte
	n      int
	planes int
}

// planesOf are the formats of a planar.
var planesOf = map[string]int{"q8": 1, "q8x2": 2}

// planar returns an operand in such a format; its row length is the parameter "n" or "k".
func (b *binder) planar(role string) planar {
	o := b.operand(role)
	planes := planesOf[o.Format]
	if planes == 0 {
		b.fail("operand %s is %s, expected q8x2 or q8", role, o.Format)
	}
	name := "n"
	if role == "x" {
		name = "k"
	}
	n := b.int(name)
	if n%32 != 0 {
		b.fail("%s=%d is not a multiple of 32", name, n)
	}
	return planar{o.Data, n, planes}
}

// bytes returns the size of a row of n elements.
func (q planar) bytes(n int) int { return q.planes*n + n/8 + n/4 }

func (q planar) row(m int) []byte {
	size := q.bytes(q.n)
	return q.data[m*size : (m+1)*size]
}

// put stores n elements, which part holds as a row of its own, from element at of row m on. Both are
// multiples of 32.
func (q planar) put(m, at int, part []byte, n int) {
	row := q.row(m)
	for range q.planes {
		copy(row[at:], part[:n])
		row, part = row[q.n:], part[n:]
	}
	copy(row[at/8:], part[:n/8])
	copy(row[q.n/8+at/4:], part[n/8:n/8+n/4])
}

// split returns the planes of row m as views; lo is nil where there is one.
func (q planar) split(m int) (hi, lo []int8) {
	row := q.row(m)
	hi = unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(row))), q.n)
	if q.planes == 2 {
		lo = unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(row[q.n:]))), q.n)
	}
	return hi, lo
}

// A qblock is 32 activations scale·q, as products want them.
type qblock struct {
	q      [32]int16 // 128·hi + lo, or hi; every four in the order 0, 2, 1, 3, since even ones meet the even bytes of weights
	scale  float32   // of q
	offset float32   // scale·Σq
	sum    int32     // Σq
	half   int32     // Σq of the first 16
}

// blocks prepares row m with f.
func (q planar) blocks(f qblocker, dst []qblock, m int) {
	hi, lo := q.split(m)
	rest := q.row(m)[q.planes*q.n:]
	f(dst, hi, lo, view[float32](rest[:q.n/8]), view[int32](rest[q.n/8:]))
}

// A qblocker sets dst to the blocks of a row; lo is nil where it has one plane. All give the same bits.
type qblocker func(dst []qblock, hi, lo []int8, scale []float32, sum []int32)

func portableQblocks(dst []qblock, hi, lo []int8, scale []float32, sum []int32) {
	if lo == nil {
		portableQblocks8(dst, hi, scale, sum)
		return
	}
	for i := range dst {
		b, hi, lo := &dst[i], (*[32]int8)(hi[32*i:]), (*[32]int8)(lo[32*i:])
		for j := 0; j < 32; j += 4 {
			b.q[j] = int16(hi[j])<<7 + int16(lo[j])
			b.q[j+1] = int16(hi[j+2])<<7 + int16(lo[j+2])
			b.q[j+2] = int16(hi[j+1])<<7 + int16(lo[j+1])
			b.q[j+3] = int16(hi[j+3])<<7 + int16(lo[j+3])
		}
		b.complete(scale[i]*(1.0/128), sum[2*i], sum[2*i+1])
	}
}

// portableQblocks8 is a qblocker for rows of one plane.
func portableQblocks8(dst []qblock, hi []int8, scale []float32, sum []int32) {
	for i := range dst {
		b, hi := &dst[i], (*[32]int8)(hi[32*i:])
		for j := 0; j < 32; j += 4 {
			b.q[j], b.q[j+1], b.q[j+2], b.q[j+3] = int16(hi[j]), int16(hi[j+2]), int16(hi[j+1]), int16(hi[j+3])
		}
		b.complete(scale[i], sum[2*i], sum[2*i+1])
	}
}

// complete sets what is beside q from its scale and the sums of its halves.
func (b *qblock) complete(scale float32, first, second int32) {
	b.scale, b.sum, b.half = scale, first+second, first
	b.offset = float32(b.sum) * scale
}

// qblocker returns the best one that may be used.
func (b *binder) qblocker() qblocker {
	if assemblyQblocks != nil && slices.Contains(b.isas, "avx2") {
		return assemblyQblocks
	}
	return portableQblocks
}
