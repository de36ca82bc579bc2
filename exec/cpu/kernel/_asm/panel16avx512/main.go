// Command panel16avx512 generates the AVX-512 VNNI kernels for weights in layout r16 (panel16.go) and
// activations in q8x2. VPDPBUSD multiplies the 64 bytes of a unit, which are four elements of 16 rows, with
// the same four activations for all rows, and adds the products of each row to the row's lane, exactly.
// Activations have two planes, hi and lo, so a unit takes two VPDPBUSD.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pesti/exec/cpu/kernel/_asm/format"
)

const (
	unit   = 64 // bytes of an unpacked unit
	halves = 32 // bytes of 16 float16
)

func main() {
	ConstraintExpr("!purego")
	for _, f := range format.Formats {
		one(f)
		some(f)
	}
	Generate()
}

// A kernel has the parts that all functions share.
type kernel struct {
	format.Format
	masks map[uint64]reg.VecVirtual // vectors of equal bytes
	none  reg.VecVirtual            // zeros
}

func newKernel(f format.Format) *kernel {
	k := &kernel{Format: f, masks: map[uint64]reg.VecVirtual{}, none: ZMM()}
	VPXORD(k.none, k.none, k.none)
	if k.Bits == 8 {
		k.mask(0x80)
		return k
	}
	k.mask(1<<k.Bits - 1)
	for t := range 8 {
		for _, p := range format.Pieces[k.Bits][t] {
			k.mask(p.Mask)
		}
	}
	return k
}

// mask fills a register with a byte, unless one exists already.
func (k *kernel) mask(b uint64) {
	if k.masks[b] != nil {
		return
	}
	r, z := GP32(), ZMM()
	MOVL(U32(b*0x01010101), r)
	VPBROADCASTD(r, z)
	k.masks[b] = z
}

// units loads the eight units at w as unsigned bytes. Shifts are of words, and bits from the next byte are
// masked.
func (k *kernel) units(w Mem) (u [8]reg.VecVirtual) {
	for t := range u {
		u[t] = ZMM()
		switch {
		case k.Bits == 8:
			VPXORD(w.Offset(unit*t), k.masks[0x80], u[t]) // signed bytes plus 128, the zero point
		case t < k.Bits:
			VPANDD(w.Offset(unit*t), k.masks[1<<k.Bits-1], u[t])
		}
		for i, p := range format.Pieces[k.Bits][t] {
			v := ZMM()
			VPSRLW(U8(p.Right), w.Offset(unit*p.Vector), v)
			if i == 0 {
				VPANDD(k.masks[p.Mask], v, u[t])
			} else {
				const orAnd = 0xf8 // u | v & mask
				VPTERNLOGD(U8(orAnd), k.masks[p.Mask], v, u[t])
			}
		}
	}
	return u
}

// A token has the addresses of 32 activations.
type token struct {
	x      Mem // qblock
	hi, lo Mem
}

// A part is the units that share a scale, and that scale.
type part struct {
	first, n int
	d, m     reg.VecVirtual
}

// add adds the products of a part with a token to sum, a float32 vector in memory or in a register, and
// returns the register of the result: sum + (Σu·q − zero·Σq)·(d·scale) + m·offset, with each operation
// rounded as in swar_products.go.
func (k *kernel) add(sum Op, u [8]reg.VecVirtual, p part, x token) reg.VecVirtual {
	// Two independent sums, one for each plane, halve the length of the dependency chain.
	hi, lo := ZMM(), ZMM()
	VPXORD(hi, hi, hi)
	if k.Zero == 0 {
		VPXORD(lo, lo, lo)
	} else {
		k.total(lo, p, x.x)
		VPSLLD(U8(k.Zero), lo, lo)
		VPSUBD(lo, k.none, lo)
	}
	for t := p.first; t < p.first+p.n; t++ {
		VPDPBUSD_BCST(x.hi.Offset(4*t), u[t], hi)
		VPDPBUSD_BCST(x.lo.Offset(4*t), u[t], lo)
	}
	VPSLLD(U8(7), hi, hi)
	VPADDD(hi, lo, lo)

	VCVTDQ2PS(lo, lo)
	f := ZMM()
	VMULPS_BCST(x.x.Offset(format.Scale), p.d, f)
	VMULPS(f, lo, lo)
	VADDPS(sum, lo, lo)
	if !k.Min {
		return lo
	}
	VMULPS_BCST(x.x.Offset(format.Offset), p.m, f)
	if k.Sub > 0 {
		VSUBPS(f, lo, lo) // these types subtract the minimum
	} else {
		VADDPS(f, lo, lo)
	}
	return lo
}

