package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pesti/exec/cpu/kernel/_asm/constant"
)

// With AVX-512, one vector has the 16 positions of a page or 16 elements of a value. A query has one vector of sums where
// AVX2 has two, and all lanes compute what the lanes of AVX2 do, so that the bits are the same.

// most512 is the number of queries that share a load of the tile. So many sums hide the latency of additions; fewer
// queries compute two vectors of sums at a time instead.
const most512 = 8

// A queryRows has the addresses of the rows of up to most512 queries.
type queryRows struct {
	bases [3]reg.Register // of rows 0, 3 and 6
	step  reg.Register    // bytes from a row to the next
}

// newQueryRows returns the rows that begin at base and are count elements apart.
func newQueryRows(base, count reg.Register, queries int) (r queryRows) {
	r.step = GP64()
	MOVQ(count, r.step)
	SHLQ(Imm(2), r.step)
	for i := range (queries + 2) / 3 {
		r.bases[i] = GP64()
		if i == 0 {
			MOVQ(base, r.bases[i])
			continue
		}
		LEAQ(Mem{Base: r.bases[i-1], Index: r.step, Scale: 2}, r.bases[i])
		ADDQ(r.step, r.bases[i])
	}
	return r
}

// row returns the address of row i.
func (r *queryRows) row(i int) Mem {
	m := Mem{Base: r.bases[i/3]}
	if i%3 > 0 {
		m.Index, m.Scale = r.step, uint8(i%3)
	}
	return m
}

// advance moves all rows by n bytes.
func (r *queryRows) advance(n int) {
	for _, p := range r.bases {
		if p != nil {
			ADDQ(U32(uint32(n)), p)
		}
	}
}

// skip moves base past a number of rows.
func (r *queryRows) skip(rows int, base reg.Register) {
	for range rows {
		ADDQ(r.step, base)
	}
}

// scores512 is scores. Few queries add up two parts of their rows at a time.
func scores512(e element) {
	name := "scores" + e.name + "AVX512"
	function(name, "func(scores, x *float32, tile *"+e.typ+", n, d int)")
	Doc(name + " sets scores [n][16] to the products of x [n][d] and the columns of tile [d][16].")
	out, x := Load(Param("scores"), GP64()), Load(Param("x"), GP64())
	n := Load(Param("n"), GP64()).(reg.GPVirtual)
	byQueries(most512, n, func(name string, queries int) {
		column, rest, left := GP64(), GP64(), GP64()
		Load(Param("tile"), column)
		Load(Param("d"), rest)
		r := newQueryRows(x, rest, queries)
		total := avx512.vectors(queries)
		for _, v := range total {
			avx512.clear(v)
		}

		// run adds the sums of some parts of left elements to the totals, in order.
		run := func(parts int, loop string) {
			var sums [][]vec
			for range parts {
				sums = append(sums, avx512.vectors(queries))
			}
			for _, part := range sums {
				for _, v := range part {
					avx512.clear(v)
				}
			}
			Label(loop)
			for p, part := range sums {
				keys := ZMM()
				e.load(Mem{Base: column, Disp: p * scorePart * page * e.bytes}, keys)
				for i, sum := range part {
					VFMADD231PS_BCST(r.row(i).Offset(4*scorePart*p), keys, sum)
				}
			}
			ADDQ(Imm(uint64(page*e.bytes)), column)
			r.advance(4)
			DECQ(left)
			JNE(LabelRef(loop))
			for _, part := range sums {
				for i, sum := range part {
					VADDPS(sum, total[i], total[i])
				}
			}
			if parts > 1 {
				ADDQ(U32(uint32((parts-1)*scorePart*page*e.bytes)), column)
				r.advance((parts - 1) * scorePart * 4)
			}
		}
		if queries <= most512/2 {
			Label(name + "two")
			CMPQ(rest, Imm(2*scorePart))
			JL(LabelRef(name + "part"))
			SUBQ(Imm(2*scorePart), rest)
			MOVQ(U32(scorePart), left)
			run(2, name+"elements")
			JMP(LabelRef(name + "two"))
		}
		Label(name + "part")
		TESTQ(rest, rest)
		JE(LabelRef(name + "store"))
		MOVQ(U32(scorePart), left)
		CMPQ(rest, left)
		CMOVQLT(rest, left)
		SUBQ(left, rest)
		run(1, name+"element")
		JMP(LabelRef(name + "part"))
		Label(name + "store")
		for i, v := range total {
			VMOVUPS(v, Mem{Base: out, Disp: i * avx512.bytes})
		}
		ADDQ(U32(uint32(queries*avx512.bytes)), out)
		r.skip(queries, x)
	})
}

