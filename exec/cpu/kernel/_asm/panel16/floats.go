package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A dequantize writes the kernel that converts blocks of a panel to float32. For each element of k it stores the 16
// rows. A value is d·(u − zero) + m; each operation rounds, as in gguf/quant.
type dequantize struct {
	unpacker
	dst  reg.GPVirtual
	zero reg.VecVirtual // as float32
	byte reg.VecVirtual // mask of the low byte of each lane
}

func (k *dequantize) write() {
	name := "panel16Dequantize" + k.Name
	TEXT(name, NOSPLIT, "func(dst *float32, w *byte, blocks int)")
	Doc(name + " sets dst to the values of blocks of a panel at w: for each element of k, the 16 rows.")
	k.dst = GP64()
	w := GP64()
	Load(Param("dst"), k.dst)
	Load(Param("w"), w)
	blocks := Load(Param("blocks"), GP64())
	k.mask(true)
	k.byte = YMM()
	VPCMPEQD(k.byte, k.byte, k.byte)
	VPSRLD(U8(24), k.byte, k.byte)
	if k.Zero > 0 {
		k.zero = YMM()
		VPCMPEQD(k.zero, k.zero, k.zero)
		VPSRLD(U8(31), k.zero, k.zero)
		VPSLLD(U8(k.Zero), k.zero, k.zero)
		VCVTDQ2PS(k.zero, k.zero)
	}

	Label("block")
	CMPQ(blocks, U8(0))
	JLE(LabelRef("done"))
	k.block(w, k.part, func() {})
	DECQ(blocks)
	JMP(LabelRef("block"))

	Label("done")
	VZEROUPPER()
	RET()
}

// part stores the elements of a part of a block.
func (k *dequantize) part(p part) {
	d, m := p.scales()
	for t := p.first; t < p.first+p.n; t++ {
		for g := range groups {
			u := YMM()
			w := p.w.Offset(vector * g)
			k.unsigned(u, w, t)
			for j := range 4 {
				v := YMM()
				switch j {
				case 0:
					VPAND(k.byte, u, v)
				case 3:
					VPSRLD(U8(24), u, v)
				default:
					VPSRLD(U8(8*j), u, v)
					VPAND(k.byte, v, v)
				}
				VCVTDQ2PS(v, v)
				if k.Zero > 0 {
					VSUBPS(k.zero, v, v)
				}
				VMULPS(d[g], v, v)
				switch {
				case k.Min && k.Sub > 0: // types with sub-blocks subtract the minimum
					VSUBPS(m[g], v, v)
				case k.Min:
					VADDPS(m[g], v, v)
				}
				VMOVUPS(v, Mem{Base: k.dst, Disp: unit*(4*(t-p.first)+j) + vector*g})
			}
		}
	}
	ADDQ(U32(4*unit*p.n), k.dst)
}

// small writes the kernel that converts a panel of 1- or 2-byte floats to float32.
func small(name string, bytes int, widen func(x Mem, v reg.VecVirtual)) {
	TEXT("panel16Dequantize"+name, NOSPLIT, "func(dst *float32, w *byte, blocks int)")
	Doc("panel16Dequantize" + name + " sets dst to the values of blocks of 16 at w.")
	dst, w := Load(Param("dst"), GP64()), Load(Param("w"), GP64())
	blocks := Load(Param("blocks"), GP64())
	Label("block")
	SUBQ(U8(1), blocks)
	JL(LabelRef("done"))
	for g := range groups {
		v := YMM()
		widen(Mem{Base: w, Disp: 8 * bytes * g}, v)
		VMOVUPS(v, Mem{Base: dst, Disp: vector * g})
	}
	ADDQ(U8(16*bytes), w)
	ADDQ(U8(unit), dst)
	JMP(LabelRef("block"))
	Label("done")
	VZEROUPPER()
	RET()
}

