package ref

import (
	"encoding/binary"
	"math"
)

// The q8 format holds a row of K activations, K a multiple of 32, as 8-bit integers: q8x2 with one
// plane, for half the products. One row is a structure of arrays of K·11/8 bytes, little-endian:
//
//	q     int8[K]
//	scale float32[K/32]
//	sum   int32[K/16]   Σ q, with which kernels correct for a weight's zero point
//
// For each block of 32: q = round(x·127/amax) in −127…127, to nearest even, and x ≈ scale·q with
// scale = amax/127. A block is zero where amax is 0 or so small that 127/amax overflows; a block
// with NaN or Inf has a NaN scale. It is not the q8_0 of caches, see QuantiseQ8, whose scale is a
// float16.

const q8RowMax = 127

// Q8RowBytes returns the size of a row of k elements.
func Q8RowBytes(k int) int { return k / 8 * 11 }

// QuantiseQ8Row stores x, a multiple of 32 elements, as one row in dst. All arithmetic is in
// float32, so that vector kernels can give the same bits.
func QuantiseQ8Row(dst []byte, x []float32) {
	k := len(x)
	for at := 0; at < k; at += Q8x2Block {
		s, inv := blockScale(x[at:at+Q8x2Block], q8RowMax)
		binary.LittleEndian.PutUint32(dst[k+at/8:], math.Float32bits(s))
		for half := at; half < at+Q8x2Block; half += 16 {
			total := q8RowHalf(dst[half:half+16], x[half:half+16], inv)
			binary.LittleEndian.PutUint32(dst[k+k/8+half/4:], uint32(total))
		}
	}
}

// q8RowHalf stores 16 elements as q = round(x·inv), or zeros where inv is 0, and returns Σ q.
func q8RowHalf(dst []byte, x []float32, inv float32) (sum int32) {
	if inv == 0 { // x may hold NaN
		clear(dst)
		return 0
	}
	for i, v := range x {
		q := roundEven(float32(v * inv))
		dst[i] = byte(q)
		sum += q
	}
	return sum
}

// DequantiseQ8Row writes the values of one row to dst.
func DequantiseQ8Row(dst []float32, row []byte) {
	scale := row[len(dst):]
	for i := range dst {
		s := math.Float32frombits(binary.LittleEndian.Uint32(scale[i/Q8x2Block*4:]))
		dst[i] = s * float32(int8(row[i]))
	}
}
