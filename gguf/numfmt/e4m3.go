package numfmt

import "math"

// E4M3 is an 8-bit floating-point format (OCP 8-bit Floating Point Specification, revision 1.0): a
// sign, four bits of exponent with a bias of 7, three bits of mantissa. It has no infinities. A number
// whose bits other than the sign are all set is NaN.

// E4M3Max is the largest number of E4M3.
const E4M3Max = 448

// F32ToE4M3 returns the E4M3 number nearest to x, ties to even. Values beyond ±E4M3Max become ±E4M3Max,
// as in the specification's saturating conversion. A NaN stays a NaN.
func F32ToE4M3(x float32) uint8 {
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

// E4M3ToF32 returns the value of an E4M3 number.
func E4M3ToF32(b uint8) float32 { return e4m3Values[b] }

// e4m3Values holds the value of every E4M3 number.
var e4m3Values = func() (values [1 << 8]float32) {
	for b := range values {
		sign, mag := uint32(b&0x80)<<24, uint32(b&0x7f)
		switch {
		case mag == 0x7f:
			values[b] = math.Float32frombits(sign | 0x7fc00000)
		case mag < 8: // zero and subnormals: multiples of 2^-9
			values[b] = math.Float32frombits(sign | math.Float32bits(float32(mag)*0x1p-9))
		default:
			values[b] = math.Float32frombits(sign | (mag<<20 + 0x3c000000))
		}
	}
	return values
}()
