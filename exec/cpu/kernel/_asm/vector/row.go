package main

import (
	"fmt"
	"math"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pesti/exec/cpu/kernel/_asm/constant"
)

// sumSquares has the bits of the portable loop: a product of two float32 is exact in float64, so that a fused
// multiply-add rounds as a product and a sum do.
func sumSquares() {
	function("sumSquaresAVX2", "func(sums *[4]float64, x *float32, n int)")
	Doc("sumSquaresAVX2 sets sums[i] to the sum of the squares of elements i, i+4, … of n, a multiple of 4.")
	sums, x, n := Load(Param("sums"), GP64()), Load(Param("x"), GP64()), Load(Param("n"), GP64())
	sum, v := YMM(), YMM()
	VXORPD(sum, sum, sum)
	Label("next")
	TESTQ(n, n)
	JE(LabelRef("done"))
	VCVTPS2PD(Mem{Base: x}, v)
	VFMADD231PD(v, v, sum)
	ADDQ(Imm(16), x)
	SUBQ(Imm(4), n)
	JMP(LabelRef("next"))
	Label("done")
	VMOVUPD(sum, Mem{Base: sums})
	VZEROUPPER()
	RET()
}

// normalize rounds to float32 once, after both factors.
func normalize(w width, add bool) {
	name, signature, in, what := "normalize", "func(y, x, w *float32, scale float64, n int)", "x", "x·scale·w"
	if add {
		name, signature, in, what = "normalizeAdd", "func(y, x, d, w *float32, scale float64, n int)", "d", "x + d·scale·w"
	}
	name += w.set
	elements := w.bytes / 8
	function(name, signature)
	Doc(fmt.Sprintf("%s sets n elements of y, a multiple of %d, to %s.", name, elements, what))
	y, x, factors, n := Load(Param("y"), GP64()), Load(Param(in), GP64()), Load(Param("w"), GP64()), Load(Param("n"), GP64())
	residual := x
	if add {
		residual = Load(Param("x"), GP64())
	}
	scale, at := w.vec(), GP64()
	value, err := Param("scale").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSD(value.Addr, scale)
	XORQ(at, at)
	Label("next")
	CMPQ(at, n)
	JGE(LabelRef("done"))
	v, f := w.vec(), w.vec()
	VCVTPS2PD(Mem{Base: x, Index: at, Scale: 4}, v)
	VCVTPS2PD(Mem{Base: factors, Index: at, Scale: 4}, f)
	VMULPD(scale, v, v)
	VMULPD(f, v, v)
	var out vec
	if w.bytes == avx2.bytes {
		out = XMM()
		VCVTPD2PSY(v, out)
	} else {
		out = YMM()
		VCVTPD2PS(v, out)
	}
	if add {
		VADDPS(Mem{Base: residual, Index: at, Scale: 4}, out, out)
	}
	VMOVUPS(out, Mem{Base: y, Index: at, Scale: 4})
	ADDQ(Imm(uint64(elements)), at)
	JMP(LabelRef("next"))
	Label("done")
	VZEROUPPER()
	RET()
}

// packedOrder returns the permutation of dwords that restores the order after two packs, which work within 128-bit
// halves.
func packedOrder() Mem {
	order := GLOBL("packed", RODATA|NOPTR)
	for i, from := range []uint32{0, 4, 1, 5, 2, 6, 3, 7} {
		DATA(4*i, U32(from))
	}
	return order
}

