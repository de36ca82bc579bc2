// Command qblock generates the AVX2 kernels that convert a row of activations to qblocks, see planar.go.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets of the fields of a qblock, and its size.
const (
	scale  = 64
	offset = 68
	sum    = 72
	half   = 76
	size   = 80
)

func main() {
	ConstraintExpr("!purego")
	unit := GLOBL("qblockUnit", RODATA|NOPTR) // of q: hi and lo make 128 of it
	DATA(0, F32(1.0/128))
	TEXT("qblocksAVX2", NOSPLIT, "func(dst *byte, hi, lo *int8, scales *float32, sums *int32, n int)")
	Doc("qblocksAVX2 sets n qblocks to the blocks of 32 activations whose planes, scales and sums these are.")
	blocks(func(hi, lo Mem, q reg.VecVirtual) {
		low := YMM()
		VPMOVSXBW(hi, q)
		VPMOVSXBW(lo, low)
		VPSLLW(U8(7), q, q)
		VPADDW(low, q, q)
	}, func(s reg.VecVirtual) { VMULSS(unit, s, s) }, true)
	TEXT("qblocks8AVX2", NOSPLIT, "func(dst *byte, hi *int8, scales *float32, sums *int32, n int)")
	Doc("qblocks8AVX2 is qblocksAVX2 for one plane.")
	blocks(func(hi, _ Mem, q reg.VecVirtual) { VPMOVSXBW(hi, q) }, func(reg.VecVirtual) {}, false)
	Generate()
}

// blocks writes the body of a function. widen sets q to 16 activations from the planes; worth multiplies
// the scale by the weight of the low plane.
func blocks(widen func(hi, lo Mem, q reg.VecVirtual), worth func(s reg.VecVirtual), two bool) {
	dst, hi := Load(Param("dst"), GP64()), Load(Param("hi"), GP64())
	var lo reg.Register
	if two {
		lo = Load(Param("lo"), GP64())
	}
	scales, sums := Load(Param("scales"), GP64()), Load(Param("sums"), GP64())
	n := Load(Param("n"), GP64())

	Label("block")
	SUBQ(U8(1), n)
	JL(LabelRef("done"))
	for at := 0; at < 32; at += 16 {
		q := YMM()
		widen(Mem{Base: hi, Disp: at}, Mem{Base: lo, Disp: at}, q)
		// Reorder every four elements to 0, 2, 1, 3.
		VPSHUFLW(U8(0b11_01_10_00), q, q)
		VPSHUFHW(U8(0b11_01_10_00), q, q)
		VMOVDQU(q, Mem{Base: dst, Disp: 2 * at})
	}
	s, o := XMM(), XMM()
	VMOVSS(Mem{Base: scales}, s)
	worth(s)
	VMOVSS(s, Mem{Base: dst, Disp: scale})
	first, both := GP32(), GP32()
	MOVL(Mem{Base: sums}, first)
	MOVL(Mem{Base: sums, Disp: 4}, both)
	ADDL(first, both)
	MOVL(both, Mem{Base: dst, Disp: sum})
	MOVL(first, Mem{Base: dst, Disp: half})
	VPXOR(o, o, o) // the conversion keeps the high part of its destination
	VCVTSI2SSL(both, o, o)
	VMULSS(s, o, o)
	VMOVSS(o, Mem{Base: dst, Disp: offset})
	ADDQ(U8(size), dst)
	ADDQ(U8(32), hi)
	if two {
		ADDQ(U8(32), lo)
	}
	ADDQ(U8(4), scales)
	ADDQ(U8(8), sums)
	JMP(LabelRef("block"))

	Label("done")
	VZEROUPPER()
	RET()
}
