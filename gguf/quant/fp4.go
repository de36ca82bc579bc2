package quant

import (
	"math"

	"pesti/gguf/numfmt"
)

// The types here hold 4-bit floating-point numbers E2M1 (OCP Microscaling
// Formats 1.0, section 5.3.3): 0, ½, 1, 1½, 2, 3, 4, 6, and their negatives.
// The arithmetic uses twice their value, an integer, and half of the scale.

// e2m1 holds twice the value of each E2M1 number, without −0.
var e2m1 = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// MXFP4: 32 elements as x = 2^(e−127)·q. Block: byte e, 16 bytes of E2M1 q in
// nibbles as in Q4_0.

func dequantizeMXFP4(dst []float32, src []byte) {
	for len(dst) >= 32 {
		y, b := (*[32]float32)(dst), (*[17]byte)(src)
		lookup(y[:], b[1:17], halfE8M0(b[0]), &e2m1)
		dst, src = dst[32:], src[17:]
	}
}

// NVFP4: 64 elements in 4 sub-blocks of 16, each x = s·q. Block: 4 bytes UE4M3
// with the s, 32 bytes of E2M1 q in nibbles; the low nibbles of bytes 8j to 8j+7
// are the first 8 elements of sub-block j, the high ones the other 8.

func dequantizeNVFP4(dst []float32, src []byte) {
	for len(dst) >= 64 {
		y, b := (*[64]float32)(dst), (*[36]byte)(src)
		for j, s := range b[:4] {
			lookup(y[16*j:16*j+16], b[4+8*j:12+8*j], halfUE4M3(s), &e2m1)
		}
		dst, src = dst[64:], src[36:]
	}
}

// lookup sets y to d times the table entry of each nibble of q, all low nibbles
// first.
func lookup(y []float32, q []byte, d float32, table *[16]int8) {
	low, high := y[:len(q)], y[len(q):2*len(q)]
	for i, q := range q {
		low[i] = d * float32(table[q&15])
		high[i] = d * float32(table[q>>4])
	}
}

// halfE8M0 returns 2^(e−128), also for 0xff, the NaN of the format, as other
// implementations do.
func halfE8M0(e byte) float32 {
	if e < 2 { // below the least normal float32
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// halfUE4M3 returns half of an E4M3 number, whose sign bit it ignores. Of the
// two NaN it reads 0x7f as 0 and 0xff as the number that its bits would be,
// 480, as other implementations do.
func halfUE4M3(s byte) float32 {
	switch s {
	case 0x7f:
		return 0
	case 0xff:
		return 480 / 2
	}
	return numfmt.E4M3ToF32(s&0x7f) / 2
}
