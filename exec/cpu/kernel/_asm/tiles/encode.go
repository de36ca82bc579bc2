package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The Go assembler does not support AMX and AVX512-BF16, so their instructions are emitted as bytes, see
// Intel's Software Developer's Manual, volume 2. Registers are allocated by hand, because avo does not know
// the registers of such instructions.

// A tile is an AMX tile register.
type tile byte

// A mem is base + index + disp, where index is the stride of a tile's rows.
type mem struct {
	base, index reg.GPPhysical
	disp        int32
}

func (m mem) plus(disp int32) mem { return mem{m.base, m.index, m.disp + disp} }

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
func vex(prefix, opcode, r, v, rm byte, m *mem) []byte {
	const (
		x, b  = 0x40, 0x20 // inverted: 0 if index or base is one of R8 to R15
		map38 = 2
	)
	first := byte(0x80 | x | b | map38)
	code := []byte{opcode}
	if m == nil {
		code = append(code, 0xc0|r<<3|rm)
	} else {
		base, index := number(m.base), byte(4) // 4 for none
		if m.index != nil {
			index = number(m.index)
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
			code = append(code, byte(m.disp>>(8*i)))
		}
	}
	return append([]byte{0xc4, first, ^v&15<<3 | prefix}, code...)
}

func ldtilecfg(m mem) []byte          { return vex(noPrefix, 0x49, 0, 0, 0, &m) }
func tilerelease() []byte             { return vex(noPrefix, 0x49, 0, 0, 0, nil) }
func tileloadd(t tile, m mem) []byte  { return vex(prefixF2, 0x4b, byte(t), 0, 0, &m) }
func tilestored(m mem, t tile) []byte { return vex(prefixF3, 0x4b, byte(t), 0, 0, &m) }
func tdpbf16ps(dst, a, b tile) []byte { return vex(prefixF3, 0x5c, byte(dst), byte(b), byte(a), nil) }

// vcvtne2ps2bf16 rounds 16 float32 of b to the low half of dst, and those of a to its high half. All
// registers are of Z0 to Z7.
func vcvtne2ps2bf16(dst, a, b byte) []byte {
	return []byte{0x62, 0xf2, ^a&15<<3 | 4 | prefixF2, 0x48, 0x72, 0xc0 | dst<<3 | b}
}

// emit writes an instruction.
func emit(code []byte) {
	for _, b := range code {
		Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []operand.Op{operand.U8(b)}})
	}
}
