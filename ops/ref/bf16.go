package ref

import (
	"encoding/binary"
	"math"
)

// BF16 returns the bf16 number nearest to f, ties to even, in which subnormal numbers are zeros of
// their sign and a NaN stays one. It is what VCVTNEPS2BF16 computes (Intel 64 and IA-32 Architectures
// Software Developer's Manual, volume 2), so that products of tiles, which take subnormal operands
// for zeros too, are the same on every machine.
func BF16(f float32) uint16 {
	b := math.Float32bits(f)
	const exponent, quiet = 0x7f800000, 0x40
	switch {
	case b&exponent == 0:
		return uint16(b>>16) & 0x8000
	case b&^(1<<31) > exponent:
		return uint16(b>>16) | quiet
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// RoundBF16 stores x as bf16 numbers, two little-endian bytes each.
func RoundBF16(dst []byte, x []float32) {
	for i, v := range x {
		binary.LittleEndian.PutUint16(dst[2*i:], BF16(v))
	}
}

// WidenBF16 writes the values of bf16 numbers to dst.
func WidenBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}
