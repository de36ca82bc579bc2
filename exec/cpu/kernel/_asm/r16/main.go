// Command r16 writes the AVX2 kernels that multiply weights in layout r16 with activations in
// blocks of 32 (qblock). See r16.go for the layout and q8x2.go for the block.
//
// A kernel computes one panel of 16 rows for a number of tokens. The rows are two groups of eight,
// one for each half of a unit; a token has one vector of eight int32 sums for each group. A unit of
// four elements meets a token's four activations in two steps: the even bytes of each word are
// multiplied with the first two activations of the four, which are the even ones, and the odd
// bytes with the other two; VPMADDWD adds the two products. All of that is exact. At the end of a
// block sums become float32 and are scaled and added as integer.go does it.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A format is how a type holds its weights.
type format struct {
	name string
	bits int // of an element
	zero int // its logarithm to base 2; 0 where zero is 0
	min  bool
	sub  int // elements that share a scale in a block of 256, or 0 where blocks are of 32
}

var formats = []format{
	{name: "Q4_0", bits: 4, zero: 3},
	{name: "Q4_1", bits: 4, min: true},
	{name: "Q5_0", bits: 5, zero: 4},
	{name: "Q5_1", bits: 5, min: true},
	{name: "Q8_0", bits: 8, zero: 7},
	{name: "Q4_K", bits: 4, min: true, sub: 32},
	{name: "Q5_K", bits: 5, min: true, sub: 32},
	{name: "Q6_K", bits: 6, zero: 5, sub: 16},
}

// Where the parts of a qblock lie, and its size.
const (
	xScale  = 64
	xOffset = 68
	xSum    = 72
	xHalf   = 76
	xBytes  = 80
)

const (
	groups = 2  // of rows in a panel
	vector = 32 // bytes
	unit   = groups * vector
)

func main() {
	ConstraintExpr("!purego")
	masks := newMasks()
	for _, f := range formats {
		for _, tokens := range []int{1, 2, 4} {
			k := &kernel{format: f, tokens: tokens, masks: masks}
			k.write()
		}
	}
	Generate()
}

// Masks are read from memory: there are no registers to spare.
type masks struct{ low, fifth, high, flip Mem }

func newMasks() masks {
	bytes := func(name string, b uint64) Mem {
		m := GLOBL("r16"+name, RODATA|NOPTR)
		for i := 0; i < vector; i += 8 {
			DATA(i, U64(b*0x0101010101010101))
		}
		return m
	}
	return masks{bytes("Low", 0x0f), bytes("Fifth", 0x10), bytes("High", 0x30), bytes("Flip", 0x80)}
}

type kernel struct {
	format
	masks
	tokens int

	y, x     [4]Mem // of each token
	w        reg.GPVirtual
	even     reg.VecVirtual // keeps the even bytes
	sum      [4][groups]reg.VecVirtual
	d, m     [groups]reg.VecVirtual
	scales   reg.GPVirtual // of the sub-block
	unitsEnd int           // bytes of 32 elements
}

func (k *kernel) write() {
	name := fmt.Sprintf("r16%sx%d", k.name, k.tokens)
	TEXT(name, NOSPLIT, "func(y *float32, yStep int, w *byte, x *byte, xStep int, blocks int)")
	block := 32
	if k.sub > 0 {
		block = 256
	}
	Doc(fmt.Sprintf("%s adds to %d × 16 float32, yStep bytes apart, the products of blocks of %d elements of a panel at w with the qblocks of %d tokens, xStep bytes apart.", name, k.tokens, block, k.tokens))
	yStep, xStep := Load(Param("yStep"), GP64()), Load(Param("xStep"), GP64())
	k.y = steps(Load(Param("y"), GP64()), yStep, k.tokens)
	k.x = steps(Load(Param("x"), GP64()), xStep, k.tokens)
	k.w = GP64()
	Load(Param("w"), k.w)
	blocks := Load(Param("blocks"), GP64())
	k.even = YMM()
	VPCMPEQW(k.even, k.even, k.even)
	VPSRLW(U8(8), k.even, k.even)
	for t := range k.tokens {
		for g := range groups {
			k.sum[t][g] = YMM()
		}
	}

	Label("block")
	CMPQ(blocks, U8(0))
	JLE(LabelRef("done"))
	if k.sub == 0 {
		k.block32()
	} else {
		k.block256()
	}
	DECQ(blocks)
	JMP(LabelRef("block"))

	Label("done")
	VZEROUPPER()
	RET()
}

