// Command tiles generates the kernels for products of bf16 numbers. Their layout is described in tiles.go.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pesti/exec/cpu/kernel/_asm/amx"
)

func main() {
	ConstraintExpr("!purego")
	multiply()
	pairsAVX512()
	table := rounderTable()
	multiplyAVX2()
	pairsAVX2(table)
	roundAVX2(table)
	Generate()
}

func function(name, signature string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
}

const (
	row    = 64         // bytes of a row of a tile
	rows   = 16         // rows of a tile
	size   = rows * row // bytes of a tile
	yStep  = 4 * row    // bytes of the products of a token
	ymm    = 32         // bytes
	zmm    = 64         // bytes
	tokens = 2 * rows   // tokens at a time
)

// multiply writes the kernel for the products of tokens with pairs of panels. Two tiles of tokens times two tiles of
// panels give four tiles of products, which stay in registers for all of k. Each loaded tile is thus used
// twice, so that loads keep up: a product takes 16 cycles, a load 8.
func multiply() {
	function("multiplyAMX", "func(y *float32, w *uint32, panelPairs, tilesK int, x *uint16, xStep, tokens int)")
	Doc("multiplyAMX adds to y, which has 64 products for each token, the products of pairs of panels of 32·tilesK elements of k with tokens, which begin xStep bytes apart. The number of tokens is a multiple of 32.")
	var (
		a0, b0 = amx.Mem{Base: reg.RSI, Index: reg.RAX}, amx.Mem{Base: reg.RDI, Index: reg.RCX}
		a1, b1 = amx.Mem{Base: reg.R8, Index: reg.RAX}, amx.Mem{Base: reg.R9, Index: reg.RCX}
		c      = amx.Mem{Base: reg.RDX, Index: reg.RBX}
	)
	products := [4]struct {
		tile amx.Tile
		mem  amx.Mem
	}{{0, c}, {1, c.Plus(row)}, {2, c.Plus(rows * yStep)}, {3, c.Plus(rows*yStep + row)}}
	left, pairs, k, block := reg.R12, reg.R11, reg.R10, reg.R13 // block is the address of the tokens

	Load(Param("tilesK"), k)
	Load(Param("panelPairs"), pairs)
	for _, n := range []reg.GPPhysical{k, pairs} {
		CMPQ(n, U8(0))
		JLE(LabelRef("none"))
	}
	LEAQ(config(), k)
	amx.Emit(amx.LDTILECFG(amx.Mem{Base: k}))
	Load(Param("tokens"), left)
	Load(Param("y"), reg.RDX)
	Load(Param("x"), block)
	Load(Param("xStep"), reg.RAX)
	MOVQ(U32(yStep), reg.RBX)
	MOVQ(U32(row), reg.RCX)

	Label("tokens")
	SUBQ(U8(tokens), left)
	JL(LabelRef("done"))
	Load(Param("w"), reg.RDI)
	Load(Param("panelPairs"), pairs)

	Label("panels")
	Load(Param("tilesK"), k)
	MOVQ(k, reg.R9) // the second panel follows the first
	SHLQ(U8(10), reg.R9)
	ADDQ(reg.RDI, reg.R9)
	MOVQ(block, reg.RSI)
	MOVQ(reg.RAX, reg.R8)
	SHLQ(U8(4), reg.R8)
	ADDQ(reg.RSI, reg.R8)
	for _, p := range products {
		amx.Emit(amx.TILELOADD(p.tile, p.mem))
	}

	Label("k")
	amx.Emit(amx.TILELOADD(4, a0))
	amx.Emit(amx.TILELOADD(6, b0))
	amx.Emit(amx.TDPBF16PS(0, 4, 6))
	amx.Emit(amx.TILELOADD(7, b1))
	amx.Emit(amx.TDPBF16PS(1, 4, 7))
	amx.Emit(amx.TILELOADD(5, a1))
	amx.Emit(amx.TDPBF16PS(2, 5, 6))
	amx.Emit(amx.TDPBF16PS(3, 5, 7))
	for _, p := range []reg.GPPhysical{reg.RSI, reg.R8} {
		ADDQ(U8(row), p)
	}
	for _, p := range []reg.GPPhysical{reg.RDI, reg.R9} {
		ADDQ(U32(size), p)
	}
	DECQ(k)
	JNE(LabelRef("k"))

	for _, p := range products {
		amx.Emit(amx.TILESTORED(p.mem, p.tile))
	}
	MOVQ(reg.R9, reg.RDI)
	ADDQ(U32(2*row), reg.RDX)
	DECQ(pairs)
	JNE(LabelRef("panels"))

	Load(Param("panelPairs"), pairs) // back to the first pair
	SHLQ(U8(7), pairs)
	SUBQ(pairs, reg.RDX)
	ADDQ(U32(tokens*yStep), reg.RDX)
	MOVQ(reg.RAX, reg.R8)
	SHLQ(U8(5), reg.R8)
	ADDQ(reg.R8, block)
	JMP(LabelRef("tokens"))

	Label("done")
	amx.Emit(amx.TILERELEASE())
	Label("none")
	RET()
}

