package kernel

import (
	"unsafe"

	"pesti/ops/ref"
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

func (q q8x2) quantise(m int, x []float32) { ref.QuantiseQ8x2(q.row(m), x) }

// planes returns the parts of row m as views.
func (q q8x2) planes(m int) (hi, lo []int8, scale []float32, sum []int32) {
	row := q.row(m)
	hi = unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(row))), q.n)
	lo = unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(row[q.n:]))), q.n)
	return hi, lo, view[float32](row[2*q.n : 2*q.n+q.n/8]), view[int32](row[2*q.n+q.n/8:])
}
