package kernel

import "math"

// f16 is the value of the IEEE 754 binary16 number h, small enough to be inlined where blocks
// are unpacked. It computes with no subnormal float32, which processors are slow at.
func f16(h uint16) float32 {
	bits := uint32(h&0x7fff)<<13 + 112<<23 // the exponent's bias is 127, not 15
	switch h & 0x7c00 {
	case 0: // zero and subnormals lack the leading one
		bits = math.Float32bits(math.Float32frombits(bits+1<<23) - 0x1p-14)
	case 0x7c00: // infinity and NaN
		bits += 112 << 23
	}
	return math.Float32frombits(bits | uint32(h&0x8000)<<16)
}
