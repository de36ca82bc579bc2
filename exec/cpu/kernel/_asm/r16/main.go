// Command r16 writes the AVX2 kernels that multiply weights in layout r16 with activations in
// blocks of 32 (qblock). See r16.go for the layout and q8x2.go for the block.
//
// A kernel computes one panel of 16 rows for a number of tokens. The rows are two groups of eight,
// one for each half of a unit; a token has one vector of eight int32 sums for each group.
//
// Several tokens: a unit of four elements meets a token's four activations of 15 bits in two steps.
// The even bytes of each word are multiplied with the first two activations of the four, which are
// the even ones, and the odd bytes with the other two; VPMADDWD adds the two products.
//
// One token: unpacking is most of the work, so bytes stay bytes, and VPMADDUBSW multiplies them with
// the two planes of the activations, hi and lo. It sums in int16, which holds a few units.
//
// All of that is exact. At the end of a block sums become float32 and are scaled and added as
// integer.go does it.
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
	constants := newConstants()
	for _, f := range formats {
		for _, tokens := range []int{1, 2, 4} {
			k := &kernel{format: f, tokens: tokens, constants: constants}
			k.write()
		}
	}
	Generate()
}

// Constants of all kernels: bytes, and words to widen with.
type constants struct{ low, fifth, high, flip, one, plane Mem }

func newConstants() constants {
	fill := func(name string, v uint64) Mem {
		m := GLOBL("r16"+name, RODATA|NOPTR)
		for i := 0; i < vector; i += 8 {
			DATA(i, U64(v))
		}
		return m
	}
	const bytes, words = 0x0101010101010101, 0x0001000100010001
	return constants{fill("Low", 0x0f*bytes), fill("Fifth", 0x10*bytes), fill("High", 0x30*bytes),
		fill("Flip", 0x80*bytes), fill("One", words), fill("Plane", 128*words)}
}

type kernel struct {
	format
	constants
	tokens int

	y, x   [4]Mem // of each token
	w      reg.GPVirtual
	hi, lo reg.GPVirtual // planes of the only token, where bytes are multiplied
	low    Op            // masks of the low four bits and of those above
	above  Op
	even   reg.VecVirtual // keeps the even bytes
	sum    [4][groups]reg.VecVirtual
	d, m   [groups]reg.VecVirtual
}

// bytewise says whether a token alone is multiplied by planes. Bytes of 8 bits are too large.
func (k *kernel) bytewise() bool { return k.tokens == 1 && k.bits < 8 }

