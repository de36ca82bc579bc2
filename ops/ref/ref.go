// Package ref holds the reference kernels: plain functions on slices that define the meaning of
// each op.
//
// Matrices are row-major. Sums are computed in float64, in index order, and rounded once, so that
// results differ between machines only if functions such as math.Exp do. The destination may be an
// operand of the same length, unless a function's comment excludes that. Nothing allocates. Slices
// of a wrong length are a bug of the caller and panic. The package imports gguf/numfmt and nothing
// else of this module.
package ref

import (
	"fmt"
	"math"
)

// GetRows writes scale times the rows ids of table, whose rows hold n elements, to dst. An id
// outside the table is an error.
func GetRows(dst, table []float32, ids []int32, n int, scale float64) error {
	for i, id := range ids {
		if id < 0 || (int(id)+1)*n > len(table) {
			return fmt.Errorf("row %d is %d, expected 0 ≤ row < %d", i, id, len(table)/max(1, n))
		}
		Scale(dst[i*n:(i+1)*n], table[int(id)*n:(int(id)+1)*n], scale)
	}
	return nil
}

// Scale is factor · x, rounded once.
func Scale(dst, x []float32, factor float64) {
	for i, v := range x {
		dst[i] = float32(float64(v) * factor)
	}
}

// RMSNorm is w ⊙ x / √(mean(x²) + eps) over each group of `group` elements; w has group elements.
func RMSNorm(dst, x, w []float32, group int, eps float64) {
	for at := 0; at < len(x); at += group {
		sum := 0.0
		for _, v := range x[at : at+group] {
			sum += float64(v) * float64(v)
		}
		inv := 1 / math.Sqrt(sum/float64(group)+eps)
		for i, v := range x[at : at+group] {
			dst[at+i] = float32(float64(v) * inv * float64(w[i]))
		}
	}
}

// Dot is Σ x·w. The product of two float32 is exact in float64, so fused multiply-adds change
// nothing.
func Dot(x, w []float32) float64 {
	sum := 0.0
	w = w[:len(x)]
	for i, v := range x {
		sum += float64(v) * float64(w[i])
	}
	return sum
}

// Matmul is x·wᵀ: dst [m, n], x [m, k], w [n, k]. dst must not overlap an operand. For k = 0 the
// sums are empty, and dst is zero.
func Matmul(dst, x, w []float32, k int) {
	if k == 0 {
		clear(dst)
		return
	}
	n := len(w) / k
	for at := range len(x) / k {
		row := x[at*k : (at+1)*k]
		for j := range n {
			dst[at*n+j] = float32(Dot(row, w[j*k:(j+1)*k]))
		}
	}
}

// AddBias adds b to each row of x.
func AddBias(dst, x, b []float32) {
	for at := 0; at < len(x); at += len(b) {
		Add(dst[at:at+len(b)], x[at:at+len(b)], b)
	}
}

// Add is a + b.
func Add(dst, a, b []float32) {
	for i, v := range a {
		dst[i] = v + b[i]
	}
}

// Mul is a ⊙ b.
func Mul(dst, a, b []float32) {
	for i, v := range a {
		dst[i] = v * b[i]
	}
}
