package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

type vec = reg.VecVirtual

func vectors(n int) []vec { return avx2.vectors(n) }

func widen(w width) {
	function("widen"+w.set, "func(dst *float32, src *uint16, n int)")
	Doc(fmt.Sprintf("widen%s sets n elements of dst, a multiple of %d, to the values of float16 numbers.", w.set, w.lanes()))
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	at := GP64()
	XORQ(at, at)
	Label("next")
	CMPQ(at, n)
	JGE(LabelRef("done"))
	v := w.vec()
	VCVTPH2PS(Mem{Base: src, Index: at, Scale: 2}, v)
	VMOVUPS(v, Mem{Base: dst, Index: at, Scale: 4})
	ADDQ(Imm(uint64(w.lanes())), at)
	JMP(LabelRef("next"))
	Label("done")
	VZEROUPPER()
	RET()
}

func narrow(w width) {
	function("narrow"+w.set, "func(dst *uint16, src *float32, n int)")
	Doc(fmt.Sprintf("narrow%s sets n elements of dst, a multiple of %d, to the float16 numbers nearest to src, ties to even.", w.set, w.lanes()))
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	at := GP64()
	XORQ(at, at)
	Label("next")
	CMPQ(at, n)
	JGE(LabelRef("done"))
	v := w.vec()
	VMOVUPS(Mem{Base: src, Index: at, Scale: 4}, v)
	VCVTPS2PH(Imm(0), v, Mem{Base: dst, Index: at, Scale: 2})
	ADDQ(Imm(uint64(w.lanes())), at)
	JMP(LabelRef("next"))
	Label("done")
	VZEROUPPER()
	RET()
}

// q8Keys writes the kernel for keys, which are stored by element: the 16 positions of an element are adjacent, and each
// position has its own scale.
func q8Keys() {
	function("q8KeysAVX2", "func(tile *float32, part *byte, groups int)")
	Doc("q8KeysAVX2 sets tile [groups·32][16] to the keys of groups, each with scales float16[16] and q int8[32][16].")
	tile, part, groups := Load(Param("tile"), GP64()), Load(Param("part"), GP64()), Load(Param("groups"), GP64())
	Label("group")
	TESTQ(groups, groups)
	JE(LabelRef("done"))
	scale, q, left := vectors(2), vectors(2), GP64()
	for i := range scale {
		VCVTPH2PS(Mem{Base: part, Disp: 16 * i}, scale[i])
	}
	ADDQ(Imm(32), part)
	MOVQ(U32(32), left)
	Label("element")
	for i := range q {
		VPMOVSXBD(Mem{Base: part, Disp: 8 * i}, q[i])
		VCVTDQ2PS(q[i], q[i])
		VMULPS(scale[i], q[i], q[i])
		VMOVUPS(q[i], Mem{Base: tile, Disp: vector * i})
	}
	ADDQ(Imm(16), part)
	ADDQ(Imm(2*vector), tile)
	DECQ(left)
	JNE(LabelRef("element"))
	DECQ(groups)
	JMP(LabelRef("group"))
	Label("done")
	VZEROUPPER()
	RET()
}

func q8Values() {
	function("q8ValuesAVX2", "func(row *float32, blocks *byte, n int)")
	Doc("q8ValuesAVX2 sets row to the values of n blocks of 32 elements, each with a scale float16 and q int8[32].")
	row, block, n := Load(Param("row"), GP64()), Load(Param("blocks"), GP64()), Load(Param("n"), GP64())
	Label("block")
	TESTQ(n, n)
	JE(LabelRef("done"))
	half, scale, q := GP32(), YMM(), vectors(4)
	MOVWLZX(Mem{Base: block}, half)
	VMOVD(half, scale.AsX())
	VCVTPH2PS(scale.AsX(), scale.AsX())
	VBROADCASTSS(scale.AsX(), scale)
	for i := range q {
		VPMOVSXBD(Mem{Base: block, Disp: 2 + 8*i}, q[i])
		VCVTDQ2PS(q[i], q[i])
		VMULPS(scale, q[i], q[i])
		VMOVUPS(q[i], Mem{Base: row, Disp: vector * i})
	}
	ADDQ(Imm(34), block)
	ADDQ(U32(4*vector), row)
	DECQ(n)
	JMP(LabelRef("block"))
	Label("done")
	VZEROUPPER()
	RET()
}
