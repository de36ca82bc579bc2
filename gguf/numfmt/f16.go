package numfmt

import "math"

// F16ToF32 returns the value of the IEEE 754 binary16 number h. The conversion is exact. A NaN stays a
// NaN.
func F16ToF32(h uint16) float32 {
	// After the shift the exponent is 112 too low. One exact product corrects it, for subnormals too.
	f := math.Float32frombits(uint32(h&0x7fff)<<13) * 0x1p112
	b := math.Float32bits(f) | uint32(h&0x8000)<<16
	if h&0x7c00 == 0x7c00 { // infinity and NaN
		b |= 0x7f800000
	}
	return math.Float32frombits(b)
}

// F32ToF16 returns the binary16 number nearest to f, ties to even. Values beyond the range become
// infinities. A NaN becomes a quiet NaN.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN: keep the high bits of the payload, set the quiet bit
		return sign | 0x7e00 | uint16(b>>13)&0x3ff
	case b >= 0x47800000: // 65536 and above
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: the result is subnormal or zero
		// Adding 0.5 makes 2^-24 the weight of the last bit, and rounds to even.
		r := math.Float32frombits(b) + 0.5
		return sign | uint16(math.Float32bits(r)-math.Float32bits(0.5))
	}
	// Rounding may carry into the exponent, up to infinity, which is correct.
	b += 0xfff + b>>13&1
	return sign | uint16(b>>13-(127-15)<<10)
}
