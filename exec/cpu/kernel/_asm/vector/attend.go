package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pesti/exec/cpu/kernel/_asm/constant"
)

const (
	page       = 16 // positions
	vector     = 32 // bytes
	maxQueries = 4  // queries that share a load of the tile
)

// byQueries writes a loop that processes maxQueries of n queries at a time, and then code for each smaller number, for
// the rest. body writes the code for a number of queries.
func byQueries(most int, n reg.GPVirtual, body func(name string, queries int)) {
	name := func(queries int) string { return fmt.Sprintf("queries%d", queries) }
	Label(name(most))
	CMPQ(n, Imm(uint64(most)))
	JL(LabelRef(name(most - 1)))
	body(name(most), most)
	SUBQ(Imm(uint64(most)), n)
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

// pairs returns two vectors for each query, for 16 columns.
func pairs(queries int) (acc [][2]reg.VecVirtual) {
	for range queries {
		acc = append(acc, [2]reg.VecVirtual{YMM(), YMM()})
	}
	return acc
}

// An element describes the element type of a tile.
type element struct {
	name  string // part of the names of kernels
	typ   string
	bytes int
	load  func(...Op) // loads 8 elements as float32
}

var (
	float = element{"", "float32", 4, VMOVUPS}
	half  = element{"Half", "uint16", 2, VCVTPH2PS}
)

// scorePart is the number of elements that are summed before the sum is added to the score. The error of a score thus
// grows with the number of parts, not of elements. The kernels in Go do the same.
const scorePart = 32

// scores writes the kernel for q·k. Each lane has the sum of one position, so that nothing is summed across lanes.
func scores(e element) {
	function("scores"+e.name+"AVX2", "func(scores, x *float32, tile *"+e.typ+", n, d int)")
	Doc("scores" + e.name + "AVX2 sets scores [n][16] to the products of x [n][d] and the columns of tile [d][16].")
	out, x, tile := Load(Param("scores"), GP64()), Load(Param("x"), GP64()), Load(Param("tile"), GP64())
	n, d := Load(Param("n"), GP64()).(reg.GPVirtual), Load(Param("d"), GP64())
	byQueries(maxQueries, n, func(name string, queries int) {
		acc := pairs(queries)
		rows := []Mem{{Base: x}}
		for i := 1; i < queries; i++ {
			p := GP64()
			LEAQ(Mem{Base: rows[i-1].Base, Index: d, Scale: 4}, p)
			rows = append(rows, Mem{Base: p})
		}
		column, k, end := GP64(), GP64(), GP64()
		MOVQ(tile, column)
		XORQ(k, k)
		VXORPS(acc[0][0], acc[0][0], acc[0][0])
		for i := range acc {
			VMOVUPS(acc[0][0], Mem{Base: out, Disp: i * 2 * vector})
			VMOVUPS(acc[0][0], Mem{Base: out, Disp: i*2*vector + vector})
		}
		Label(name + "part")
		LEAQ(Mem{Base: k, Disp: scorePart}, end)
		CMPQ(end, d)
		CMOVQGT(d, end)
		for _, a := range acc {
			VXORPS(a[0], a[0], a[0])
			VXORPS(a[1], a[1], a[1])
		}
		Label(name + "element")
		CMPQ(k, end)
		JGE(LabelRef(name + "add"))
		lo, hi, v := YMM(), YMM(), YMM()
		e.load(Mem{Base: column}, lo)
		e.load(Mem{Base: column, Disp: 8 * e.bytes}, hi)
		for i, a := range acc {
			VBROADCASTSS(rows[i].Idx(k, 4), v)
			VFMADD231PS(lo, v, a[0])
			VFMADD231PS(hi, v, a[1])
		}
		ADDQ(Imm(uint64(page*e.bytes)), column)
		INCQ(k)
		JMP(LabelRef(name + "element"))
		Label(name + "add")
		for i, a := range acc {
			for j, sum := range a {
				at := Mem{Base: out, Disp: i*2*vector + j*vector}
				VADDPS(at, sum, sum)
				VMOVUPS(sum, at)
			}
		}
		CMPQ(k, d)
		JLT(LabelRef(name + "part"))
		ADDQ(U32(queries*2*vector), out)
		LEAQ(Mem{Base: rows[queries-1].Base, Index: d, Scale: 4}, x)
	})
}

// accumulate writes the kernel for weights·v. It keeps 16 columns of the queries' sums in registers for all rows.
func accumulate(e element) {
	function("accumulate"+e.name+"AVX2", "func(acc, weights, shrink *float32, tile *"+e.typ+", n, stride, from, to int)")
	Doc("accumulate"+e.name+"AVX2 multiplies each row of acc [n][stride] by its shrink and adds rows [from, to) of",
		"tile [16][stride] times weights [n][16]. stride is a multiple of 16.")
	acc, weights := Load(Param("acc"), GP64()), Load(Param("weights"), GP64())
	shrink, tile := Load(Param("shrink"), GP64()), Load(Param("tile"), GP64())
	n, stride := Load(Param("n"), GP64()).(reg.GPVirtual), Load(Param("stride"), GP64())
	from, to := Load(Param("from"), GP64()), Load(Param("to"), GP64())
	rowBytes, first := GP64(), GP64() // bytes of a row of the tile; address of row from
	IMUL3Q(Imm(uint64(e.bytes)), stride, rowBytes)
	MOVQ(from, first)
	IMULQ(rowBytes, first)
	ADDQ(tile, first)
	byQueries(maxQueries, n, func(name string, queries int) {
		sums := pairs(queries)
		rows := []Mem{{Base: acc}}
		for i := 1; i < queries; i++ {
			p := GP64()
			LEAQ(Mem{Base: rows[i-1].Base, Index: stride, Scale: 4}, p)
			rows = append(rows, Mem{Base: p})
		}
		at := GP64() // the first of 16 columns
		XORQ(at, at)
		Label(name + "columns")
		CMPQ(at, stride)
		JGE(LabelRef(name + "next"))
		s := YMM()
		for i, a := range sums {
			VBROADCASTSS(Mem{Base: shrink, Disp: 4 * i}, s)
			VMULPS(rows[i].Idx(at, 4), s, a[0])
			VMULPS(rows[i].Idx(at, 4).Offset(vector), s, a[1])
		}
		row, j := GP64(), GP64()
		LEAQ(Mem{Base: first, Index: at, Scale: uint8(e.bytes)}, row)
		MOVQ(from, j)
		Label(name + "row")
		CMPQ(j, to)
		JGE(LabelRef(name + "store"))
		lo, hi, w := YMM(), YMM(), YMM()
		e.load(Mem{Base: row}, lo)
		e.load(Mem{Base: row, Disp: 8 * e.bytes}, hi)
		for i, a := range sums {
			VBROADCASTSS(Mem{Base: weights, Index: j, Scale: 4, Disp: i * page * 4}, w)
			VFMADD231PS(lo, w, a[0])
			VFMADD231PS(hi, w, a[1])
		}
		ADDQ(rowBytes, row)
		INCQ(j)
		JMP(LabelRef(name + "row"))
		Label(name + "store")
		for i, a := range sums {
			VMOVUPS(a[0], rows[i].Idx(at, 4))
			VMOVUPS(a[1], rows[i].Idx(at, 4).Offset(vector))
		}
		ADDQ(Imm(16), at)
		JMP(LabelRef(name + "columns"))
		Label(name + "next")
		LEAQ(Mem{Base: rows[queries-1].Base, Index: stride, Scale: 4}, acc)
		ADDQ(U32(queries*page*4), weights)
		ADDQ(Imm(uint64(queries*4)), shrink)
	})
}

// weigh writes the kernel that turns scores into weights. Four queries share the reductions across lanes; a single query
// reduces in the same order.
func weigh() {
	function("weighAVX2", "func(scores, top, sum, shrink *float32, n int, seen *[16]int32, scale float32)")
	Doc("weighAVX2 turns each query's scores into weights e^(scale·score − top), where seen is not zero, and",
		"0 elsewhere; top is the running maximum, shrink becomes e^(older top − top), and sum the running",
		"sum of weights.")
	scores, top := Load(Param("scores"), GP64()), Load(Param("top"), GP64())
	sum, shrink := Load(Param("sum"), GP64()), Load(Param("shrink"), GP64())
	n, seen := Load(Param("n"), GP64()), Load(Param("seen"), GP64())
	scale := YMM()
	VBROADCASTSS(NewParamAddr("scale", 48), scale)
	for _, queries := range []int{4, 1} {
		name := fmt.Sprintf("weigh%d", queries)
		Label(name)
		CMPQ(n, Imm(uint64(queries)))
		JL(LabelRef(name + "done"))
		weighSome(queries, scores, top, sum, shrink, seen, scale)
		ADDQ(U32(queries*2*vector), scores)
		for _, p := range []reg.Register{top, sum, shrink} {
			ADDQ(Imm(uint64(4*queries)), p)
		}
		SUBQ(Imm(uint64(queries)), n)
		JMP(LabelRef(name))
		Label(name + "done")
	}
	VZEROUPPER()
	RET()
}

// weighSome is weigh for 4 queries or one.
func weighSome(queries int, scores, top, sum, shrink, seen reg.Register, scale vec) {
	w := pairs(queries)
	part := func(i int) int { return i * vector }
	for i := range 2 {
		see, nothing := YMM(), YMM()
		VMOVUPS(Mem{Base: seen, Disp: part(i)}, see)
		VMOVUPS(constant.Float32(float32(math.Inf(-1))), nothing)
		for q := range w {
			VMULPS(Mem{Base: scores, Disp: q*2*vector + part(i)}, scale, w[q][i])
			VBLENDVPS(see, w[q][i], nothing, w[q][i])
		}
	}

	load, store := eachLane(queries)
	highest, factor := across(w, VMAXPS), XMM()
	load(top, factor)
	VMAXPS(highest, factor, highest)
	VSUBPS(highest, factor, factor)
	store(highest, top)
	for q := range w {
		all := YMM()
		VBROADCASTSS(Mem{Base: top, Disp: 4 * q}, all)
		for i := range 2 {
			VSUBPS(all, w[q][i], w[q][i])
			exp(w[q][i], YMM(), YMM(), YMM())
			VMOVUPS(w[q][i], Mem{Base: scores, Disp: q*2*vector + part(i)})
		}
	}
	exp(factor, XMM(), XMM(), XMM())
	store(factor, shrink)
	total, older := across(w, VADDPS), XMM()
	load(sum, older)
	VFMADD231PS(older, factor, total)
	store(total, sum)
}

// eachLane returns the functions that load and store a number for each of 4 queries or one, in its own lane.
func eachLane(queries int) (load func(p reg.Register, v vec), store func(v vec, p reg.Register)) {
	move := VMOVUPS
	if queries == 1 {
		move = VMOVSS
	}
	return func(p reg.Register, v vec) { move(Mem{Base: p}, v) }, func(v vec, p reg.Register) { move(v, Mem{Base: p}) }
}

// across reduces the 16 elements of each query with op and returns the results, one lane for each query. It reduces
// element i of both vectors, then elements that are 2 apart, then neighbors, then elements that are 4 apart. The order
// is the same for one query and four, so that sums have the same bits. across does not change w.
func across(w [][2]vec, op func(...Op)) vec {
	out, upper := YMM(), XMM()
	switch len(w) {
	case 1:
		other := YMM()
		op(w[0][0], w[0][1], out)
		VPERMILPS(Imm(0x0e), out, other)
		op(other, out, out)
		VPERMILPS(Imm(0x01), out, other)
		op(other, out, out)
	case 4:
		// Two queries at a time take half a vector's lanes: those of elements 0 and 2, of 1 and 3.
		two := func(a, b [2]vec) vec {
			x, y, lo := YMM(), YMM(), YMM()
			op(a[0], a[1], x)
			op(b[0], b[1], y)
			VUNPCKLPS(y, x, lo)
			VUNPCKHPS(y, x, x)
			op(x, lo, lo)
			return lo
		}
		x, y := two(w[0], w[1]), two(w[2], w[3])
		VUNPCKLPD(y, x, out)
		VUNPCKHPD(y, x, x)
		op(x, out, out)
	}
	VEXTRACTF128(Imm(1), out, upper)
	op(upper, out.AsX(), out.AsX())
	return out.AsX().(vec)
}

// prefetch writes the kernel that prefetches the next page while this one is computed.
func prefetch() {
	function("prefetchAVX2", "func(p *byte, n int)")
	Doc("prefetchAVX2 prefetches the cache lines of n bytes at p.")
	p, n := Load(Param("p"), GP64()), Load(Param("n"), GP64())
	Label("next")
	CMPQ(n, Imm(0))
	JLE(LabelRef("done"))
	PREFETCHT0(Mem{Base: p})
	ADDQ(Imm(64), p)
	SUBQ(Imm(64), n)
	JMP(LabelRef("next"))
	Label("done")
	RET()
}

// divide writes the kernel that divides a head's sums by the sum of its weights.
func divide(w width) {
	function("divide"+w.set, "func(dst, src *float32, by float32, n int)")
	Doc(fmt.Sprintf("divide%s sets n elements of dst, a multiple of %d, to src / by.", w.set, w.lanes()))
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	by, v := w.vec(), w.vec()
	VBROADCASTSS(NewParamAddr("by", 16), by)
	n, at := Load(Param("n"), GP64()), GP64()
	XORQ(at, at)
	Label("next")
	CMPQ(at, n)
	JGE(LabelRef("done"))
	VMOVUPS(Mem{Base: src, Index: at, Scale: 4}, v)
	VDIVPS(by, v, v)
	VMOVUPS(v, Mem{Base: dst, Index: at, Scale: 4})
	ADDQ(Imm(uint64(w.lanes())), at)
	JMP(LabelRef("next"))
	Label("done")
	VZEROUPPER()
	RET()
}
