package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pesti/exec/cpu/kernel/_asm/format"
)

// A product computes one panel of 16 rows for a number of tokens. A token has
// one vector of eight int32 sums for each group of rows.
//
// Several tokens: a unit of four elements meets a token's four activations of 15 bits in two steps.
// The even bytes of each word are multiplied with the first two activations of the four, which are
// the even ones, and the odd bytes with the other two; VPMADDWD adds the two products.
//
// One token: unpacking is most of the work, so bytes stay bytes, and VPMADDUBSW multiplies them with
// the two planes of the activations, hi and lo. It sums in int16, which holds a few units.
//
// Activations of 8 bits are one plane, and bytes are multiplied with it for any number of tokens. Those
// of weights of 8 bits are not: a sum of two products would exceed int16.
//
// All of that is exact. At the end of a block sums become float32 and are scaled and added as
// swar_products.go does it.
type product struct {
	unpacker
	tokens int
	single bool // activations are one plane

	y, x   [4]Mem // of each token
	q      [4]Mem // its plane, where there is one
	w      reg.GPVirtual
	hi, lo reg.GPVirtual  // planes of the only token, where bytes are multiplied
	even   reg.VecVirtual // keeps the even bytes
	sum    [4][groups]reg.VecVirtual
	d, m   [groups]reg.VecVirtual
}

// bytewise says whether a token alone is multiplied by two planes. Bytes of 8 bits are too large.
func (k *product) bytewise() bool { return k.tokens == 1 && k.Bits < 8 && !k.single }