// total sets z to the sum of a token's activations in the part.
func (k *kernel) total(z reg.VecVirtual, p part, x Mem) {
	switch {
	case p.n == 8:
		VPBROADCASTD(x.Offset(format.Sum), z)
	case p.first == 0:
		VPBROADCASTD(x.Offset(format.Half), z)
	default: // the second half
		VPBROADCASTD(x.Offset(format.Sum), z)
		VPSUBD_BCST(x.Offset(format.Half), z, z)
	}
}

// panels has the addresses of several panels at the same offset.
type panels struct {
	w  reg.GPVirtual
	at []func(base reg.GPVirtual, disp int) Mem
}

// block visits the spans of 32 elements of a block of each panel, advances w, and calls next after each
// span. units are the units of the span in panel i, and parts loads their scales.
func (k *kernel) block(w panels, visit func(i int, units Mem, parts func() []part), next func()) {
	head := halves
	if k.Min {
		head = 2 * halves
	}
	if k.Sub > 0 {
		k.block256(w, head, visit, next)
		return
	}
	for i, at := range w.at {
		visit(i, at(w.w, head), func() []part {
			p := part{n: 8, d: scale(at(w.w, 0))}
			if k.Min {
				p.m = scale(at(w.w, halves))
			}
			return []part{p}
		})
	}
	ADDQ(U32(head+unit*k.Bits), w.w)
	next()
}

// block256 is block for 256 elements: d and dmin, a byte for each scale and minimum, and the spans.
func (k *kernel) block256(w panels, head int, visit func(i int, units Mem, parts func() []part), next func()) {
	const bytes = 16 * 16 // of scales and minima
	start, scales, left := GP64(), GP64(), GP64()
	MOVQ(w.w, start)
	LEAQ(Mem{Base: w.w, Disp: head}, scales)
	ADDQ(U32(head+bytes), w.w)
	MOVQ(U32(8), left)
	Label("span")
	for i, at := range w.at {
		visit(i, at(w.w, 0), func() (parts []part) {
			for n := range 32 / k.Sub {
				p := part{first: n * k.Sub / 4, n: k.Sub / 4}
				if k.Min {
					p.d = product(at(start, 0), at(scales, 16*n), VPMOVZXBD)
					p.m = product(at(start, halves), at(scales, bytes/2+16*n), VPMOVZXBD)
				} else {
					p.d = product(at(start, 0), at(scales, 16*n), VPMOVSXBD)
				}
				parts = append(parts, p)
			}
			return parts
		})
	}
	ADDQ(U8(16*32/k.Sub), scales)
	ADDQ(U32(unit*k.Bits), w.w)
	next()
	DECQ(left)
	JNE(LabelRef("span"))
}

// scale loads 16 float16.
func scale(m Mem) reg.VecVirtual {
	z := ZMM()
	VCVTPH2PS(m, z)
	return z
}

// product returns 16 float16 times 16 bytes.
func product(half, bytes Mem, extend func(ops ...Op)) reg.VecVirtual {
	d, z := scale(half), ZMM()
	extend(bytes, z)
	VCVTDQ2PS(z, z)
	VMULPS(z, d, d)
	return d
}

// prefetch prefetches the units of 32 elements some blocks ahead. With one token, products are limited by
// memory bandwidth, and hardware prefetchers do not cross pages of 4 KiB.
func (k *kernel) prefetch(w Mem) {
	const ahead = 2048 // bytes; prefetching beyond the last weight is harmless
	for at := 0; at < unit*k.Bits; at += unit {
		PREFETCHT0(w.Offset(ahead + at))
	}
}