// multiplyAVX2 writes the kernel for the products of one token with one panel. It serves tests and comparisons: it
// rounds as AMX does, which faster kernels without AMX would not.
func multiplyAVX2() {
	function("multiplyAVX2", "func(y *float32, w *uint32, tilesK int, x *uint16)")
	Doc("multiplyAVX2 adds to 16 float32 the products of a panel of 32·tilesK elements of k with a token.")
	y, w, x := Load(Param("y"), GP64()), Load(Param("w"), GP64()), Load(Param("x"), GP64())
	k := Load(Param("tilesK"), GP64())
	high := YMM() // mask of the odd element of a pair
	VPCMPEQD(high, high, high)
	VPSLLD(U8(16), high, high)
	var even, odd [2]reg.VecVirtual // sums of 8 rows each
	for g := range even {
		even[g], odd[g] = YMM(), YMM()
	}

	Label("block")
	SUBQ(U8(1), k)
	JL(LabelRef("done"))
	for g := range even {
		VXORPS(even[g], even[g], even[g])
		VXORPS(odd[g], odd[g], odd[g])
	}
	for p := range 16 {
		a, b := YMM(), YMM()
		VPBROADCASTD(Mem{Base: x, Disp: 4 * p}, b)
		VPSLLD(U8(16), b, a)
		VPAND(high, b, b)
		for g := range even {
			pair, v := YMM(), YMM()
			VMOVDQU(Mem{Base: w, Disp: row*p + ymm*g}, pair)
			VPSLLD(U8(16), pair, v)
			VMULPS(a, v, v)
			VADDPS(v, even[g], even[g])
			VPAND(high, pair, v)
			VMULPS(b, v, v)
			VADDPS(v, odd[g], odd[g])
		}
	}
	for g := range even {
		at := Mem{Base: y, Disp: ymm * g}
		VADDPS(odd[g], even[g], even[g])
		VADDPS(at, even[g], even[g])
		VMOVUPS(even[g], at)
	}
	ADDQ(U32(size), w)
	ADDQ(U8(row), x)
	JMP(LabelRef("block"))
	Label("done")
	VZEROUPPER()
	RET()
}

// config configures eight tiles with 16 rows of 64 bytes.
func config() Mem {
	const palette, widths, heights = 0, 16, 48 // offsets
	m := GLOBL("tileConfig", RODATA|NOPTR)
	DATA(palette, U8(1))
	for t := range 8 {
		DATA(widths+2*t, U16(row))
	}
	for t := range 8 {
		DATA(heights+t, U8(rows))
	}
	DATA(heights+8, U64(0)) // fill up to 64 bytes
	return m
}

func pairsAVX512() {
	function("pairsAVX512", "func(dst *uint32, src *float32, pairs int)")
	Doc("pairsAVX512 rounds pairs of elements of k, for 16 rows, to pairs of bf16, as VCVTNE2PS2BF16 does.")
	index := GLOBL("pairsIndex", RODATA|NOPTR) // 0, 16, 1, 17, …
	for i := range 16 {
		DATA(4*i, U32(uint32(i)|uint32(i+16)<<16))
	}
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("pairs"), GP64())
	VMOVDQU64(index, reg.Z3)
	Label("pair")
	SUBQ(U8(1), n)
	JL(LabelRef("done"))
	VMOVUPS(Mem{Base: src}, reg.Z0)
	VMOVUPS(Mem{Base: src, Disp: zmm}, reg.Z1)
	amx.Emit(amx.VCVTNE2PS2BF16(2, 1, 0))
	VPERMW(reg.Z2, reg.Z3, reg.Z2)
	VMOVDQU64(reg.Z2, Mem{Base: dst})
	ADDQ(U32(2*zmm), src)
	ADDQ(U8(zmm), dst)
	JMP(LabelRef("pair"))
	Label("done")
	VZEROUPPER()
	RET()
}

