// Command unpacked generates the AVX2 kernels for weights in the layout of the file: dequantizers of types
// that are never packed, with the bits of gguf/quant, and products of rows of float32.
package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pesti/exec/cpu/kernel/_asm/constant"
)

const vector = 32 // bytes

func main() {
	ConstraintExpr("!purego")
	iq4 := levels("iq4Levels", -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
	e2m1 := levels("e2m1Levels", 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
	dequantizer("IQ4_NL", 32, 18, func(b block) {
		n := b.nibbles(iq4)
		d := b.half(0)
		n.write(b.src.Offset(2), 0, d)
	})
	dequantizer("MXFP4", 32, 17, func(b block) {
		n := b.nibbles(e2m1)
		n.write(b.src.Offset(1), 0, b.halfE8M0())
	})
	dequantizer("NVFP4", 64, 36, nvfp4(e2m1))
	dequantizer("IQ4_XS", 256, 136, iq4XS(iq4))
	dequantizer("Q2_K", 256, 84, q2K)
	dequantizer("Q3_K", 256, 110, q3K)
	dequantizer("TQ1_0", 256, 54, tq1)
	dequantizer("TQ2_0", 256, 66, tq2)
	first := func(b block) reg.VecVirtual { return b.half(0) }
	gridDequantizer("IQ2_XXS", 66, first, iq2XXS)
	gridDequantizer("IQ2_XS", 74, first, iq2XS)
	gridDequantizer("IQ2_S", 82, first, iq2S)
	gridDequantizer("IQ3_XXS", 98, first, iq3XXS)
	gridDequantizer("IQ3_S", 110, first, iq3S)
	gridDequantizer("IQ1_S", 50, first, iq1S)
	gridDequantizer("IQ1_M", 56, iq1MScale, iq1M)
	products(1)
	products(2)
	Generate()
}

// A block is the current block of a row, and the memory for its values.
type block struct {
	src, dst Mem
	room     Mem // 32 float32 on the stack: the scales and minima of types whose scales are integers times d
}

// dequantizer writes the function that converts blocks of a type to float32. body writes the code for one block.
func dequantizer(typ string, elements, bytes int, body func(b block)) {
	name := "dequantize" + typ
	TEXT(name, NOSPLIT, "func(dst *float32, src *byte, blocks int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s sets dst to the values of blocks of %d elements at src.", name, elements))
	dst, src, blocks := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("blocks"), GP64())
	b := block{src: Mem{Base: src}, dst: Mem{Base: dst}}
	if strings.HasSuffix(typ, "_K") {
		b.room = AllocLocal(128)
	}
	Label("block")
	SUBQ(Imm(1), blocks)
	JL(LabelRef("done"))
	body(b)
	ADDQ(U32(uint32(bytes)), src)
	ADDQ(U32(uint32(4*elements)), dst)
	JMP(LabelRef("block"))
	Label("done")
	VZEROUPPER()
	RET()
}

// half returns a vector that repeats the float16 number at an offset of the block.
func (b block) half(at int) reg.VecVirtual {
	bits, d := GP32(), YMM()
	MOVWLZX(b.src.Offset(at), bits)
	VMOVD(bits, d.AsX())
	VCVTPH2PS(d.AsX(), d.AsX())
	VBROADCASTSS(d.AsX(), d)
	return d
}

// halfE8M0 returns a vector that repeats 2^(e−128) for the first byte e of the block. As a float32 it has the
// exponent bits e−1. For e = 0 and 1 it is subnormal, with the bits 2^21 and 2^22.
func (b block) halfE8M0() reg.VecVirtual {
	e, small, d := GP32(), GP32(), YMM()
	MOVBLZX(b.src, e)
	MOVL(e, small)
	ADDL(Imm(1), small)
	SHLL(Imm(21), small)
	SUBL(Imm(1), e)
	SHLL(Imm(23), e)
	CMPL(small, U32(3<<21))
	CMOVLCS(small, e)
	VMOVD(e, d.AsX())
	VBROADCASTSS(d.AsX(), d)
	return d
}