// steps is where the rows of tokens begin.
func steps(base, step reg.Register, tokens int) (m [4]Mem) {
	m[0] = Mem{Base: base}
	if tokens > 1 {
		m[1] = Mem{Base: base, Index: step, Scale: 1}
	}
	if tokens > 2 {
		three := GP64()
		LEAQ(Mem{Base: step, Index: step, Scale: 2}, three)
		m[2] = Mem{Base: base, Index: step, Scale: 2}
		m[3] = Mem{Base: base, Index: three, Scale: 1}
	}
	return m
}

// block32 is a block of 32 elements with its own scales in front.
func (k *kernel) block32() {
	head := vector
	if k.min {
		head = 2 * vector
	}
	w := Mem{Base: k.w}
	k.multiply(w.Offset(head), 0, 8)
	for g := range groups {
		k.d[g] = YMM()
		VCVTPH2PS(w.Offset(16*g), k.d[g])
		if k.min {
			k.m[g] = YMM()
			VCVTPH2PS(w.Offset(vector+16*g), k.m[g])
		}
	}
	k.scale(xSum)
	ADDQ(U32(head+64*k.bits), k.w)
	ADDQ(U8(xBytes), k.x[0].Base)
}

// block256 is a block of 256 elements: d and dmin, then a byte for each scale and minimum, then
// the units of 32 elements, eight times.
func (k *kernel) block256() {
	head := GP64() // of d, dmin
	MOVQ(k.w, head)
	scales := GP64()
	LEAQ(Mem{Base: k.w, Disp: vector}, scales)
	size := 32 + 256 // of d and the scales
	if k.min {
		LEAQ(Mem{Base: k.w, Disp: 2 * vector}, scales)
		size = 64 + 256
	}
	ADDQ(U32(size), k.w)
	left := GP64()
	MOVQ(U32(8), left)
	Label("sub")
	w := Mem{Base: k.w}
	if k.sub == 32 {
		k.multiply(w, 0, 8)
		for g := range groups {
			k.d[g] = byteScale(Mem{Base: head, Disp: 16 * g}, Mem{Base: scales, Disp: 8 * g}, VPMOVZXBD)
			k.m[g] = byteScale(Mem{Base: head, Disp: vector + 16*g}, Mem{Base: scales, Disp: 128 + 8*g}, VPMOVZXBD)
		}
		k.scale(xSum)
		ADDQ(U8(16), scales)
	} else {
		for half := range 2 {
			k.multiply(w, 4*half, 4)
			for g := range groups {
				k.d[g] = byteScale(Mem{Base: head, Disp: 16 * g}, Mem{Base: scales, Disp: 16*half + 8*g}, VPMOVSXBD)
			}
			k.scale(xHalf + half)
		}
		ADDQ(U8(32), scales)
	}
	ADDQ(U32(64*k.bits), k.w)
	ADDQ(U8(xBytes), k.x[0].Base)
	DECQ(left)
	JNE(LabelRef("sub"))
}

// byteScale is a float16 times a byte, for eight rows.
func byteScale(half, bytes Mem, extend func(ops ...Op)) reg.VecVirtual {
	d, s := YMM(), YMM()
	extend(bytes, s)
	VCVTDQ2PS(s, s)
	VCVTPH2PS(half, d)
	VMULPS(s, d, d)
	return d
}

