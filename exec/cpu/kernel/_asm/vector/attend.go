package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	page   = 16 // positions
	vector = 32 // bytes
	most   = 4  // queries that share a load of the tile
)

// byQueries writes body for the most queries at a time and then for what is left of n, so that
// each number of queries has its own registers.
func byQueries(n reg.GPVirtual, body func(name string, queries int)) {
	name := func(queries int) string { return fmt.Sprintf("queries%d", queries) }
	Label(name(most))
	CMPQ(n, Imm(most))
	JL(LabelRef(name(most - 1)))
	body(name(most), most)
	SUBQ(Imm(most), n)
	JMP(LabelRef(name(most)))
	for queries := most - 1; queries > 0; queries-- {
		Label(name(queries))
		CMPQ(n, Imm(uint64(queries)))
		JL(LabelRef(name(queries - 1)))
		body(name(queries), queries)
		JMP(LabelRef(name(0)))
	}
	Label(name(0))
	VZEROUPPER()
	RET()
}

// pairs returns two vectors for each query: 16 columns.
func pairs(queries int) (acc [][2]reg.VecVirtual) {
	for range queries {
		acc = append(acc, [2]reg.VecVirtual{YMM(), YMM()})
	}
	return acc
}

// scores has a column of sums for each position, so that none is ever added across a vector, and
// each is added up from the first element of a head to the last.
func scores() {
	function("scoresAVX2", "func(scores, x, tile *float32, n, d int)")
	Doc("scoresAVX2 sets scores [n][16] to the products of x [n][d] and the columns of tile [d][16].")
	out, x, tile := Load(Param("scores"), GP64()), Load(Param("x"), GP64()), Load(Param("tile"), GP64())
	n, d := Load(Param("n"), GP64()).(reg.GPVirtual), Load(Param("d"), GP64())
	byQueries(n, func(name string, queries int) {
		acc := pairs(queries)
		rows := []Mem{{Base: x}}
		for i := 1; i < queries; i++ {
			p := GP64()
			LEAQ(Mem{Base: rows[i-1].Base, Index: d, Scale: 4}, p)
			rows = append(rows, Mem{Base: p})
		}
		for _, a := range acc {
			VXORPS(a[0], a[0], a[0])
			VXORPS(a[1], a[1], a[1])
		}
		column, k := GP64(), GP64()
		MOVQ(tile, column)
		XORQ(k, k)
		Label(name + "element")
		CMPQ(k, d)
		JGE(LabelRef(name + "store"))
		lo, hi, v := YMM(), YMM(), YMM()
		VMOVUPS(Mem{Base: column}, lo)
		VMOVUPS(Mem{Base: column, Disp: vector}, hi)
		for i, a := range acc {
			VBROADCASTSS(rows[i].Idx(k, 4), v)
			VFMADD231PS(lo, v, a[0])
			VFMADD231PS(hi, v, a[1])
		}
		ADDQ(Imm(2*vector), column)
		INCQ(k)
		JMP(LabelRef(name + "element"))
		Label(name + "store")
		for i, a := range acc {
			VMOVUPS(a[0], Mem{Base: out, Disp: i * 2 * vector})
			VMOVUPS(a[1], Mem{Base: out, Disp: i*2*vector + vector})
		}
		ADDQ(U32(queries*2*vector), out)
		LEAQ(Mem{Base: rows[queries-1].Base, Index: d, Scale: 4}, x)
	})
}

