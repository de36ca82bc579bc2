package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pesti/exec/cpu/kernel/_asm/format"
)

// A product writes the kernel that multiplies one panel of 16 rows by a number of tokens. Each token has one
// vector of eight int32 sums for each group of rows.
//
// For several tokens in q8x2, activations are words (planar.go). A unit of four elements is multiplied in two
// steps: the even bytes by the first two words, which are the even activations, and the odd bytes by the other
// two. VPMADDWD multiplies and adds the pairs.
//
// For one token in q8x2, unpacking is most of the work. Weights stay bytes, and VPMADDUBSW multiplies them
// by the planes hi and lo of the activations. It sums in int16, which is wide enough for a few units.
//
// For q8, VPMADDUBSW multiplies bytes by the single plane, for any number of tokens.
//
// With 8-bit weights, a sum of two products of bytes would overflow int16. So activations are words, for any number
// of tokens and in both formats.
//
// All integer arithmetic is exact. At the end of a block, sums are converted to float32, scaled and added
// as in swar_products.go.
type product struct {
	unpacker
	tokens int
	single bool // activations have one plane (q8)
	order

	y, x   [4]Mem // results and scales of each token
	q      [4]Mem // plane of each token for q8, otherwise its words
	w      reg.GPVirtual
	hi, lo reg.GPVirtual  // planes of the only token, if bytewise
	even   reg.VecVirtual // mask of the even bytes
	sum    [4][groups]reg.VecVirtual
	d, m   [groups]reg.VecVirtual
}

// An order is a way to read weights for one token. Memory bandwidth limits these products. The fastest order depends
// on the processor, the type and the shape.
type order struct {
	suffix   string     // of the function's name
	prefetch func(m Op) // prefetches weights format.Ahead bytes ahead; may be nil
}

var orders = []order{{"", nil}, {"ahead", PREFETCHT0}, {"nta", PREFETCHNTA}}

// bytewise reports whether the kernel multiplies bytes of weights by the planes of a single token in q8x2. 8-bit
// weights would overflow int16.
func (k *product) bytewise() bool { return k.tokens == 1 && k.Bits < 8 && !k.single }

func (k *product) write() {
	name := fmt.Sprintf("panel16%s_t%d%s", k.Name, k.tokens, k.suffix)
	block := 32
	if k.Sub > 0 {
		block = 256
	}
	if k.single {
		name = fmt.Sprintf("panel16%s_q8_t%d%s", k.Name, k.tokens, k.suffix)
	}
	what := fmt.Sprintf("the products of blocks of %d elements of a panel at w", block)
	if k.bytewise() {
		TEXT(name, NOSPLIT, "func(y, w, x, hi, lo *byte, blocks int)")
		Doc(fmt.Sprintf("%s adds to 16 float32 at y %s with a token, whose scales are at x and whose planes are hi and lo.", name, what))
		k.y[0], k.x[0] = Mem{Base: Load(Param("y"), GP64())}, Mem{Base: Load(Param("x"), GP64())}
	} else {
		q := "words"
		if k.single {
			q = "planes"
		}
		TEXT(name, NOSPLIT, "func(y *byte, yStep int, w, x *byte, xStep int, q *byte, qStep, blocks int)")
		Doc(fmt.Sprintf("%s adds to %d × 16 float32, yStep bytes apart, %s with %d tokens, whose scales at x are xStep bytes apart, and whose %s at q are qStep bytes apart.", name, k.tokens, what, k.tokens, q))
		rows := func(first, apart string) [4]Mem {
			return steps(Load(Param(first), GP64()), Load(Param(apart), GP64()), k.tokens)
		}
		k.y, k.x, k.q = rows("y", "yStep"), rows("x", "xStep"), rows("q", "qStep")
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
	k.mask(k.tokens == 1 || k.tokens == 2 && !k.single || k.tokens == 4 && k.single && k.Bits == 4) // otherwise sums need all registers
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

// steps returns the addresses of the rows of tokens.
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
	if p.first == 0 && k.prefetch != nil {
		for at := 0; at < unit*k.Bits; at += unit {
			k.prefetch(p.w.Offset(format.Ahead + at)) // harmless beyond the last weight: a prefetch does not fault
		}
	}
	k.multiply(p.w, p.first, p.n)
	k.d, k.m = p.scales()
	k.scale(p)
}

// next advances to the next 32 activations.
func (k *product) next() {
	ADDQ(U8(format.Bytes), k.x[0].Base)
	switch {
	case k.bytewise():
		ADDQ(U8(32), k.hi)
		ADDQ(U8(32), k.lo)
	case k.single:
		ADDQ(U8(32), k.q[0].Base)
	default:
		ADDQ(U8(64), k.q[0].Base)
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
				VPBROADCASTD(k.q[m].Offset(8*t+4*i), q)
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

// unit loads the even and the odd bytes of unit t of a group as words.
func (k *product) unit(even, odd reg.VecVirtual, w Mem, t int) {
	k.unsigned(odd, w, t)
	VPAND(k.even, odd, even)
	VPSRLW(U8(8), odd, odd)
}

// multiplyPlane is multiply for q8 activations.
func (k *product) multiplyPlane(w Mem, first, n int) {
	// A sum of two products is at most 2·(2^bits−1)·127. An int16 holds fit such sums.
	fit := 128 >> k.Bits
	if n <= fit { // widen the sums to int32 once, in place
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
	// Process fit units at a time, and both groups together if there are enough registers.
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

// multiplyBytes is multiply for a single token in q8x2.
func (k *product) multiplyBytes(w Mem, first, n int) {
	// A sum of two products is at most 2·(2^bits−1)·128 with hi, and half of that with lo. An int16 holds fit such
	// sums with hi, and 2·fit with lo.
	fit := 128 >> k.Bits
	var hi, lo [groups]reg.VecVirtual
	for g := range groups {
		hi[g], lo[g] = YMM(), YMM()
	}
	flushed := false
	// flush widens the sums of a plane to int32 and multiplies them by the factor of the plane.
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

// addProduct adds u·q to sums, or sets sums to u·q if first is true.
func addProduct(u, q, sums reg.VecVirtual, first bool) {
	if first {
		VPMADDUBSW(q, u, sums)
		return
	}
	p := YMM()
	VPMADDUBSW(q, u, p)
	VPADDW(p, sums, sums)
}

// scale adds the scaled sums to y: (sum − zero·Σq)·(d·s) + m·offset.
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
					VSUBPS(f, acc, acc) // these types subtract the minimum
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