// sixteen stores scale·x − low for 16 signed bytes x, from element at on. low may be nil.
func (b block) sixteen(at int, x, scale reg.VecVirtual, low reg.Register) {
	for i := range 2 {
		v := YMM()
		if i > 0 {
			VPSRLDQ(Imm(8), x, x)
		}
		VPMOVSXBD(x, v)
		VCVTDQ2PS(v, v)
		VMULPS(scale, v, v)
		if low != nil {
			VSUBPS(low, v, v)
		}
		VMOVUPS(v, b.dst.Offset(4*at+vector*i))
	}
}

// levels puts a table of 16 signed bytes into read-only memory.
func levels(name string, table ...int8) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i, level := range table {
		DATA(i, I8(level))
	}
	return m
}

// A nibbles looks up nibbles in a table of 16 values.
type nibbles struct {
	block
	table, mask reg.VecVirtual
}

func (b block) nibbles(table Mem) nibbles {
	n := nibbles{b, XMM(), XMM()}
	VMOVDQU(table, n.table)
	VMOVDQU(constant.Bytes(15), n.mask)
	return n
}

// write stores the 32 values of 16 bytes from element at on, those of the low nibbles first.
func (n nibbles) write(src Mem, at int, scale reg.VecVirtual) {
	q, high := XMM(), XMM()
	VMOVDQU(src, q)
	VPSRLW(Imm(4), q, high)
	for i, q := range []reg.VecVirtual{q, high} {
		VPAND(n.mask, q, q)
		VPSHUFB(q, n.table, q)
		n.sixteen(at+16*i, q, scale, nil)
	}
}

// iq4XS: each of eight parts has a 6-bit scale. Its low four bits are a nibble of the dword at 4, its high two bits
// are in the word at 2.
func iq4XS(table Mem) func(b block) {
	return func(b block) {
		n := b.nibbles(table)
		d := b.half(0)
		low, high := GP32(), GP32()
		MOVL(b.src.Offset(4), low)
		MOVWLZX(b.src.Offset(2), high)
		for j := range 8 {
			s, part := GP32(), GP32()
			MOVL(low, s)
			ANDL(Imm(15), s)
			MOVL(high, part)
			ANDL(Imm(3), part)
			SHLL(Imm(4), part)
			ORL(part, s)
			SUBL(Imm(32), s)
			SHRL(Imm(4), low)
			SHRL(Imm(2), high)
			scale := YMM()
			VPXOR(scale.AsX(), scale.AsX(), scale.AsX())
			VCVTSI2SSL(s, scale.AsX(), scale.AsX())
			VMULSS(d.AsX(), scale.AsX(), scale.AsX())
			VBROADCASTSS(scale.AsX(), scale)
			n.write(b.src.Offset(8+16*j), 32*j, scale)
		}
	}
}

// nvfp4: each of four parts has an E4M3 number without sign, half of which is its scale. Shifted by 7, its bits are a
// float16 number that is 128 times too small. The first 8 elements of a part are the low nibbles of its 8 bytes.
func nvfp4(table Mem) func(b block) {
	return func(b block) {
		n := b.nibbles(table)
		scales, nan := XMM(), XMM()
		VPMOVZXBW(b.src, scales)
		VPCMPEQW(constant.Bits32(0x7f*0x10001), scales, nan) // NaN counts as 0
		VPAND(constant.Bits32(0x7f*0x10001), scales, scales)
		VPANDN(scales, nan, scales)
		VPSLLW(Imm(7), scales, scales)
		VCVTPH2PS(scales, scales)
		for j := range 4 {
			scale, q, high := YMM(), XMM(), XMM()
			VPERMILPS(Imm(uint64(j*0x55)), scales, scale.AsX())
			VMULSS(constant.Float32(128), scale.AsX(), scale.AsX())
			VBROADCASTSS(scale.AsX(), scale)
			VMOVQ(b.src.Offset(4+8*j), q)
			VPSRLW(Imm(4), q, high)
			VPUNPCKLQDQ(high, q, q)
			VPAND(n.mask, q, q)
			VPSHUFB(q, n.table, q)
			b.sixteen(16*j, q, scale, nil)
		}
	}
}

