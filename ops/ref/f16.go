package ref

import "math"

// F16 rounds x to IEEE 754 binary16, to nearest even; what is too large becomes infinite.
func F16(x float32) uint16 {
	b := math.Float32bits(x)
	sign, mag := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case mag > 0x7f800000: // NaN: keep the upper payload bits, and one at least
		return sign | 0x7e00 | uint16(mag>>13&0x3ff)
	case mag >= 0x47800000: // 2^16 and more, Inf
		return sign | 0x7c00
	case mag < 0x38800000: // below 2^-14: adding 0.5 leaves multiples of 2^-24 in the low bits
		sum := math.Float32frombits(mag) + 0.5
		return sign | uint16(math.Float32bits(sum)-0x3f000000)
	}
	// Rebias the exponent and round; a carry out of the mantissa is right, even into infinity.
	return sign | uint16((mag-0x38000000+0xfff+mag>>13&1)>>13)
}

// F32 is the value of a binary16 number.
func F32(h uint16) float32 {
	sign, mag := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	switch {
	case mag >= 0x7c00: // Inf, NaN
		return math.Float32frombits(sign | 0x7f800000 | mag&0x3ff<<13)
	case mag < 0x400: // zero and subnormals: multiples of 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(mag)*0x1p-24))
	}
	return math.Float32frombits(sign | (mag<<13 + 0x38000000))
}
