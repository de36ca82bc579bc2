package numfmt

import (
	"encoding/binary"
	"math"
)

// The q8 format holds a row of K activations, K a multiple of BlockLen, as 8-bit integers: it is q8x2
// with one plane, for half the products. One row is a structure of arrays of K·11/8 bytes,
// little-endian:
//
//	q     int8[K]
//	scale float32[K/32]
//	sum   int32[K/16]   Σ q, with which kernels correct for a weight's zero point
//
// For each block of 32: q = round(x·127/amax) in −127…127, ties to even, and x ≈ scale·q with
// scale = amax/127. A block is zero if amax is 0 or so small that 127/amax overflows. A block with NaN
// or Inf gets a NaN scale. Q8_0, a cache format, differs: its scale is a float16.

const q8Max = 127

// Q8Bytes returns the size of a row of k elements.
func Q8Bytes(k int) int { return k / 8 * 11 }

// QuantizeQ8 stores x, a multiple of BlockLen elements, as one row. All arithmetic is in float32, so
// that vector kernels can compute the same bits.
func QuantizeQ8(dst []byte, x []float32) {
	k := len(x)
	for at := 0; at < k; at += BlockLen {
		s, inv := blockScale(x[at:at+BlockLen], q8Max)
		binary.LittleEndian.PutUint32(dst[k+at/8:], math.Float32bits(s))
		for half := at; half < at+BlockLen; half += 16 {
			total := q8Half(dst[half:half+16], x[half:half+16], inv)
			binary.LittleEndian.PutUint32(dst[k+k/8+half/4:], uint32(total))
		}
	}
}

// q8Half stores 16 elements as q = round(x·inv), or zeros where inv is 0, and returns Σ q.
func q8Half(dst []byte, x []float32, inv float32) (sum int32) {
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

// DequantizeQ8 writes the values of one row to dst.
func DequantizeQ8(dst []float32, row []byte) {
	scale := row[len(dst):]
	for i := range dst {
		s := math.Float32frombits(binary.LittleEndian.Uint32(scale[i/BlockLen*4:]))
		dst[i] = s * float32(int8(row[i]))
	}
}