func (k *kernel) write() {
	name := fmt.Sprintf("r16%sx%d", k.name, k.tokens)
	block := 32
	if k.sub > 0 {
		block = 256
	}
	if k.tokens == 1 {
		TEXT(name, NOSPLIT, "func(y *float32, w, x *byte, hi, lo *int8, blocks int)")
		Doc(fmt.Sprintf("%s adds to 16 float32 at y the products of blocks of %d elements of a panel at w with the qblocks at x, whose planes are hi and lo.", name, block))
		k.y[0], k.x[0] = Mem{Base: Load(Param("y"), GP64())}, Mem{Base: Load(Param("x"), GP64())}
	} else {
		TEXT(name, NOSPLIT, "func(y *float32, yStep int, w, x *byte, xStep int, blocks int)")
		Doc(fmt.Sprintf("%s adds to %d × 16 float32, yStep bytes apart, the products of blocks of %d elements of a panel at w with the qblocks of %d tokens, xStep bytes apart.", name, k.tokens, block, k.tokens))
		yStep, xStep := Load(Param("yStep"), GP64()), Load(Param("xStep"), GP64())
		k.y = steps(Load(Param("y"), GP64()), yStep, k.tokens)
		k.x = steps(Load(Param("x"), GP64()), xStep, k.tokens)
	}
	k.w = GP64()
	Load(Param("w"), k.w)
	if k.bytewise() {
		k.hi, k.lo = GP64(), GP64()
		Load(Param("hi"), k.hi)
		Load(Param("lo"), k.lo)
	} else {
		k.even = YMM()
		VPCMPEQW(k.even, k.even, k.even)
		VPSRLW(U8(8), k.even, k.even)
	}
	k.masks()
	blocks := Load(Param("blocks"), GP64())
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

// masks keeps the masks in registers, if the sums of four tokens do not take them all.
func (k *kernel) masks() {
	k.low, k.above = k.constants.low, k.fifth
	switch k.bits {
	case 6:
		k.above = k.high
	case 8:
		k.above = k.flip
	}
	if k.tokens == 4 {
		return
	}
	for _, mask := range []*Op{&k.low, &k.above} {
		r := YMM()
		VMOVDQU(*mask, r)
		*mask = r
	}
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
	k.next()
}

// next goes to the next 32 activations.
func (k *kernel) next() {
	ADDQ(U8(xBytes), k.x[0].Base)
	if k.bytewise() {
		ADDQ(U8(32), k.hi)
		ADDQ(U8(32), k.lo)
	}
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
	k.next()
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
	if k.bytewise() {
		k.multiplyBytes(w, first, n)
		return
	}
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
	k.bytes(odd, w, t, k.upper(w, t))
	VPAND(k.even, odd, even)
	VPSRLW(U8(8), odd, odd)
}

// upper is the vector with the bits above the fourth of unit t of a group.
func (k *kernel) upper(w Mem, t int) Mem {
	if k.bits == 6 {
		return w.Offset(unit * (4 + t/4))
	}
	return w.Offset(unit * 4)
}

// bytes loads unit t of a group as unsigned bytes, whose upper bits are there. Shifts are of words:
// what comes from the next byte is masked.
func (k *kernel) bytes(u reg.VecVirtual, w Mem, t int, upper Op) {
	switch {
	case k.bits == 8:
		VMOVDQU(w.Offset(unit*t), u)
		VPXOR(k.above, u, u) // signed bytes plus 128, the zero point
	case t >= 4:
		VMOVDQU(w.Offset(unit*(t%4)), u)
		VPSRLW(U8(4), u, u)
		VPAND(k.low, u, u)
	case k.tokens == 4: // the mask is not in a register
		VMOVDQU(w.Offset(unit*t), u)
		VPAND(k.low, u, u)
	default:
		VPAND(w.Offset(unit*t), k.low, u)
	}
	left := 4 - t
	switch k.bits {
	case 4, 8:
		return
	case 6:
		left = 4 - 2*(t%4)
	}
	h := YMM()
	if m, ok := upper.(Mem); ok {
		VMOVDQU(m, h)
		upper = h
	}
	switch {
	case left > 0:
		VPSLLW(U8(left), upper, h)
		upper = h
	case left < 0:
		VPSRLW(U8(-left), upper, h)
		upper = h
	}
	VPAND(k.above, upper, h)
	VPOR(h, u, u)
}

// multiplyBytes is multiply for a token alone.
func (k *kernel) multiplyBytes(w Mem, first, n int) {
	// A product of two is at most 2·(2^bits−1)·128 with hi and half of that with lo: so many of
	// them fit in int16.
	fit := 128 >> k.bits
	var hi, lo [groups]reg.VecVirtual
	for g := range groups {
		hi[g], lo[g] = YMM(), YMM()
	}
	flushed := false
	// flush widens the sums of a plane to int32 and multiplies them with what the plane is worth.
	flush := func(sums [groups]reg.VecVirtual, worth Mem) {
		for g := range groups {
			if !flushed {
				VPMADDWD(worth, sums[g], k.sum[0][g])
				continue
			}
			VPMADDWD(worth, sums[g], sums[g])
			VPADDD(sums[g], k.sum[0][g], k.sum[0][g])
		}
		flushed = true
	}
	var upper [groups]reg.VecVirtual
	for i := range n {
		t := first + i
		if k.bits == 6 && i == 0 || k.bits == 5 && t == 0 {
			for g := range groups {
				upper[g] = YMM()
				VMOVDQU(k.upper(w.Offset(vector*g), t), upper[g])
			}
		}
		q, r := YMM(), YMM()
		VPBROADCASTD(Mem{Base: k.hi, Disp: 4 * t}, q)
		VPBROADCASTD(Mem{Base: k.lo, Disp: 4 * t}, r)
		for g := range groups {
			u := YMM()
			k.bytes(u, w.Offset(vector*g), t, upper[g])
			addProduct(u, q, hi[g], i%fit == 0)
			addProduct(u, r, lo[g], i%(2*fit) == 0)
		}
		if (i+1)%fit == 0 || i+1 == n {
			flush(hi, k.plane)
		}
		if (i+1)%(2*fit) == 0 || i+1 == n {
			flush(lo, k.one)
		}
	}
}

// addProduct adds u·q to sums, or sets sums to it where it is the first.
func addProduct(u, q, sums reg.VecVirtual, first bool) {
	if first {
		VPMADDUBSW(q, u, sums)
		return
	}
	p := YMM()
	VPMADDUBSW(q, u, p)
	VPADDW(p, sums, sums)
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
