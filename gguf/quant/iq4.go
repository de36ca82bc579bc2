package quant

import "pesti/gguf/numfmt"

// These types store 4-bit indices into a table of levels, which are denser near
// zero.

var iq4Levels = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// IQ4_NL: 32 elements as x = d·level[q]. Block: f16 d, nibbles as in Q4_0.

func dequantizeIQ4_NL(dst []float32, src []byte) {
	for len(dst) >= 32 {
		y, b := (*[32]float32)(dst), (*[18]byte)(src)
		lookup(y[:], b[2:18], numfmt.F16ToF32(le.Uint16(b[0:])), &iq4Levels)
		dst, src = dst[32:], src[18:]
	}
}

// IQ4_XS: 256 elements in 8 sub-blocks of 32, each x = (d·(s − 32))·level[q]
// with 6-bit s. Block: f16 d, u16 with the high two bits of all s, 4 bytes with
// the low four in nibbles, 16 bytes of nibbles for each sub-block as in Q4_0.

func dequantizeIQ4_XS(dst []float32, src []byte) {
	for len(dst) >= 256 {
		y, b := (*[256]float32)(dst), (*[136]byte)(src)
		d, high := numfmt.F16ToF32(le.Uint16(b[0:])), le.Uint16(b[2:])
		for j := range 8 {
			s := int32(nibble(b[4:8], j)) | int32(high>>(2*j)&3<<4)
			lookup(y[32*j:32*j+32], b[8+16*j:24+16*j], d*float32(s-32), &iq4Levels)
		}
		dst, src = dst[256:], src[136:]
	}
}

// nibble returns the j-th 4-bit number of b. The low half of a byte comes first.
func nibble(b []byte, j int) byte { return b[j/2] >> (j % 2 * 4) & 15 }
