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

// A qscale describes 32 activations scale·q, where q is 128·hi + lo in format q8x2 and hi in q8.
type qscale struct {
	scale  float32 // of q
	offset float32 // scale·Σq
	sum    int32   // Σq
	half   int32   // Σq of the first 16
}

// scales sets dst to the scales and sums of row m.
func (q planar) scales(dst []qscale, m int) {
	rest := q.row(m)[q.planes*q.n:]
	scale, sum, unit := view[float32](rest[:q.n/8]), view[int32](rest[q.n/8:]), float32(1)
	if q.planes == 2 {
		unit = 1.0 / 128
	}
	for i := range dst {
		s, first := scale[i]*unit, sum[2*i]
		both := first + sum[2*i+1]
		dst[i] = qscale{s, float32(both) * s, both, first}
	}
}

// words sets dst to q of row m with f. Every four elements are in the order 0, 2, 1, 3: elements 0 and 2 are multiplied
// by even bytes of weights, and 1 and 3 by odd bytes.
func (q planar) words(f wordsFunc, dst []int16, m int) {
	hi, lo := q.split(m)
	f(dst, hi, lo)
}

// A wordsFunc converts a row to words. lo is nil in format q8. All such functions give the same values.
type wordsFunc func(dst []int16, hi, lo []int8)

func portableWords(dst []int16, hi, lo []int8) {
	for j := 0; j < len(dst); j += 4 {
		q, hi := (*[4]int16)(dst[j:]), (*[4]int8)(hi[j:])
		*q = [4]int16{int16(hi[0]), int16(hi[2]), int16(hi[1]), int16(hi[3])}
		if lo != nil {
			lo := (*[4]int8)(lo[j:])
			*q = [4]int16{q[0]<<7 + int16(lo[0]), q[1]<<7 + int16(lo[2]), q[2]<<7 + int16(lo[1]), q[3]<<7 + int16(lo[3])}
		}
	}
}

// wordsFunc returns the best wordsFunc whose instruction set may be used.
func (b *binder) wordsFunc() wordsFunc {
	if assemblyWords != nil && slices.Contains(b.isas, "avx2") {
		return assemblyWords
	}
	return portableWords
}
