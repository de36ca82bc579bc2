package kernel

import "math"

// f16 is the value of the IEEE 754 binary16 number h, small enough to be inlined where blocks
// are unpacked. Moved into the exponent range of binary32 it is a number 2¹¹² times too small.
func f16(h uint16) float32 {
	v := math.Float32frombits(uint32(h&0x7fff) << 13)
	if h&0x7c00 == 0x7c00 { // infinity and NaN
		v = math.Float32frombits(0x7f800000 | uint32(h&0x3ff)<<13)
	}
	return math.Float32frombits(math.Float32bits(v*0x1p112) | uint32(h&0x8000)<<16)
}