// A rounder rounds vectors of float32 to bf16 in the high halves of the lanes, like numfmt.F32ToBF16FTZ. The low
// halves are undefined.
type rounder struct {
	exponent, half, one, sign, quiet reg.VecVirtual
}

// newRounder loads the constants of rounding.
func newRounder(table Mem) rounder {
	load := func(i int) reg.VecVirtual {
		v := YMM()
		VPBROADCASTD(table.Offset(4*i), v)
		return v
	}
	return rounder{load(0), load(1), load(2), load(3), load(4)}
}

func rounderTable() Mem {
	m := GLOBL("rounder", RODATA|NOPTR)
	for i, bits := range []uint32{0x7f800000, 0x7fff, 1, 0x80000000, 0x00400000} {
		DATA(4*i, U32(bits))
	}
	return m
}

func (r rounder) round(at Mem) reg.VecVirtual {
	x, sum, mask, other := YMM(), YMM(), YMM(), YMM()
	VMOVDQU(at, x)
	VPSRLD(U8(16), x, sum) // the lowest remaining bit decides ties
	VPAND(r.one, sum, sum)
	VPADDD(r.half, sum, sum)
	VPADDD(x, sum, sum)
	VCMPPS(U8(3), x, x, mask) // NaN
	VPOR(r.quiet, x, other)
	VBLENDVPS(mask, other, sum, sum)
	VPAND(r.exponent, x, mask) // zero and subnormal numbers have exponent bits of 0 and become ±0
	VPXOR(other, other, other)
	VPCMPEQD(other, mask, mask)
	VPAND(r.sign, x, other)
	VBLENDVPS(mask, other, sum, sum)
	return sum
}

func pairsAVX2(table Mem) {
	function("pairsAVX2", "func(dst *uint32, src *float32, pairs int)")
	Doc("pairsAVX2 rounds pairs of elements of k, for 16 rows, to pairs of bf16.")
	r := newRounder(table)
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("pairs"), GP64())
	Label("pair")
	SUBQ(U8(1), n)
	JL(LabelRef("done"))
	for half := 0; half < zmm; half += ymm {
		even, odd := r.round(Mem{Base: src, Disp: half}), r.round(Mem{Base: src, Disp: zmm + half})
		VPSRLD(U8(16), even, even)
		VPBLENDW(U8(0xaa), odd, even, even)
		VMOVDQU(even, Mem{Base: dst, Disp: half})
	}
	ADDQ(U32(2*zmm), src)
	ADDQ(U8(zmm), dst)
	JMP(LabelRef("pair"))
	Label("done")
	VZEROUPPER()
	RET()
}

func roundAVX2(table Mem) {
	function("roundBF16AVX2", "func(dst *byte, x *float32, n int)")
	Doc("roundBF16AVX2 stores n float32, a multiple of 16, as bf16 numbers.")
	r := newRounder(table)
	dst, x, n := Load(Param("dst"), GP64()), Load(Param("x"), GP64()), Load(Param("n"), GP64())
	Label("loop")
	SUBQ(U8(rows), n)
	JL(LabelRef("done"))
	a, b := r.round(Mem{Base: x}), r.round(Mem{Base: x, Disp: ymm})
	VPSRLD(U8(16), a, a)
	VPSRLD(U8(16), b, b)
	VPACKUSDW(b, a, a)
	VPERMQ(U8(0b11_01_10_00), a, a) // undo the interleaving of 128-bit halves
	VMOVDQU(a, Mem{Base: dst})
	ADDQ(U8(2*ymm), x)
	ADDQ(U8(ymm), dst)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}