// accumulate keeps 16 columns of the sums of some queries in registers while it walks the rows.
func accumulate() {
	function("accumulateAVX2", "func(acc, weights, shrink, tile *float32, n, stride, from, to int)")
	Doc("accumulateAVX2 multiplies each row of acc [n][stride] by its shrink and adds rows [from, to) of",
		"tile [16][stride] times weights [n][16]. stride is a multiple of 16.")
	acc, weights := Load(Param("acc"), GP64()), Load(Param("weights"), GP64())
	shrink, tile := Load(Param("shrink"), GP64()), Load(Param("tile"), GP64())
	n, stride := Load(Param("n"), GP64()).(reg.GPVirtual), Load(Param("stride"), GP64())
	from, to := Load(Param("from"), GP64()), Load(Param("to"), GP64())
	SHLQ(Imm(2), stride) // to bytes
	first := GP64()      // row from of the tile
	MOVQ(from, first)
	IMULQ(stride, first)
	ADDQ(tile, first)
	byQueries(n, func(name string, queries int) {
		sums := pairs(queries)
		rows := []Mem{{Base: acc}}
		for i := 1; i < queries; i++ {
			p := GP64()
			LEAQ(Mem{Base: rows[i-1].Base, Index: stride, Scale: 1}, p)
			rows = append(rows, Mem{Base: p})
		}
		at := GP64() // the columns, in bytes from a row's start
		XORQ(at, at)
		Label(name + "columns")
		CMPQ(at, stride)
		JGE(LabelRef(name + "next"))
		s := YMM()
		for i, a := range sums {
			VBROADCASTSS(Mem{Base: shrink, Disp: 4 * i}, s)
			VMULPS(rows[i].Idx(at, 1), s, a[0])
			VMULPS(rows[i].Idx(at, 1).Offset(vector), s, a[1])
		}
		row, j := GP64(), GP64()
		LEAQ(Mem{Base: first, Index: at, Scale: 1}, row)
		MOVQ(from, j)
		Label(name + "row")
		CMPQ(j, to)
		JGE(LabelRef(name + "store"))
		lo, hi, w := YMM(), YMM(), YMM()
		VMOVUPS(Mem{Base: row}, lo)
		VMOVUPS(Mem{Base: row, Disp: vector}, hi)
		for i, a := range sums {
			VBROADCASTSS(Mem{Base: weights, Index: j, Scale: 4, Disp: i * page * 4}, w)
			VFMADD231PS(lo, w, a[0])
			VFMADD231PS(hi, w, a[1])
		}
		ADDQ(stride, row)
		INCQ(j)
		JMP(LabelRef(name + "row"))
		Label(name + "store")
		for i, a := range sums {
			VMOVUPS(a[0], rows[i].Idx(at, 1))
			VMOVUPS(a[1], rows[i].Idx(at, 1).Offset(vector))
		}
		ADDQ(Imm(2*vector), at)
		JMP(LabelRef(name + "columns"))
		Label(name + "next")
		LEAQ(Mem{Base: rows[queries-1].Base, Index: stride, Scale: 1}, acc)
		ADDQ(U32(queries*page*4), weights)
		ADDQ(Imm(uint64(queries*4)), shrink)
	})
}

// weigh works on powers of two: a factor of log₂e that scale holds makes them powers of e.
func weigh() {
	function("weighAVX2", "func(scores, top, sum, shrink *float32, n int, seen *[16]int32, scale float32)")
	Doc("weighAVX2 turns each query's scores into weights 2^(scale·score − top), where seen is not zero, and",
		"0 elsewhere; top is the running maximum, shrink becomes 2^(older top − top), and sum the running",
		"sum of weights.")
	scores, top := Load(Param("scores"), GP64()), Load(Param("top"), GP64())
	sum, shrink := Load(Param("sum"), GP64()), Load(Param("shrink"), GP64())
	n, seen := Load(Param("n"), GP64()), Load(Param("seen"), GP64())
	scale, nothing := YMM(), YMM()
	VBROADCASTSS(NewParamAddr("scale", 48), scale)
	VBROADCASTSS(constant(float32(math.Inf(-1))), nothing)
	see := [2]reg.VecVirtual{YMM(), YMM()}
	VMOVUPS(Mem{Base: seen}, see[0])
	VMOVUPS(Mem{Base: seen, Disp: vector}, see[1])

	Label("query")
	TESTQ(n, n)
	JE(LabelRef("done"))
	w := [2]reg.VecVirtual{YMM(), YMM()}
	for i := range w {
		VMULPS(Mem{Base: scores, Disp: i * vector}, scale, w[i])
		VBLENDVPS(see[i], w[i], nothing, w[i])
	}
	older, highest := XMM(), YMM()
	VMOVSS(Mem{Base: top}, older)
	across(w[0], w[1], highest, VMAXPS)
	VMAXSS(highest.AsX(), older, highest.AsX())
	VMOVSS(highest.AsX(), Mem{Base: top})

	factor := XMM()
	VSUBSS(highest.AsX(), older, factor)
	VBROADCASTSS(highest.AsX(), highest)
	for i := range w {
		VSUBPS(highest, w[i], w[i])
	}
	exp2(factor, XMM(), XMM(), XMM())
	VMOVSS(factor, Mem{Base: shrink})
	for i := range w {
		exp2(w[i], YMM(), YMM(), YMM())
		VMOVUPS(w[i], Mem{Base: scores, Disp: i * vector})
	}
	total := YMM()
	across(w[0], w[1], total, VADDPS)
	VFMADD231SS(Mem{Base: sum}, factor, total.AsX())
	VMOVSS(total.AsX(), Mem{Base: sum})

	ADDQ(Imm(2*vector), scores)
	for _, p := range []reg.Register{top, sum, shrink} {
		ADDQ(Imm(4), p)
	}
	DECQ(n)
	JMP(LabelRef("query"))
	Label("done")
	VZEROUPPER()
	RET()
}

// across leaves in the first element of out what op makes of all 16 elements of a and b.
func across(a, b, out reg.VecVirtual, op func(...Op)) {
	half := XMM()
	op(a, b, out)
	VEXTRACTF128(Imm(1), out, half)
	op(half, out.AsX(), out.AsX())
	VMOVHLPS(out.AsX(), out.AsX(), half)
	op(half, out.AsX(), out.AsX())
	VMOVSHDUP(out.AsX(), half)
	op(half, out.AsX(), out.AsX())
}
