package quant

import (
	"math"

	"pesti/gguf/numfmt"
)

// A Scale is a number in a block that multiplies the elements of the block or
// of a part of it.
type Scale struct {
	// At is the offset of its first byte within the block, Bytes the number of
	// bytes that Read needs.
	At, Bytes int

	// Read returns the value stored at the start of b. It returns NaN if that is
	// what the encoding defines, even where Dequantize reads a number instead, as
	// other implementations do.
	Read func(b []byte) float32
}

// f16Scales returns scales in float16 at the given offsets.
func f16Scales(at ...int) []Scale {
	return scales(2, func(b []byte) float32 { return numfmt.F16ToF32(le.Uint16(b)) }, at...)
}

// scales returns scales in one encoding at the given offsets.
func scales(bytes int, read func(b []byte) float32, at ...int) []Scale {
	all := make([]Scale, len(at))
	for i, a := range at {
		all[i] = Scale{a, bytes, read}
	}
	return all
}

func readF32(b []byte) float32 { return math.Float32frombits(le.Uint32(b)) }

// readE8M0 reads a power of two, 2^(e−127), where 0xff is NaN (OCP Microscaling
// Formats 1.0, section 5.4.1).
func readE8M0(b []byte) float32 {
	if b[0] == 0xff {
		return float32(math.NaN())
	}
	return 2 * halfE8M0(b[0])
}

// readUE4M3 reads an E4M3 number without sign.
func readUE4M3(b []byte) float32 { return numfmt.E4M3ToF32(b[0] & 0x7f) }
