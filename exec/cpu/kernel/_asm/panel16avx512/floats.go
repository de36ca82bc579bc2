package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// together is the number of sums that hide the latency of additions: tokens times blocks at a time.
const together = 8

// floats writes the kernel that multiplies a float32 panel by the rows of a number of tokens. Each row of the panel has a
// lane, and the operations of a lane are those of panel16F32 (_asm/panel16/floats.go) in the same order: the sum of each
// block of 32 elements begins at zero, and blocks are added to y in order.
func floats(tokens int) {
	const block = 32 // elements
	name := fmt.Sprintf("panel16avx512F32_t%d", tokens)
	TEXT(name, NOSPLIT, "func(y *float32, yStep int, w, x *float32, xStep int, k int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s adds to %d × 16 float32, yStep bytes apart, the products of k × 16 float32 at w with %d rows of k float32, xStep bytes apart.", name, tokens, tokens))
	y, x := newRows("y", "yStep", tokens), newRows("x", "xStep", tokens)
	w, k := Load(Param("w"), GP64()), Load(Param("k"), GP64())
	none := ZMM()
	VPXORD(none, none, none)
	var sum [together]reg.VecVirtual // of each token of each block
	for i := range sum {
		sum[i] = ZMM()
	}
	left := GP64()

	// run adds the products of some blocks of left elements.
	run := func(blocks int, loop string) {
		for _, v := range sum[:tokens*blocks] {
			VMOVAPS(none, v)
		}
		Label(loop)
		for b := range blocks {
			rows := ZMM()
			VMOVUPS(Mem{Base: w, Disp: unit * block * b}, rows)
			for t := range tokens {
				VFMADD231PS_BCST(x.row(t).Offset(4*block*b), rows, sum[b*tokens+t])
			}
		}
		ADDQ(U8(unit), w)
		x.advance(4)
		DECQ(left)
		JNE(LabelRef(loop))
		for b := range blocks {
			for t := range tokens {
				v := sum[b*tokens+t]
				VADDPS(y.row(t), v, v)
				VMOVUPS(v, y.row(t))
			}
		}
		if blocks > 1 { // advance past the others
			ADDQ(U32(uint32(unit*block*(blocks-1))), w)
			x.advance(4 * block * (blocks - 1))
		}
	}

	if blocks := together / tokens; blocks > 1 {
		Label("blocks")
		CMPQ(k, U32(uint32(block*blocks)))
		JL(LabelRef("block"))
		MOVQ(U32(block), left)
		SUBQ(U32(uint32(block*blocks)), k)
		run(blocks, "elements")
		JMP(LabelRef("blocks"))
	}
	Label("block")
	TESTQ(k, k)
	JE(LabelRef("done"))
	MOVQ(U32(block), left)
	CMPQ(k, left)
	CMOVQLT(k, left)
	SUBQ(left, k)
	run(1, "element")
	JMP(LabelRef("block"))

	Label("done")
	VZEROUPPER()
	RET()
}

// rows are the addresses of the rows of up to eight tokens.
type rows struct {
	bases       []reg.Register // of rows 0 and 4
	step, three reg.Register   // bytes from a row to the next, and three times that
}

// newRows returns the rows that parameters of the function describe.
func newRows(base, step string, tokens int) (r rows) {
	first := Load(Param(base), GP64())
	r.bases = append(r.bases, first)
	if tokens > 1 {
		r.step = Load(Param(step), GP64())
	}
	if tokens > 3 {
		r.three = GP64()
		LEAQ(Mem{Base: r.step, Index: r.step, Scale: 2}, r.three)
	}
	if tokens > 4 {
		next := GP64()
		LEAQ(Mem{Base: first, Index: r.step, Scale: 4}, next)
		r.bases = append(r.bases, next)
	}
	return r
}

// row returns the address of row i.
func (r *rows) row(i int) Mem {
	m := Mem{Base: r.bases[i/4]}
	switch i % 4 {
	case 1, 2:
		m.Index, m.Scale = r.step, uint8(i%4)
	case 3:
		m.Index, m.Scale = r.three, 1
	}
	return m
}

// advance moves all rows by n bytes.
func (r *rows) advance(n int) {
	for _, p := range r.bases {
		ADDQ(U32(uint32(n)), p)
	}
}