// quantize writes a kernel with the results of numfmt.QuantizeQ8x2 or numfmt.QuantizeQ8. most is the largest q: if an
// int8 holds it, there is one plane, otherwise two.
func quantize(w width, format string, most float32, order Mem) {
	name := "quantize" + strings.ToUpper(format[:1]) + format[1:] + w.set
	names := []string{"hi", "lo"}
	if most <= math.MaxInt8 {
		names = []string{"q"}
	}
	function(name, "func("+strings.Join(names, ", ")+" *byte, scale, sum, x *float32, blocks int)")
	Doc(fmt.Sprintf("%s stores blocks of 32 elements as the arrays of a %s row; sum holds int32.", name, format))
	planes := make([]reg.Register, len(names))
	for i, name := range names {
		planes[i] = Load(Param(name), GP64())
	}
	scale, sum := Load(Param("scale"), GP64()), Load(Param("sum"), GP64())
	x, blocks := Load(Param("x"), GP64()), Load(Param("blocks"), GP64())
	var unpacked vec
	if w.bytes == avx2.bytes {
		unpacked = YMM()
		VMOVDQU(order, unpacked)
	}
	const infinity = 0x7f800000

	Label("block")
	TESTQ(blocks, blocks)
	JE(LabelRef("done"))
	v := w.vectors(128 / w.bytes)
	top, part := w.vec(), w.vec()
	for i := range v {
		VMOVUPS(Mem{Base: x, Disp: i * w.bytes}, v[i])
		if i == 0 {
			w.and(constant.Bits32(sign-1), v[i], top)
			continue
		}
		w.and(constant.Bits32(sign-1), v[i], part)
		VPMAXSD(part, top, top) // the bits of magnitudes have the order of the magnitudes, with NaN highest
	}
	if w.bytes == avx512.bytes {
		VEXTRACTI64X4(Imm(1), top, part.AsY())
		VPMAXSD(part.AsY(), top.AsY(), top.AsY())
	}
	VEXTRACTI128(Imm(1), top.AsY(), part.AsX())
	VPMAXSD(part.AsX(), top.AsX(), top.AsX())
	VPSHUFD(Imm(0x4e), top.AsX(), part.AsX())
	VPMAXSD(part.AsX(), top.AsX(), top.AsX())
	VPSHUFD(Imm(0xb1), top.AsX(), part.AsX())
	VPMAXSD(part.AsX(), top.AsX(), top.AsX())
	bits, s := GP32(), GP32()
	VMOVD(top.AsX(), bits)
	MOVL(U32(0x7fc00000), s) // NaN
	CMPL(bits, U32(infinity))
	JAE(LabelRef("nothing"))
	inverse, step := w.vec(), XMM()
	VMOVSS(constant.Float32(most), inverse.AsX())
	VDIVSS(top.AsX(), inverse.AsX(), inverse.AsX())
	VMOVD(inverse.AsX(), bits)
	XORL(s, s)
	CMPL(bits, U32(infinity))
	JE(LabelRef("nothing"))
	VDIVSS(constant.Float32(127), top.AsX(), step)
	VMOVSS(step, Mem{Base: scale})

	VBROADCASTSS(inverse.AsX(), inverse)
	for i := range v {
		VMULPS(inverse, v[i], v[i])
		VCVTPS2DQ(v[i], v[i])
	}
	sums := vectors(2)
	if w.bytes == avx2.bytes {
		VPADDD(v[0], v[1], sums[0])
		VPADDD(v[2], v[3], sums[1])
	} else {
		for i := range sums {
			VEXTRACTI64X4(Imm(1), v[i], sums[i])
			VPADDD(v[i].AsY(), sums[i], sums[i])
		}
	}
	VPHADDD(sums[1], sums[0], sums[0])
	VPHADDD(sums[0], sums[0], sums[0])
	VEXTRACTI128(Imm(1), sums[0], sums[1].AsX())
	VPADDD(sums[1].AsX(), sums[0].AsX(), sums[0].AsX())
	VMOVQ(sums[0].AsX(), Mem{Base: sum})
	values := [][]vec{v}
	if len(planes) == 2 {
		h := w.vectors(len(v))
		for i := range v { // q = 128·h + rest, and v becomes the rest
			VPADDD(constant.Bits32(64), v[i], h[i])
			VPSRAD(Imm(7), h[i], h[i])
			VPSLLD(Imm(7), h[i], part)
			VPSUBD(part, v[i], v[i])
		}
		values = [][]vec{h, v}
	}
	for i, v := range values {
		if w.bytes == avx512.bytes {
			for j := range v {
				VPMOVSDB(v[j], Mem{Base: planes[i], Disp: j * w.lanes()})
			}
			continue
		}
		VPACKSSDW(v[1], v[0], v[0])
		VPACKSSDW(v[3], v[2], v[2])
		VPACKSSWB(v[2], v[0], v[0])
		VPERMD(v[0], unpacked, v[0])
		VMOVDQU(v[0], Mem{Base: planes[i]})
	}
	JMP(LabelRef("next"))

	Label("nothing")
	MOVL(s, Mem{Base: scale})
	zero := YMM()
	VPXOR(zero, zero, zero)
	for _, plane := range planes {
		VMOVDQU(zero, Mem{Base: plane})
	}
	VMOVQ(zero.AsX(), Mem{Base: sum})

	Label("next")
	for _, plane := range planes {
		ADDQ(Imm(32), plane)
	}
	ADDQ(Imm(4), scale)
	ADDQ(Imm(8), sum)
	ADDQ(U32(128), x)
	DECQ(blocks)
	JMP(LabelRef("block"))
	Label("done")
	VZEROUPPER()
	RET()
}
