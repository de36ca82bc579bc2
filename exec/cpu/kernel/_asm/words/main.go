// Command words generates the AVX2 kernels that convert a row of activations to words. planar.go describes both forms.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("!purego")
	TEXT("wordsAVX2", NOSPLIT, "func(dst *int16, hi, lo *int8, n int)")
	Doc("wordsAVX2 sets dst to n·32 activations, whose planes are hi and lo, as words.")
	convert([]string{"hi", "lo"}, func(planes []Mem, q reg.VecVirtual) {
		low := YMM()
		VPMOVSXBW(planes[0], q)
		VPMOVSXBW(planes[1], low)
		VPSLLW(U8(7), q, q)
		VPADDW(low, q, q)
	})
	TEXT("words8AVX2", NOSPLIT, "func(dst *int16, hi *int8, n int)")
	Doc("words8AVX2 is wordsAVX2 for one plane.")
	convert([]string{"hi"}, func(planes []Mem, q reg.VecVirtual) { VPMOVSXBW(planes[0], q) })
	Generate()
}

// convert writes the body of a function. widen sets q to 16 activations from the planes.
func convert(params []string, widen func(planes []Mem, q reg.VecVirtual)) {
	dst := Load(Param("dst"), GP64())
	var planes []reg.Register
	for _, p := range params {
		planes = append(planes, Load(Param(p), GP64()))
	}
	n := Load(Param("n"), GP64())

	Label("block")
	SUBQ(U8(1), n)
	JL(LabelRef("done"))
	for at := 0; at < 32; at += 16 {
		var from []Mem
		for _, p := range planes {
			from = append(from, Mem{Base: p, Disp: at})
		}
		q := YMM()
		widen(from, q)
		// Reorder every four elements to 0, 2, 1, 3, so that the even ones meet the even bytes of a unit.
		VPSHUFLW(U8(0b11_01_10_00), q, q)
		VPSHUFHW(U8(0b11_01_10_00), q, q)
		VMOVDQU(q, Mem{Base: dst, Disp: 2 * at})
	}
	ADDQ(U8(64), dst)
	for _, p := range planes {
		ADDQ(U8(32), p)
	}
	JMP(LabelRef("block"))

	Label("done")
	VZEROUPPER()
	RET()
}
