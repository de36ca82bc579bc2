package kernel

import (
	"slices"
	"unsafe"
)

// A q8x2 is a matrix of activations in two planes of int8: per row of n elements hi int8[n],
// lo int8[n], scale float32[n/32], sum int32[n/16], where x ≈ scale·(hi + lo/128) and sum holds
// Σ(128·hi + lo) of 16 elements each.
type q8x2 struct {
	data []byte
	n    int
}

// q8x2 returns an operand in that format; its row length is the parameter "n" or "k".
func (b *binder) q8x2(role string) q8x2 {
	o := b.operand(role)
	if o.Format != "q8x2" {
		b.fail("operand %s is %s, expected q8x2", role, o.Format)
	}
	name := "n"
	if role == "x" {
		name = "k"
	}
	n := b.int(name)
	if n%32 != 0 {
		b.fail("%s=%d is not a multiple of 32", name, n)
	}
	return q8x2{o.Data, n}
}

func (q q8x2) row(m int) []byte {
	size := q.n / 32 * 76
	return q.data[m*size : (m+1)*size]
}

// put stores n elements, which part holds as a row of its own, from element at of row m on. Both are
// multiples of 32.
func (q q8x2) put(m, at int, part []byte, n int) {
	row := q.row(m)
	copy(row[at:], part[:n])
	copy(row[q.n+at:], part[n:2*n])
	copy(row[2*q.n+at/8:], part[2*n:2*n+n/8])
	copy(row[2*q.n+q.n/8+at/4:], part[2*n+n/8:2*n+n/8+n/4])
}

// planes returns the planes of row m as views.
func (q q8x2) planes(m int) (hi, lo []int8) {
	row := q.row(m)
	hi = unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(row))), q.n)
	lo = unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(row[q.n:]))), q.n)
	return hi, lo
}

// A qblock is 32 activations scale·q, as products want them.
type qblock struct {
	q      [32]int16 // 128·hi + lo; every four in the order 0, 2, 1, 3, since even ones meet the even bytes of weights
	scale  float32   // of q
	offset float32   // scale·Σq
	sum    int32     // Σq
	half   int32     // Σq of the first 16
}

// blocks prepares row m with f.
func (q q8x2) blocks(f qblocker, dst []qblock, m int) {
	row := q.row(m)
	hi, lo := q.planes(m)
	f(dst, hi, lo, view[float32](row[2*q.n:2*q.n+q.n/8]), view[int32](row[2*q.n+q.n/8:]))
}

// A qblocker sets dst to the blocks of a row. All give the same bits.
type qblocker func(dst []qblock, hi, lo []int8, scale []float32, sum []int32)

func portableQblocks(dst []qblock, hi, lo []int8, scale []float32, sum []int32) {
	for i := range dst {
		b, hi, lo := &dst[i], (*[32]int8)(hi[32*i:]), (*[32]int8)(lo[32*i:])
		for j := 0; j < 32; j += 4 {
			b.q[j] = int16(hi[j])<<7 + int16(lo[j])
			b.q[j+1] = int16(hi[j+2])<<7 + int16(lo[j+2])
			b.q[j+2] = int16(hi[j+1])<<7 + int16(lo[j+1])
			b.q[j+3] = int16(hi[j+3])<<7 + int16(lo[j+3])
		}
		b.scale = scale[i] * (1.0 / 128)
		b.sum, b.half = sum[2*i]+sum[2*i+1], sum[2*i]
		b.offset = float32(b.sum) * b.scale
	}
}

// qblocker returns the best one that may be used.
func (b *binder) qblocker() qblocker {
	if assemblyQblocks != nil && slices.Contains(b.isas, "avx2") {
		return assemblyQblocks
	}
	return portableQblocks
}