// widenE4M3 converts eight E4M3 numbers to float32. A shift turns them into float16 numbers that are 2^8 times too
// small, the difference of the exponent biases. Subnormal numbers are exact, and NaN stays NaN.
func (c *constants) widenE4M3(x Mem, v reg.VecVirtual) {
	h, nan := XMM(), XMM()
	VPMOVSXBW(x, h)
	VPAND(c.e4m3NaN, h, nan)
	VPCMPEQW(c.e4m3NaN, nan, nan)
	VPSLLW(U8(7), h, h)
	VPAND(c.e4m3Half, h, h) // clear the bit into which the sign was extended
	VPOR(nan, h, h)
	VCVTPH2PS(h, v)
	VMULPS(c.e4m3Bias, v, v)
}

// floats writes the kernel that multiplies a float32 panel by the rows of a number of tokens. The sum of each block
// of 32 elements begins at zero, and blocks are added to y in order, so that the number of tokens does not change
// the bits. With fewer than four tokens, several blocks are summed at the same time, to hide the latency of
// additions.
func floats(tokens int) {
	const (
		block = 32 // elements
		most  = 4  // tokens times blocks at a time
	)
	name := fmt.Sprintf("panel16F32_t%d", tokens)
	TEXT(name, NOSPLIT, "func(y *float32, yStep int, w, x *float32, xStep int, k int)")
	Doc(fmt.Sprintf("%s adds to %d × 16 float32, yStep bytes apart, the products of k × 16 float32 at w with %d rows of k float32, xStep bytes apart.", name, tokens, tokens))
	yStep, xStep := Load(Param("yStep"), GP64()), Load(Param("xStep"), GP64())
	y, x := steps(Load(Param("y"), GP64()), yStep, tokens), steps(Load(Param("x"), GP64()), xStep, tokens)
	w, k := Load(Param("w"), GP64()), Load(Param("k"), GP64())
	var sum [most][groups]reg.VecVirtual // of each block of each token
	for i := range sum {
		for g := range groups {
			sum[i][g] = YMM()
		}
	}

	// run adds the products of blocks of n elements.
	run := func(blocks int, n Op, loop string) {
		sums := sum[:tokens*blocks]
		for _, s := range sums {
			for _, v := range s {
				VXORPS(v, v, v)
			}
		}
		left := GP64()
		MOVQ(n, left)
		Label(loop)
		for b := range blocks {
			var rows [groups]Op
			for g := range groups {
				rows[g] = Mem{Base: w, Disp: unit*block*b + vector*g}
				if tokens > 1 {
					r := YMM()
					VMOVUPS(rows[g], r)
					rows[g] = r
				}
			}
			for t := range tokens {
				v := YMM()
				VBROADCASTSS(x[t].Offset(4*block*b), v)
				for g := range groups {
					VFMADD231PS(rows[g], v, sums[b*tokens+t][g])
				}
			}
		}
		ADDQ(U8(unit), w)
		ADDQ(U8(4), x[0].Base)
		DECQ(left)
		JNE(LabelRef(loop))
		for b := range blocks {
			for t := range tokens {
				for g := range groups {
					at := y[t].Offset(vector * g)
					v := sums[b*tokens+t][g]
					VADDPS(at, v, v)
					VMOVUPS(v, at)
				}
			}
		}
		if blocks > 1 { // the loop advanced by one block only
			ADDQ(U32(unit*block*(blocks-1)), w)
			ADDQ(U32(4*block*(blocks-1)), x[0].Base)
		}
	}

	n := GP64()
	if tokens < most {
		Label("blocks")
		CMPQ(k, U32(block*(most/tokens)))
		JL(LabelRef("block"))
		MOVQ(U32(block), n)
		run(most/tokens, n, "elements")
		SUBQ(U32(block*(most/tokens)), k)
		JMP(LabelRef("blocks"))
	}
	Label("block")
	CMPQ(k, U8(0))
	JLE(LabelRef("done"))
	MOVQ(U32(block), n)
	CMPQ(k, n)
	CMOVQLT(k, n)
	SUBQ(n, k)
	run(1, n, "element")
	JMP(LabelRef("block"))

	Label("done")
	VZEROUPPER()
	RET()
}