// tq1: a byte is a fraction in base 3, and each digit is an element plus 1. The first 48 bytes have five digits each,
// the last 4 have four.
func tq1(b block) {
	d := b.half(52)
	low := YMM()
	VMOVDQU(constant.Bits32(255*0x10001), low)
	digits := func(from, to, step, n int) {
		w, three := YMM(), YMM()
		VPMOVZXBW(b.src.Offset(from), w)
		for k := range n {
			VPADDW(w, w, three)
			VPADDW(w, three, three)
			digit, upper := YMM(), XMM()
			VPSRLW(Imm(8), three, digit)
			VPAND(low, three, w)
			VEXTRACTI128(Imm(1), digit, upper)
			VPACKSSWB(upper, digit.AsX(), digit.AsX())
			VPSUBB(constant.Bytes(1), digit.AsX(), digit.AsX())
			b.sixteen(to+step*k, digit.AsX().(reg.VecVirtual), d, nil)
		}
	}
	digits(0, 0, 32, 5)
	digits(16, 16, 32, 5)
	digits(32, 160, 16, 5)
	w, three := XMM(), XMM()
	VPMOVZXBD(b.src.Offset(48), w)
	for k := range 4 {
		digit := XMM()
		VPADDD(w, w, three)
		VPADDD(w, three, three)
		VPSRLD(Imm(8), three, digit)
		VPAND(constant.Bits32(255), three, w)
		VPSUBD(constant.Bits32(1), digit, digit)
		VCVTDQ2PS(digit, digit)
		VMULPS(d.AsX(), digit, digit)
		VMOVUPS(digit, b.dst.Offset(4*(240+4*k)))
	}
}

// tq2: elements are pairs of bits, stored as in Q2_K. A pair is an element plus 1.
func tq2(b block) {
	d := b.half(64)
	b.pairs(0, func(j int, q reg.VecVirtual) {
		VPSUBB(constant.Bytes(1), q, q)
		b.sixteen(16*j, q, d, nil)
	})
}

// keep stores d times 16 signed bytes in the block's room, from index at on.
func (b block) keep(x, d reg.VecVirtual, at int) {
	room := block{dst: b.room}
	room.sixteen(at, x, d, nil)
}

// kept returns a vector that repeats number at of the block's room.
func (b block) kept(at int) reg.VecVirtual {
	v := YMM()
	VBROADCASTSS(b.room.Offset(4*at), v)
	return v
}

// pairs calls f for every 16 elements of a type that stores pairs of bits as Q2_K does. q has the pairs as bytes.
// Elements 128·h to 128·h+127 share 32 bytes: sub-block j of 16 elements takes bits 2·(j/2 mod 4) and the next one of
// the first or second 16 bytes, as j is even or odd.
func (b block) pairs(at int, f func(j int, q reg.VecVirtual)) {
	mask := XMM()
	VMOVDQU(constant.Bytes(3), mask)
	for j := range 16 {
		q := XMM()
		VMOVDQU(b.src.Offset(at+32*(j/8)+16*(j%2)), q)
		if shift := j / 2 % 4 * 2; shift > 0 {
			VPSRLW(Imm(uint64(shift)), q, q)
		}
		VPAND(mask, q, q)
		f(j, q)
	}
}

// q2K: the scales are the low nibbles of the first 16 bytes, and the minima the high ones.
func q2K(b block) {
	s, m := XMM(), XMM()
	VMOVDQU(b.src, s)
	VPSRLW(Imm(4), s, m)
	for i, v := range []reg.VecVirtual{s, m} {
		VPAND(constant.Bytes(15), v, v)
		b.keep(v, b.half(80+2*i), 16*i)
	}
	b.pairs(16, func(j int, q reg.VecVirtual) { b.sixteen(16*j, q, b.kept(j), b.kept(16+j)) })
}