// one writes the kernel for one token. It reads four panels at a time, because several streams get more
// memory bandwidth than one. The activations stay in the cache.
func one(f format.Format) {
	name := "panel16avx512" + f.Name + "_t1"
	TEXT(name, NOSPLIT, "func(y *float32, w *byte, wStep int, x *byte, hi, lo *int8, blocks int)")
	Doc(name + " adds to 64 float32 at y the products of blocks of four panels, wStep bytes apart, with a token.")
	k := newKernel(f)
	y, w, step := Load(Param("y"), GP64()), panels{w: GP64()}, Load(Param("wStep"), GP64())
	Load(Param("w"), w.w)
	x, hi, lo := Load(Param("x"), GP64()), Load(Param("hi"), GP64()), Load(Param("lo"), GP64())
	blocks, three := Load(Param("blocks"), GP64()), GP64()
	LEAQ(Mem{Base: step, Index: step, Scale: 2}, three)
	w.at = []func(base reg.GPVirtual, disp int) Mem{
		func(base reg.GPVirtual, disp int) Mem { return Mem{Base: base, Disp: disp} },
		func(base reg.GPVirtual, disp int) Mem { return Mem{Base: base, Index: step, Scale: 1, Disp: disp} },
		func(base reg.GPVirtual, disp int) Mem { return Mem{Base: base, Index: step, Scale: 2, Disp: disp} },
		func(base reg.GPVirtual, disp int) Mem { return Mem{Base: base, Index: three, Scale: 1, Disp: disp} },
	}
	var sum [4]reg.VecVirtual
	for i := range sum {
		sum[i] = ZMM()
		VMOVUPS(Mem{Base: y, Disp: unit * i}, sum[i])
	}

	Label("block")
	SUBQ(U8(1), blocks)
	JL(LabelRef("done"))
	k.block(w, func(i int, units Mem, parts func() []part) {
		k.prefetch(units)
		u := k.units(units)
		for _, p := range parts() {
			VMOVAPS(k.add(sum[i], u, p, token{Mem{Base: x}, Mem{Base: hi}, Mem{Base: lo}}), sum[i])
		}
	}, func() {
		ADDQ(U8(format.Bytes), x)
		ADDQ(U8(32), hi)
		ADDQ(U8(32), lo)
	})
	JMP(LabelRef("block"))

	Label("done")
	for i := range sum {
		VMOVUPS(sum[i], Mem{Base: y, Disp: unit * i})
	}
	VZEROUPPER()
	RET()
}

// some writes the kernel for one panel and any number of tokens. It unpacks a span of the panel once for
// all of them. Tokens are independent, so the processor can overlap them.
func some(f format.Format) {
	name := "panel16avx512" + f.Name + "_tn"
	TEXT(name, NOSPLIT, "func(y *float32, yStep int, w, x *byte, xStep int, hi, lo *int8, planeStep, tokens, blocks int)")
	Doc(name + " adds to 16 float32 at y, and each yStep bytes behind them, the products of blocks of a panel with tokens, whose parts are xStep and planeStep bytes apart.")
	k := newKernel(f)
	w := panels{w: GP64(), at: []func(base reg.GPVirtual, disp int) Mem{
		func(base reg.GPVirtual, disp int) Mem { return Mem{Base: base, Disp: disp} },
	}}
	Load(Param("w"), w.w)
	x, hi, lo := Load(Param("x"), GP64()), Load(Param("hi"), GP64()), Load(Param("lo"), GP64())
	blocks := Load(Param("blocks"), GP64())
	SUBQ(hi, lo) // distance of the planes

	Label("block")
	SUBQ(U8(1), blocks)
	JL(LabelRef("done"))
	k.block(w, func(_ int, units Mem, parts func() []part) {
		u, parts32 := k.units(units), parts()
		y, at, plane, tokens := Load(Param("y"), GP64()), GP64(), GP64(), Load(Param("tokens"), GP64())
		MOVQ(x, at)
		MOVQ(hi, plane)
		Label("token")
		SUBQ(U8(1), tokens)
		JL(LabelRef("next"))
		var sum Op = Mem{Base: y}
		for _, p := range parts32 {
			sum = k.add(sum, u, p, token{Mem{Base: at}, Mem{Base: plane}, Mem{Base: plane, Index: lo, Scale: 1}})
		}
		VMOVUPS(sum, Mem{Base: y})
		step("yStep", y)
		step("xStep", at)
		step("planeStep", plane)
		JMP(LabelRef("token"))
		Label("next")
	}, func() {
		ADDQ(U8(format.Bytes), x)
		ADDQ(U8(32), hi)
	})
	JMP(LabelRef("block"))

	Label("done")
	VZEROUPPER()
	RET()
}

// step adds a parameter to a pointer, without keeping the parameter in a register.
func step(name string, to reg.Register) {
	at, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	ADDQ(at.Addr, to)
}
