package numfmt

import (
	"encoding/binary"
	"math"
)

// The q8x2 format holds a row of K activations, K a multiple of BlockLen, as 15-bit integers in two
// planes of int8, so that kernels for products of 8-bit integers reach nearly the accuracy of float32.
// One row is a structure of arrays of K·19/8 bytes, little-endian:
//
//	hi    int8[K]
//	lo    int8[K]       in −64…63
//	scale float32[K/32]
//	sum   int32[K/16]   Σ q, with which kernels correct for a weight's zero point
//
// For each block of 32: q = 128·hi + lo = round(x·16256/amax) in −16256…16256, ties to even, and
// x ≈ scale·(hi + lo/128) with scale = amax/127. A block is zero if amax is 0 or so small that
// 16256/amax overflows. A block with NaN or Inf gets a NaN scale.

const q8x2Max = 16256 // 127·128

// Q8x2Bytes returns the size of a row of k elements.
func Q8x2Bytes(k int) int { return k / 8 * 19 }

// planes splits a row of k elements into its arrays.
func planes(row []byte, k int) (hi, lo, scale, sum []byte) {
	return row[:k], row[k : 2*k], row[2*k : 2*k+k/8], row[2*k+k/8 : Q8x2Bytes(k)]
}

// QuantizeQ8x2 stores x, a multiple of BlockLen elements, as one row. All arithmetic is in float32, so
// that vector kernels can compute the same bits.
func QuantizeQ8x2(dst []byte, x []float32) {
	hi, lo, scale, sum := planes(dst, len(x))
	for at := 0; at < len(x); at += BlockLen {
		s, inv := blockScale(x[at:at+BlockLen], q8x2Max)
		binary.LittleEndian.PutUint32(scale[at/8:], math.Float32bits(s))
		for half := at; half < at+BlockLen; half += 16 {
			total := q8x2Half(hi[half:half+16], lo[half:half+16], x[half:half+16], inv)
			binary.LittleEndian.PutUint32(sum[half/4:], uint32(total))
		}
	}
}

// q8x2Half stores 16 elements as q = round(x·inv), or zeros where inv is 0, and returns Σ q.
func q8x2Half(hi, lo []byte, x []float32, inv float32) (sum int32) {
	if inv == 0 { // x may hold NaN
		clear(hi)
		clear(lo)
		return 0
	}
	lo = lo[:len(x)]
	hi = hi[:len(x)]
	for i, v := range x {
		q := roundEven(float32(v * inv))
		h := (q + 64) >> 7
		hi[i], lo[i] = byte(h), byte(q-128*h)
		sum += q
	}
	return sum
}

// roundEven returns the integer nearest to x, ties to even, for |x| < 2^22: adding 1.5·2^23 leaves it in
// the low bits.
func roundEven(x float32) int32 { return int32(math.Float32bits(x+0x1.8p23)) - 0x4b400000 }

// blockScale returns the scale of a block, and the factor from x to q where |q| may be up to limit. The
// factor is 0 for a block that is zero, too small or not finite.
func blockScale(block []float32, limit float32) (scale, inv float32) {
	top := uint32(0) // magnitudes are ordered as their bits are, NaN highest
	for _, v := range block {
		top = max(top, math.Float32bits(v)&0x7fffffff)
	}
	amax := math.Float32frombits(top)
	if amax-amax != 0 {
		return float32(math.NaN()), 0
	}
	inv = limit / amax
	if math.IsInf(float64(inv), 1) {
		return 0, 0
	}
	return amax / 127, inv
}

// DequantizeQ8x2 writes the values of one row to dst.
func DequantizeQ8x2(dst []float32, row []byte) {
	hi, lo, scale, _ := planes(row, len(dst))
	for i := range dst {
		s := math.Float32frombits(binary.LittleEndian.Uint32(scale[i/BlockLen*4:]))
		dst[i] = s * (float32(int8(hi[i])) + float32(int8(lo[i]))/128)
	}
}