// q3K: a scale has six bits. The low four are nibbles of 8 bytes. The high two of scale j follow, in bits 2·(j/4) and
// 2·(j/4)+1 of byte j mod 4.
func q3K(b block) {
	scales, high, part := XMM(), XMM(), XMM()
	VMOVQ(b.src.Offset(96), scales)
	VPSRLW(Imm(4), scales, part)
	VPUNPCKLQDQ(part, scales, scales)
	VPAND(constant.Bytes(15), scales, scales)
	VPBROADCASTD(b.src.Offset(104), high)
	VPSRLVD(q3KShifts(), high, high)
	VPAND(constant.Bytes(3), high, high)
	VPSLLW(Imm(4), high, high)
	VPOR(high, scales, scales)
	VPSUBB(constant.Bytes(32), scales, scales)
	b.keep(scales, b.half(108), 0)
	// If an element's third bit is not set, 4 is subtracted.
	third := XMM()
	VMOVDQU(constant.Bytes(4), third)
	b.pairs(32, func(j int, q reg.VecVirtual) {
		h := XMM()
		VMOVDQU(b.src.Offset(16*(j%2)), h)
		switch bit := j / 2; {
		case bit < 2:
			VPSLLW(Imm(uint64(2-bit)), h, h)
		case bit > 2:
			VPSRLW(Imm(uint64(bit-2)), h, h)
		}
		VPANDN(third, h, h)
		VPSUBB(h, q, q)
		b.sixteen(16*j, q, b.kept(j), nil)
	})
}

func q3KShifts() Mem {
	m := GLOBL("q3KShifts", RODATA|NOPTR)
	for i := range 4 {
		DATA(4*i, U32(uint32(2*i)))
	}
	return m
}

// products writes the kernel that multiplies four rows by one or two tokens. Each product has eight partial sums, which
// are added at the end in the same order for any number of tokens.
func products(tokens int) {
	const rows = 4
	name := fmt.Sprintf("rowF32_t%d", tokens)
	TEXT(name, NOSPLIT, "func(y *float32, yStep int, w *float32, wStep int, x *float32, xStep int, k int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s adds to %d × 4 float32, yStep bytes apart, the products of 4 rows at w, wStep bytes apart, with %d rows at x, xStep bytes apart, of k float32, a multiple of 8.", name, tokens, tokens))
	y, yStep := Load(Param("y"), GP64()), Load(Param("yStep"), GP64())
	w, wStep := Load(Param("w"), GP64()), Load(Param("wStep"), GP64())
	x, xStep := Load(Param("x"), GP64()), Load(Param("xStep"), GP64())
	k := Load(Param("k"), GP64())
	third := GP64() // offset of the last row
	LEAQ(Mem{Base: wStep, Index: wStep, Scale: 2}, third)
	w4 := [rows]Mem{{Base: w}, {Base: w, Index: wStep, Scale: 1}, {Base: w, Index: wStep, Scale: 2}, {Base: w, Index: third, Scale: 1}}
	x2, y2 := []Mem{{Base: x}, {Base: x, Index: xStep, Scale: 1}}[:tokens], []Mem{{Base: y}, {Base: y, Index: yStep, Scale: 1}}
	var sum [2][rows]reg.VecVirtual
	for t := range tokens {
		for r := range rows {
			sum[t][r] = YMM()
			VXORPS(sum[t][r], sum[t][r], sum[t][r])
		}
	}
	Label("next")
	SUBQ(Imm(8), k)
	JL(LabelRef("done"))
	var v [2]reg.VecVirtual
	for t, x := range x2 {
		v[t] = YMM()
		VMOVUPS(x, v[t])
	}
	for r := range rows {
		var row Op = w4[r]
		if tokens > 1 {
			loaded := YMM()
			VMOVUPS(row, loaded)
			row = loaded
		}
		for t := range tokens {
			VFMADD231PS(row, v[t], sum[t][r])
		}
	}
	ADDQ(Imm(vector), w)
	ADDQ(Imm(vector), x)
	JMP(LabelRef("next"))
	Label("done")
	for t := range tokens {
		s := sum[t]
		VHADDPS(s[1], s[0], s[0])
		VHADDPS(s[3], s[2], s[2])
		VHADDPS(s[2], s[0], s[0])
		VEXTRACTF128(Imm(1), s[0], s[1].AsX())
		VADDPS(s[1].AsX(), s[0].AsX(), s[0].AsX())
		VADDPS(y2[t], s[0].AsX(), s[0].AsX())
		VMOVUPS(s[0].AsX(), y2[t])
	}
	VZEROUPPER()
	RET()
}