// accumulate512 is accumulate. Few queries compute 32 columns at a time.
func accumulate512(e element) {
	name := "accumulate" + e.name + "AVX512"
	function(name, "func(acc, weights, shrink *float32, tile *"+e.typ+", n, stride, from, to int)")
	Doc(name+" multiplies each row of acc [n][stride] by its shrink factor and adds rows [from, to) of",
		"tile [16][stride] times weights [n][16]. stride is a multiple of 16.")
	acc, weights := Load(Param("acc"), GP64()), Load(Param("weights"), GP64())
	shrink, n := Load(Param("shrink"), GP64()), Load(Param("n"), GP64()).(reg.GPVirtual)
	byQueries(most512, n, func(name string, queries int) {
		left, column, rowBytes := GP64(), GP64(), GP64() // columns left, and the first one in row from of the tile
		Load(Param("stride"), left)
		r := newQueryRows(acc, left, queries)
		IMUL3Q(Imm(uint64(e.bytes)), left, rowBytes)
		Load(Param("from"), column)
		IMULQ(rowBytes, column)
		tile, err := Param("tile").Resolve()
		if err != nil {
			panic(err)
		}
		ADDQ(tile.Addr, column)

		// run computes some vectors of columns.
		run := func(vectors int, loop string) {
			var sums [][]vec
			for range vectors {
				sums = append(sums, avx512.vectors(queries))
			}
			factor := ZMM()
			for i := range queries {
				VBROADCASTSS(Mem{Base: shrink, Disp: 4 * i}, factor)
				for c := range sums {
					VMULPS(r.row(i).Offset(avx512.bytes*c), factor, sums[c][i])
				}
			}
			row, weight, rows := GP64(), GP64(), GP64()
			MOVQ(column, row)
			Load(Param("from"), weight)
			Load(Param("to"), rows)
			SUBQ(weight, rows)
			LEAQ(Mem{Base: weights, Index: weight, Scale: 4}, weight)
			Label(loop)
			TESTQ(rows, rows)
			JE(LabelRef(loop + "done"))
			for c, some := range sums {
				values := ZMM()
				e.load(Mem{Base: row, Disp: page * e.bytes * c}, values)
				for i, sum := range some {
					VFMADD231PS_BCST(Mem{Base: weight, Disp: i * page * 4}, values, sum)
				}
			}
			ADDQ(rowBytes, row)
			ADDQ(Imm(4), weight)
			DECQ(rows)
			JMP(LabelRef(loop))
			Label(loop + "done")
			for c, some := range sums {
				for i, sum := range some {
					VMOVUPS(sum, r.row(i).Offset(avx512.bytes*c))
				}
			}
			ADDQ(Imm(uint64(page*e.bytes*vectors)), column)
			r.advance(avx512.bytes * vectors)
			SUBQ(Imm(uint64(16*vectors)), left)
		}
		if queries <= most512/2 {
			Label(name + "two")
			CMPQ(left, Imm(32))
			JL(LabelRef(name + "one"))
			run(2, name+"rows2")
			JMP(LabelRef(name + "two"))
		}
		Label(name + "one")
		TESTQ(left, left)
		JE(LabelRef(name + "next"))
		run(1, name+"rows1")
		JMP(LabelRef(name + "one"))
		Label(name + "next")
		r.skip(queries, acc)
		ADDQ(U32(uint32(queries*page*4)), weights)
		ADDQ(Imm(uint64(queries*4)), shrink)
	})
}

// weigh512 is weigh.
func weigh512() {
	function("weighAVX512", "func(scores, top, sum, shrink *float32, n int, seen *[16]int32, scale float32)")
	Doc("weighAVX512 computes what weighAVX2 does, with the same bits.")
	scores, top := Load(Param("scores"), GP64()), Load(Param("top"), GP64())
	sum, shrink := Load(Param("sum"), GP64()), Load(Param("shrink"), GP64())
	n, seen := Load(Param("n"), GP64()), Load(Param("seen"), GP64())
	scale, nothing, see, v := ZMM(), ZMM(), K(), ZMM()
	VBROADCASTSS(NewParamAddr("scale", 48), scale)
	VMOVUPS(constant.Float32(float32(math.Inf(-1))), nothing)
	VMOVDQU32(Mem{Base: seen}, v)
	VPTESTMD(v, v, see)
	for _, queries := range []int{4, 1} {
		name := fmt.Sprintf("weigh%d", queries)
		Label(name)
		CMPQ(n, Imm(uint64(queries)))
		JL(LabelRef(name + "done"))
		weighSome512(queries, scores, top, sum, shrink, see, scale, nothing)
		ADDQ(U32(uint32(queries*avx512.bytes)), scores)
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

// weighSome512 is weighSome.
func weighSome512(queries int, scores, top, sum, shrink, see reg.Register, scale, nothing vec) {
	w := avx512.vectors(queries)
	for q := range w {
		VMULPS(Mem{Base: scores, Disp: q * avx512.bytes}, scale, w[q])
		VBLENDMPS(w[q], nothing, see, w[q])
	}
	load, store := eachLane(queries)
	highest, factor := across(halves(w), VMAXPS), XMM()
	load(top, factor)
	VMAXPS(highest, factor, highest)
	VSUBPS(highest, factor, factor)
	store(highest, top)
	for q := range w {
		VSUBPS_BCST(Mem{Base: top, Disp: 4 * q}, w[q], w[q])
		exp512(w[q], ZMM(), ZMM())
		VMOVUPS(w[q], Mem{Base: scores, Disp: q * avx512.bytes})
	}
	exp(factor, XMM(), XMM(), XMM())
	store(factor, shrink)
	total, older := across(halves(w), VADDPS), XMM()
	load(sum, older)
	VFMADD231PS(older, factor, total)
	store(total, sum)
}

// halves returns both halves of each vector.
func halves(w []vec) (pairs [][2]vec) {
	for _, v := range w {
		upper := YMM()
		VEXTRACTF64X4(Imm(1), v, upper)
		pairs = append(pairs, [2]vec{v.AsY().(vec), upper})
	}
	return pairs
}
