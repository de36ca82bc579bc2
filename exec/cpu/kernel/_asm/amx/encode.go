// Package amx encodes the instructions of AMX and AVX512-BF16, which the Go assembler does not support, and
// emits them as bytes. See Intel's Software Developer's Manual, volume 2. It imports nothing of this module.
package amx

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A Tile is an AMX tile register.
type Tile byte

// A Mem is the address Base + Index + Disp. Index is the stride of a tile's rows.
type Mem struct {
	Base, Index reg.GPPhysical
	Disp        int32
}

// Plus returns the address disp bytes further.
func (m Mem) Plus(disp int32) Mem { return Mem{m.Base, m.Index, m.Disp + disp} }

// number returns the number of a register in machine code.
func number(r reg.GPPhysical) byte { return byte(r.PhysicalIndex()) }

// Prefixes in the encoding of VEX and EVEX.
const (
	noPrefix = iota
	prefix66
	prefixF3
	prefixF2
)

// vex encodes an instruction of map 0F38 with registers reg, v and rm, or with m if that is not nil.
func vex(prefix, opcode, r, v, rm byte, m *Mem) []byte {
	const (
		x, b  = 0x40, 0x20 // inverted: 0 if index or base is one of R8 to R15
		map38 = 2
	)
	first := byte(0x80 | x | b | map38)
	code := []byte{opcode}
	if m == nil {
		code = append(code, 0xc0|r<<3|rm)
	} else {
		base, index := number(m.Base), byte(4) // 4 for none
		if m.Index != nil {
			index = number(m.Index)
		}
		if base >= 8 {
			first &^= b
		}
		if index >= 8 {
			first &^= x
		}
		// mod 2: a displacement of four bytes; rm 4: base and index follow.
		code = append(code, 0x80|r<<3|4, index&7<<3|base&7)
		for i := range 4 {
			code = append(code, byte(m.Disp>>(8*i)))
		}
	}
	return append([]byte{0xc4, first, ^v&15<<3 | prefix}, code...) // VEX stores v inverted
}

// LDTILECFG loads the shapes of all tiles from 64 bytes.
func LDTILECFG(m Mem) []byte { return vex(noPrefix, 0x49, 0, 0, 0, &m) }

// TILERELEASE returns the tiles to their initial state.
func TILERELEASE() []byte { return vex(noPrefix, 0x49, 0, 0, 0, nil) }

// TILEZERO clears a tile.
func TILEZERO(t Tile) []byte { return vex(prefixF2, 0x49, byte(t), 0, 0, nil) }

// TILELOADD loads a tile.
func TILELOADD(t Tile, m Mem) []byte { return vex(prefixF2, 0x4b, byte(t), 0, 0, &m) }

// TILESTORED stores a tile.
func TILESTORED(m Mem, t Tile) []byte { return vex(prefixF3, 0x4b, byte(t), 0, 0, &m) }

// TDPBF16PS multiplies pairs of bf16 of a and b and adds the products to the float32 of dst.
func TDPBF16PS(dst, a, b Tile) []byte {
	return vex(prefixF3, 0x5c, byte(dst), byte(b), byte(a), nil)
}

// TDPBSSD multiplies groups of four int8 of a and b and adds the products to the int32 of dst.
func TDPBSSD(dst, a, b Tile) []byte {
	return vex(prefixF2, 0x5e, byte(dst), byte(b), byte(a), nil)
}

// VCVTNE2PS2BF16 rounds the 16 float32 of b to bf16 in the low half of dst, and those of a in its high half.
// Registers are Z0 to Z7.
func VCVTNE2PS2BF16(dst, a, b byte) []byte {
	return []byte{0x62, 0xf2, ^a&15<<3 | 4 | prefixF2, 0x48, 0x72, 0xc0 | dst<<3 | b}
}

// Emit writes an instruction. reads are the registers that it reads: avo needs them if it allocates the
// function's registers.
func Emit(code []byte, reads ...operand.Op) {
	for _, b := range code {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []operand.Op{operand.U8(b)}, Inputs: reads})
	}
}
