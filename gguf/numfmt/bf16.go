package numfmt

import (
	"encoding/binary"
	"math"
)

// BF16ToF32 returns the value of the bfloat16 number h, exactly.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 returns the bfloat16 number nearest to f, ties to even. A NaN becomes a quiet NaN.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// F32ToBF16FTZ is F32ToBF16 with subnormal numbers flushed to zeros of the same sign. It computes what
// the instruction VCVTNEPS2BF16 does (Intel 64 and IA-32 Architectures Software Developer's Manual,
// volume 2). Products by AMX tiles take subnormal operands for zeros too, so their results are the
// same on every machine.
func F32ToBF16FTZ(f float32) uint16 {
	if math.Float32bits(f)&0x7f800000 == 0 {
		return uint16(math.Float32bits(f)>>16) & 0x8000
	}
	return F32ToBF16(f)
}

// EncodeBF16 stores x as bfloat16 numbers by F32ToBF16FTZ, two little-endian bytes each.
func EncodeBF16(dst []byte, x []float32) {
	for i, v := range x {
		binary.LittleEndian.PutUint16(dst[2*i:], F32ToBF16FTZ(v))
	}
}

// DecodeBF16 writes the values of bfloat16 numbers to dst.
func DecodeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
	}
}
