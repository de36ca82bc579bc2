package ref

import "math"

// E4M3Max is the largest number of E4M3.
const E4M3Max = 448

// E4M3 rounds x to the FP8 format E4M3, to nearest even: a sign, four bits of exponent of bias 7,
// three of mantissa (OCP 8-bit Floating Point Specification, revision 1.0). The format has no
// infinities: what is beyond ±E4M3Max becomes that, as the specification's saturating conversion
// has it. A NaN stays one.
func E4M3(x float32) uint8 {
	b := math.Float32bits(x)
	sign, mag := uint8(b>>24&0x80), b&0x7fffffff
	switch {
	case mag > 0x7f800000:
		return sign | 0x7f
	case mag >= 0x43e00000: // 448
		return sign | 0x7e
	case mag < 0x3c800000: // below 2^-6: adding 2^14 leaves multiples of 2^-9 in the low bits
		sum := math.Float32frombits(mag) + 0x1p14
		return sign | uint8(math.Float32bits(sum)-0x46800000)
	}
	return sign | uint8((mag-0x3c000000+0x7ffff+mag>>20&1)>>20)
}

// E4M3Value is the value of an E4M3 number.
func E4M3Value(b uint8) float32 {
	sign, mag := uint32(b&0x80)<<24, uint32(b&0x7f)
	switch {
	case mag == 0x7f:
		return math.Float32frombits(sign | 0x7fc00000)
	case mag < 8: // zero and subnormals: multiples of 2^-9
		return math.Float32frombits(sign | math.Float32bits(float32(mag)*0x1p-9))
	}
	return math.Float32frombits(sign | (mag<<20 + 0x3c000000))
}
