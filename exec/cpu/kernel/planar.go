package kernel

import (
	"slices"
	"unsafe"
)

// A planar is a matrix of activations in one or two planes of int8. In format q8x2, a row of n elements
// is hi int8[n], lo int8[n], scale float32[n/32], sum int32[n/16], where x ≈ scale·(hi + lo/128) and sum
// has Σ(128·hi + lo) of 16 elements each. Format q8 has no lo: x ≈ scale·hi, and sum has Σ hi.
type planar struct {
	data   []byte
	n      int
	planes int
}

// planesOf has the number of planes by format.
var planesOf = map[string]int{"q8": 1, "q8x2": 2}

// planar returns an operand in one of these formats. Its row length is parameter "k" for x, else "n".
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

// put copies part, a row of n elements, to element at of row m. at and n are multiples of 32.
func (q planar) put(m, at int, part []byte, n int) {
	row := q.row(m)
	for range q.planes {
		copy(row[at:], part[:n])
		row, part = row[q.n:], part[n:]
	}
	copy(row[at/8:], part[:n/8])
	copy(row[q.n/8+at/4:], part[n/8:n/8+n/4])
}

// split returns views of the planes of row m. lo is nil in format q8.
func (q planar) split(m int) (hi, lo []int8) {
	row := q.row(m)
	hi = unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(row))), q.n)
	if q.planes == 2 {
		lo = unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(row[q.n:]))), q.n)
	}
	return hi, lo
}

// A qblock has 32 activations scale·q, prepared for products. Every four are in the order 0, 2, 1, 3:
// elements 0 and 2 are multiplied with even bytes of weights, and 1 and 3 with odd bytes.
type qblock struct {
	q      [32]int16 // 128·hi + lo in format q8x2, hi in q8
	scale  float32   // of q
	offset float32   // scale·Σq
	sum    int32     // Σq
	half   int32     // Σq of the first 16
}

// blocks converts row m to qblocks with f.
func (q planar) blocks(f qblockFunc, dst []qblock, m int) {
	hi, lo := q.split(m)
	rest := q.row(m)[q.planes*q.n:]
	f(dst, hi, lo, view[float32](rest[:q.n/8]), view[int32](rest[q.n/8:]))
}

// A qblockFunc converts a row to qblocks. lo is nil in format q8. All such functions give the same bits.
type qblockFunc func(dst []qblock, hi, lo []int8, scale []float32, sum []int32)

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

// portableQblocks8 is portableQblocks for format q8.
func portableQblocks8(dst []qblock, hi []int8, scale []float32, sum []int32) {
	for i := range dst {
		b, hi := &dst[i], (*[32]int8)(hi[32*i:])
		for j := 0; j < 32; j += 4 {
			b.q[j], b.q[j+1], b.q[j+2], b.q[j+3] = int16(hi[j]), int16(hi[j+2]), int16(hi[j+1]), int16(hi[j+3])
		}
		b.complete(scale[i], sum[2*i], sum[2*i+1])
	}
}

// complete sets all fields but q, from the scale and the sums of the two halves.
func (b *qblock) complete(scale float32, first, second int32) {
	b.scale, b.sum, b.half = scale, first+second, first
	b.offset = float32(b.sum) * scale
}

// qblockFunc returns the best qblockFunc whose instruction set may be used.
func (b *binder) qblockFunc() qblockFunc {
	if assemblyQblocks != nil && slices.Contains(b.isas, "avx2") {
		return assemblyQblocks
	}
	return portableQblocks
}