// multiply sets the sums to the products of units first to first+n-1 of the 32 elements at w.
func (k *kernel) multiply(w Mem, first, n int) {
	for t := first; t < first+n; t++ {
		var even, odd [groups]reg.VecVirtual
		for g := range groups {
			even[g], odd[g] = YMM(), YMM()
			k.unit(even[g], odd[g], w.Offset(vector*g), t)
		}
		for m := range k.tokens {
			for i, words := range [][groups]reg.VecVirtual{even, odd} {
				q := YMM()
				VPBROADCASTD(k.x[m].Offset(8*t+4*i), q)
				for g := range groups {
					if t == first && i == 0 {
						VPMADDWD(q, words[g], k.sum[m][g])
						continue
					}
					p := YMM()
					VPMADDWD(q, words[g], p)
					VPADDD(p, k.sum[m][g], k.sum[m][g])
				}
			}
		}
	}
}

// unit loads unit t of a group as words, the even bytes and the odd bytes.
func (k *kernel) unit(even, odd reg.VecVirtual, w Mem, t int) {
	if k.bits == 8 {
		VMOVDQU(w.Offset(unit*t), odd)
		VPXOR(k.flip, odd, odd) // signed bytes plus 128, the zero point
	} else {
		// Shifts are of words: what comes from the next byte is masked.
		VMOVDQU(w.Offset(unit*(t%4)), odd)
		if t >= 4 {
			VPSRLW(U8(4), odd, odd)
		}
		VPAND(k.low, odd, odd)
		switch k.bits {
		case 5:
			k.high(odd, w.Offset(unit*4), 4-t, k.fifth)
		case 6:
			k.high(odd, w.Offset(unit*(4+t/4)), 4-2*(t%4), k.masks.high)
		}
	}
	VPAND(k.even, odd, even)
	VPSRLW(U8(8), odd, odd)
}

// high adds to each byte the bits of mask of the byte at bits, shifted left.
func (k *kernel) high(bytes reg.VecVirtual, bits Mem, left int, mask Mem) {
	h := YMM()
	VMOVDQU(bits, h)
	switch {
	case left > 0:
		VPSLLW(U8(left), h, h)
	case left < 0:
		VPSRLW(U8(-left), h, h)
	}
	VPAND(mask, h, h)
	VPOR(h, bytes, bytes)
}

// scale adds the sums, less the zero point, to y: (sum − zero·Σq)·(d·s), and m·offset.
func (k *kernel) scale(sum int) {
	for t := range k.tokens {
		s, z := YMM(), YMM()
		VBROADCASTSS(k.x[t].Offset(xScale), s)
		if k.zero > 0 {
			k.total(z, k.x[t], sum)
			VPSLLD(U8(k.zero), z, z)
		}
		var o reg.VecVirtual
		if k.min {
			o = YMM()
			VBROADCASTSS(k.x[t].Offset(xOffset), o)
		}
		for g := range groups {
			acc := k.sum[t][g]
			if k.zero > 0 {
				VPSUBD(z, acc, acc)
			}
			VCVTDQ2PS(acc, acc)
			f := YMM()
			VMULPS(s, k.d[g], f)
			VMULPS(f, acc, acc)
			y := k.y[t].Offset(vector * g)
			VADDPS(y, acc, acc)
			if k.min {
				VMULPS(o, k.m[g], f)
				if k.sub > 0 {
					VSUBPS(f, acc, acc) // the minimum is subtracted there
				} else {
					VADDPS(f, acc, acc)
				}
			}
			VMOVUPS(acc, y)
		}
	}
}

// total sets z to the sum of a token's activations in the block, or in its first or second half.
func (k *kernel) total(z reg.VecVirtual, x Mem, sum int) {
	switch sum {
	case xSum, xHalf:
		VPBROADCASTD(x.Offset(sum), z)
	default:
		half := YMM()
		VPBROADCASTD(x.Offset(xSum), z)
		VPBROADCASTD(x.Offset(xHalf), half)
		VPSUBD(half, z, z)
	}
}
