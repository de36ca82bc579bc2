// Package constant puts constant vectors into read-only memory. Each repeats one value: in 64 bytes for 32-bit elements,
// so that vectors of any width can use it, and in 32 bytes for 64-bit elements.
// Equal vectors are stored once.
package constant

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

const (
	zmm = 64 // bytes
	ymm = 32
)

var (
	words   = map[uint32]Mem{}
	doubles = map[uint64]Mem{}
)

// Bytes returns the vector whose bytes are all v.
func Bytes(v uint8) Mem { return Bits32(uint32(v) * 0x01010101) }

// Float32 returns the vector whose float32 elements are all v.
func Float32(v float32) Mem { return Bits32(math.Float32bits(v)) }

// Bits32 returns the vector whose 32-bit elements are all bits.
func Bits32(bits uint32) Mem {
	m, ok := words[bits]
	if !ok {
		m = GLOBL(fmt.Sprintf("all%08x", bits), RODATA|NOPTR)
		for i := range zmm / 4 {
			DATA(4*i, U32(bits))
		}
		words[bits] = m
	}
	return m
}

// Float64 returns the vector whose float64 elements are all v.
func Float64(v float64) Mem {
	bits := math.Float64bits(v)
	m, ok := doubles[bits]
	if !ok {
		m = GLOBL(fmt.Sprintf("all%016x", bits), RODATA|NOPTR)
		for i := range ymm / 8 {
			DATA(8*i, U64(bits))
		}
		doubles[bits] = m
	}
	return m
}
