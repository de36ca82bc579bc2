package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pesti/exec/cpu/kernel/_asm/constant"
)

// A gridBlock is a block of a type whose elements are points of a grid. A point has four or eight signed bytes. The
// code visits eight parts of 32 elements. Each field of a block has the same number of bytes for every part, in order.
type gridBlock struct {
	block
	part, grid reg.GPVirtual // number of the part; address of the grid
	shifts     reg.VecVirtual
	d          reg.VecVirtual // the scale of the block
}

// gridDequantizer is dequantizer for these types. d writes the code that loads the scale of a block, and body the code
// that converts one part.
func gridDequantizer(typ string, bytes int, d func(b block) reg.VecVirtual, body func(b gridBlock)) {
	name := "dequantize" + typ
	TEXT(name, NOSPLIT, "func(dst *float32, src *byte, grid *int8, blocks int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s sets dst to the values of blocks of 256 elements at src, whose points are in grid.", name))
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	b := gridBlock{block: block{src: Mem{Base: src}, dst: Mem{Base: dst}}, part: GP64(), grid: GP64(), shifts: YMM()}
	Load(Param("grid"), b.grid)
	blocks := Load(Param("blocks"), GP64())
	VMOVDQU(signShifts(), b.shifts)
	Label("block")
	SUBQ(Imm(1), blocks)
	JL(LabelRef("done"))
	b.d = d(b.block)
	XORQ(b.part, b.part)
	Label("part")
	body(b)
	ADDQ(U32(4*32), dst)
	INCQ(b.part)
	CMPQ(b.part, Imm(8))
	JL(LabelRef("part"))
	ADDQ(U32(uint32(bytes)), src)
	JMP(LabelRef("block"))
	Label("done")
	VZEROUPPER()
	RET()
}

// signShifts are the shifts that move bit i of a byte to the sign bit of element i.
func signShifts() Mem {
	if m, ok := tables["signShifts"]; ok {
		return m
	}
	m := GLOBL("signShifts", RODATA|NOPTR)
	for i := range 8 {
		DATA(4*i, U32(uint32(31-i)))
	}
	tables["signShifts"] = m
	return m
}

var tables = map[string]Mem{}

// of returns the address of the part's bytes in the field at offset at. A part has 1, 2, 4 or 8 bytes of a field.
func (b gridBlock) of(at int, bytes uint8) Mem { return b.src.Offset(at).Idx(b.part, bytes) }

// byteAt, wordAt and longAt load numbers of 8, 16 and 32 bits.
func byteAt(m Mem) reg.GPVirtual { r := GP64(); MOVBQZX(m, r); return r }
func wordAt(m Mem) reg.GPVirtual { r := GP64(); MOVWQZX(m, r); return r }
func longAt(m Mem) reg.GPVirtual { r := GP64(); MOVL(m, r.As32()); return r }

// bits returns n bits of r, from bit from on, shifted left by up.
func bits(r reg.GPVirtual, from, n, up int) reg.GPVirtual {
	v := GP64()
	MOVQ(r, v)
	if from > 0 {
		SHRQ(Imm(uint64(from)), v)
	}
	ANDQ(U32(uint32(1)<<n-1), v)
	if up > 0 {
		SHLQ(Imm(uint64(up)), v)
	}
	return v
}

// even adds the eighth of eight signs: the number of set bits is even.
func even(seven reg.GPVirtual) reg.GPVirtual {
	odd := GP64()
	XORQ(odd, odd)
	TESTQ(seven, seven)
	SETPC(odd.As8())
	SHLQ(Imm(7), odd)
	ORQ(odd, seven)
	return seven
}

// scale returns a vector that repeats d·(s + plus)·times. Each operation rounds.
func (b gridBlock) scale(s reg.GPVirtual, plus, times float32) reg.VecVirtual {
	v := YMM()
	VPXOR(v.AsX(), v.AsX(), v.AsX())
	VCVTSI2SSQ(s, v.AsX(), v.AsX())
	if plus != 0 {
		VADDSS(constant.Float32(plus), v.AsX(), v.AsX())
	}
	VMULSS(b.d.AsX(), v.AsX(), v.AsX())
	if times != 1 {
		VMULSS(constant.Float32(times), v.AsX(), v.AsX())
	}
	VBROADCASTSS(v.AsX(), v)
	return v
}

// eight returns eight elements as float32: one point of eight elements, or two points of four.
func (b gridBlock) eight(indices ...reg.GPVirtual) reg.VecVirtual {
	v := YMM()
	if len(indices) == 1 {
		VPMOVSXBD(Mem{Base: b.grid, Index: indices[0], Scale: 8}, v)
	} else {
		VMOVD(Mem{Base: b.grid, Index: indices[0], Scale: 4}, v.AsX())
		VPINSRD(Imm(1), Mem{Base: b.grid, Index: indices[1], Scale: 4}, v.AsX(), v.AsX())
		VPMOVSXBD(v.AsX(), v)
	}
	VCVTDQ2PS(v, v)
	return v
}

// signed stores eight elements of the part, from element 8·k on: scale·v, with the sign flipped where a bit of signs is
// set.
func (b gridBlock) signed(k int, v, scale reg.VecVirtual, signs reg.GPVirtual) {
	s := YMM()
	VMULPS(scale, v, v)
	VMOVD(signs.As32(), s.AsX())
	VPBROADCASTD(s.AsX(), s)
	VPSLLVD(b.shifts, s, s)
	VPAND(constant.Bits32(1<<31), s, s)
	VPXOR(s, v, v)
	VMOVUPS(v, b.dst.Offset(vector*k))
}