func (k *product) write() {
	name := fmt.Sprintf("panel16%s_t%d", k.Name, k.tokens)
	block := 32
	if k.Sub > 0 {
		block = 256
	}
	switch {
	case k.single:
		name = fmt.Sprintf("panel16%s_q8_t%d", k.Name, k.tokens)
		TEXT(name, NOSPLIT, "func(y *float32, yStep int, w, x *byte, xStep int, q *int8, qStep, blocks int)")
		Doc(fmt.Sprintf("%s adds to %d × 16 float32, yStep bytes apart, the products of blocks of %d elements of a panel at w with the qblocks of %d tokens, xStep bytes apart, whose planes at q are qStep bytes apart.", name, k.tokens, block, k.tokens))
		rows := func(first, apart string) [4]Mem {
			return steps(Load(Param(first), GP64()), Load(Param(apart), GP64()), k.tokens)
		}
		k.y, k.x, k.q = rows("y", "yStep"), rows("x", "xStep"), rows("q", "qStep")
	case k.tokens == 1:
		TEXT(name, NOSPLIT, "func(y *float32, w, x *byte, hi, lo *int8, blocks int)")
		Doc(fmt.Sprintf("%s adds to 16 float32 at y the products of blocks of %d elements of a panel at w with the qblocks at x, whose planes are hi and lo.", name, block))
		k.y[0], k.x[0] = Mem{Base: Load(Param("y"), GP64())}, Mem{Base: Load(Param("x"), GP64())}
	default:
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
	} else if !k.single {
		k.even = YMM()
		VPCMPEQW(k.even, k.even, k.even)
		VPSRLW(U8(8), k.even, k.even)
	}
	k.mask(k.tokens == 1 || k.tokens == 2 && !k.single) // elsewhere sums take all registers
	blocks := Load(Param("blocks"), GP64())
	for t := range k.tokens {
		for g := range groups {
			k.sum[t][g] = YMM()
		}
	}

	Label("block")
	CMPQ(blocks, U8(0))
	JLE(LabelRef("done"))
	k.block(k.w, k.part, k.next)
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

// part adds the products of a part of a block to y.
func (k *product) part(p part) {
	if p.first == 0 && k.tokens < 4 {
		k.prefetch(p.w)
	}
	k.multiply(p.w, p.first, p.n)
	k.d, k.m = p.scales()
	k.scale(p)
}

// prefetch asks for the units of 32 elements that come some blocks later: few tokens go through
// weights as fast as memory gives them, and the processor looks ahead within a page of 4 KiB only.
func (k *product) prefetch(w Mem) {
	const ahead = 2048 // bytes; behind the last weight nothing is read
	for at := 0; at < unit*k.Bits; at += unit {
		PREFETCHT0(w.Offset(ahead + at))
	}
}

// next goes to the next 32 activations.
func (k *product) next() {
	ADDQ(U8(format.Bytes), k.x[0].Base)
	if k.single {
		ADDQ(U8(32), k.q[0].Base)
	}
	if k.bytewise() {
		ADDQ(U8(32), k.hi)
		ADDQ(U8(32), k.lo)
	}
}

// multiply sets the sums to the products of units first to first+n-1 of the 32 elements at w.
func (k *product) multiply(w Mem, first, n int) {
	switch {
	case k.bytewise():
		k.multiplyBytes(w, first, n)
		return
	case k.single:
		k.multiplyPlane(w, first, n)
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
func (k *product) unit(even, odd reg.VecVirtual, w Mem, t int) {
	k.unsigned(odd, w, t)
	VPAND(k.even, odd, even)
	VPSRLW(U8(8), odd, odd)
}

// multiplyPlane is multiply for activations in one plane.
func (k *product) multiplyPlane(w Mem, first, n int) {
	// So many products of two, of at most 2·(2^bits−1)·127, fit in int16.
	fit := 128 >> k.Bits
	if n <= fit { // all do: sums become int32 once, where they are
		for t := first; t < first+n; t++ {
			var u [groups]reg.VecVirtual
			for g := range groups {
				u[g] = YMM()
				k.unsigned(u[g], w.Offset(vector*g), t)
			}
			for m := range k.tokens {
				q := YMM()
				VPBROADCASTD(k.q[m].Offset(4*t), q)
				for g := range groups {
					addProduct(u[g], q, k.sum[m][g], t == first)
				}
			}
		}
		for m := range k.tokens {
			for g := range groups {
				VPMADDWD(k.one, k.sum[m][g], k.sum[m][g])
			}
		}
		return
	}
	// As many units at a time as fit, of both groups where registers allow it.
	together := [][]int{{0, 1}}
	if fit*groups > 4 && k.tokens == 4 {
		together = [][]int{{0}, {1}}
	}
	for at := first; at < first+n; at += fit {
		for _, gs := range together {
			var u [4][groups]reg.VecVirtual
			for i := range fit {
				for _, g := range gs {
					u[i][g] = YMM()
					k.unsigned(u[i][g], w.Offset(vector*g), at+i)
				}
			}
			for m := range k.tokens {
				sums := [groups]reg.VecVirtual{YMM(), YMM()}
				for i := range fit {
					q := YMM()
					VPBROADCASTD(k.q[m].Offset(4*(at+i)), q)
					for _, g := range gs {
						addProduct(u[i][g], q, sums[g], i == 0)
					}
				}
				for _, g := range gs {
					if at == first {
						VPMADDWD(k.one, sums[g], k.sum[m][g])
						continue
					}
					VPMADDWD(k.one, sums[g], sums[g])
					VPADDD(sums[g], k.sum[m][g], k.sum[m][g])
				}
			}
		}
	}
}

// multiplyBytes is multiply for a token alone, in two planes.
func (k *product) multiplyBytes(w Mem, first, n int) {
	// A product of two is at most 2·(2^bits−1)·128 with hi and half of that with lo: so many of
	// them fit in int16.
	fit := 128 >> k.Bits
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
	for i := range n {
		t := first + i
		q, r := YMM(), YMM()
		VPBROADCASTD(Mem{Base: k.hi, Disp: 4 * t}, q)
		VPBROADCASTD(Mem{Base: k.lo, Disp: 4 * t}, r)
		for g := range groups {
			u := YMM()
			k.unsigned(u, w.Offset(vector*g), t)
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
func (k *product) scale(p part) {
	for t := range k.tokens {
		s, z := YMM(), YMM()
		VBROADCASTSS(k.x[t].Offset(format.Scale), s)
		if k.Zero > 0 {
			k.total(z, k.x[t], p)
			VPSLLD(U8(k.Zero), z, z)
		}
		var o reg.VecVirtual
		if k.Min {
			o = YMM()
			VBROADCASTSS(k.x[t].Offset(format.Offset), o)
		}
		for g := range groups {
			acc := k.sum[t][g]
			if k.Zero > 0 {
				VPSUBD(z, acc, acc)
			}
			VCVTDQ2PS(acc, acc)
			f := YMM()
			VMULPS(s, k.d[g], f)
			VMULPS(f, acc, acc)
			y := k.y[t].Offset(vector * g)
			VADDPS(y, acc, acc)
			if k.Min {
				VMULPS(o, k.m[g], f)
				if k.Sub > 0 {
					VSUBPS(f, acc, acc) // the minimum is subtracted there
				} else {
					VADDPS(f, acc, acc)
				}
			}
			VMOVUPS(acc, y)
		}
	}
}

// total sets z to the sum of a token's activations in the part.
func (k *product) total(z reg.VecVirtual, x Mem, p part) {
	switch {
	case p.n == 8:
		VPBROADCASTD(x.Offset(format.Sum), z)
	case p.first == 0:
		VPBROADCASTD(x.Offset(format.Half), z)
	default:
		half := YMM()
		VPBROADCASTD(x.Offset(format.Sum), z)
		VPBROADCASTD(x.Offset(format.Half), half)
		VPSUBD(half, z, z)
	}
}