// iq2XXS: a part has four indices and a dword with four times seven signs and a 4-bit scale.
func iq2XXS(b gridBlock) {
	word := longAt(b.of(6, 8))
	scale := b.scale(bits(word, 28, 4, 0), 0.5, 0.25)
	for k := range 4 {
		b.signed(k, b.eight(byteAt(b.of(2+k, 8))), scale, even(bits(word, 7*k, 7, 0)))
	}
}

// iq2XS: a part has four words, each with an index and seven signs, and a byte with two scales.
func iq2XS(b gridBlock) {
	s := byteAt(b.of(66, 1))
	var scale reg.VecVirtual
	for k := range 4 {
		if k%2 == 0 {
			scale = b.scale(bits(s, 2*k, 4, 0), 0.5, 0.25)
		}
		word := wordAt(b.of(2+2*k, 8))
		b.signed(k, b.eight(bits(word, 0, 9, 0)), scale, even(bits(word, 9, 7, 0)))
	}
}

// iq2S: a part has four bytes of indices, a byte with their high bits, four bytes of signs, and a byte with two scales.
func iq2S(b gridBlock) {
	s, high := byteAt(b.of(74, 1)), byteAt(b.of(66, 1))
	var scale reg.VecVirtual
	for k := range 4 {
		if k%2 == 0 {
			scale = b.scale(bits(s, 2*k, 4, 0), 0.5, 0.25)
		}
		index := bits(high, 2*k, 2, 8)
		ORQ(byteAt(b.of(2+k, 4)), index)
		b.signed(k, b.eight(index), scale, byteAt(b.of(34+k, 4)))
	}
}

// iq3XXS: a part has eight indices, and a dword as in IQ2_XXS.
func iq3XXS(b gridBlock) {
	word := longAt(b.of(66, 4))
	scale := b.scale(bits(word, 28, 4, 0), 0.5, 0.5)
	for k := range 4 {
		v := b.eight(byteAt(b.of(2+2*k, 8)), byteAt(b.of(3+2*k, 8)))
		b.signed(k, v, scale, even(bits(word, 7*k, 7, 0)))
	}
}

// iq3S: a part has eight bytes of indices, a byte with their ninth bits, four bytes of signs, and a nibble with the
// scale.
func iq3S(b gridBlock) {
	high, half := byteAt(b.of(66, 1)), bits(b.part, 1, 3, 0)
	both := byteAt(b.src.Offset(106).Idx(half, 1))
	s, second := bits(both, 0, 4, 1), bits(both, 4, 4, 1)
	TESTQ(U32(1), b.part)
	CMOVQNE(second, s)
	scale := b.scale(odd(s), 0, 1)
	for k := range 4 {
		var indices []reg.GPVirtual
		for i := 2 * k; i < 2*k+2; i++ {
			index := bits(high, i, 1, 8)
			ORQ(byteAt(b.of(2+i, 8)), index)
			indices = append(indices, index)
		}
		b.signed(k, b.eight(indices...), scale, byteAt(b.of(74+k, 4)))
	}
}

// iq1S: a part has four bytes of indices, and a word with their high bits, a 3-bit scale, and the sign of the ⅛ that is
// added to points.
func iq1S(b gridBlock) {
	word := wordAt(b.of(34, 2))
	scale := b.scale(odd(bits(word, 12, 3, 1)), 0, 1)
	by := eighth(bits(word, 15, 1, 31))
	for k := range 4 {
		index := bits(word, 3*k, 3, 8)
		ORQ(byteAt(b.of(2+k, 4)), index)
		b.moved(k, b.eight(index), scale, by)
	}
}

// iq1M: a part has four bytes of indices and half of a word with two 3-bit scales. Two more bytes have a nibble for each
// index: its high bits, and the sign of the ⅛ that is added to its point.
func iq1M(b gridBlock) {
	half := bits(b.part, 1, 2, 0)
	s := wordAt(b.src.Offset(48).Idx(half, 2))
	later := bits(s, 6, 6, 0)
	TESTQ(U32(1), b.part)
	CMOVQNE(later, s)
	var scale reg.VecVirtual
	for k := range 4 {
		if k%2 == 0 {
			scale = b.scale(odd(bits(s, 3*(k/2), 3, 1)), 0, 1)
		}
		nibbles := byteAt(b.of(32+k/2, 2))
		index := bits(nibbles, 4*(k%2), 3, 8)
		ORQ(byteAt(b.of(k, 4)), index)
		b.moved(k, b.eight(index), scale, eighth(bits(nibbles, 4*(k%2)+3, 1, 31)))
	}
}

// iq1MScale assembles a float16 number from the high nibbles of four words, the lowest first.
func iq1MScale(b block) reg.VecVirtual {
	all, d := GP64(), YMM()
	XORQ(all, all)
	for i := range 4 {
		ORQ(bits(wordAt(b.src.Offset(48+2*i)), 12, 4, 4*i), all)
	}
	VMOVD(all.As32(), d.AsX())
	VCVTPH2PS(d.AsX(), d.AsX())
	VBROADCASTSS(d.AsX(), d)
	return d
}

// odd sets the lowest bit of r.
func odd(r reg.GPVirtual) reg.GPVirtual {
	ORQ(Imm(1), r)
	return r
}

// eighth returns a vector that repeats ±⅛. sign has the sign in bit 31.
func eighth(sign reg.GPVirtual) reg.VecVirtual {
	v := YMM()
	VMOVD(sign.As32(), v.AsX())
	VPBROADCASTD(v.AsX(), v)
	VPOR(constant.Float32(0.125), v, v)
	return v
}

// moved stores eight elements of the part, from element 8·k on: scale·(v + by).
func (b gridBlock) moved(k int, v, scale, by reg.VecVirtual) {
	VADDPS(by, v, v)
	VMULPS(scale, v, v)
	VMOVUPS(v, b.dst.Offset(vector*k))
}
