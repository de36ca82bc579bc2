// Command panel16avx512 generates the AVX-512 VNNI kernels for weights in layout panel16 (panel16.go) and
// activations in q8x2 and q8. A unit has 64 bytes: four elements of 16 rows. VPDPBUSD multiplies them by the same four
// activations for all rows, and adds the products of each row to the row's lane, exactly. Activations in q8x2 have
// two planes, hi and lo, so a unit takes two VPDPBUSD.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pesti/exec/cpu/kernel/_asm/format"
	"pesti/exec/cpu/kernel/_asm/units512"
)

const unit = units512.Unit

func main() {
	ConstraintExpr("!purego")
	for _, f := range format.Formats {
		for _, planes := range []int{2, 1} {
			for _, r := range orders {
				one(f, planes, r)
			}
			several(f, planes)
			eight(f, planes)
		}
	}
	for _, tokens := range []int{1, 2, 4, together} {
		floats(tokens)
	}
	Generate()
}

// A kernel holds the registers that all functions use.
type kernel struct {
	*units512.Kernel
	planes int
	none   reg.VecVirtual // zeros
}

func newKernel(f format.Format, planes int) *kernel {
	none := ZMM()
	VPXORD(none, none, none)
	return &kernel{units512.New(f, false), planes, none}
}

// name returns the name of a function. It ends with tokens.
func name(f format.Format, planes int, tokens string) string {
	if planes == 1 {
		return "panel16avx512" + f.Name + "_q8_" + tokens
	}
	return "panel16avx512" + f.Name + "_" + tokens
}

// A token has the addresses of 32 activations.
type token struct {
	x      Mem // scales
	hi, lo Mem
}

// add adds the products of a part with a token to sum, a float32 vector in memory or in a register. It
// returns the register of the result, sum + (Σu·q − zero·Σq)·(d·scale) + m·offset. Each operation rounds as in
// swar_products.go.
func (k *kernel) add(sum Op, u [8]reg.VecVirtual, p units512.Part, x token) reg.VecVirtual {
	// Two independent sums halve the length of the dependency chain. They are those of the two planes, or, with one
	// plane, those of the even and of the odd units.
	hi, lo := ZMM(), ZMM()
	VPXORD(hi, hi, hi)
	if k.Zero == 0 {
		VPXORD(lo, lo, lo)
	} else {
		k.total(lo, p, x.x)
		VPSLLD(U8(k.Zero), lo, lo)
		VPSUBD(lo, k.none, lo)
	}
	for t := p.First; t < p.First+p.N; t++ {
		switch {
		case k.planes == 2:
			VPDPBUSD_BCST(x.hi.Offset(4*t), u[t], hi)
			VPDPBUSD_BCST(x.lo.Offset(4*t), u[t], lo)
		case t%2 == 0:
			VPDPBUSD_BCST(x.hi.Offset(4*t), u[t], hi)
		default:
			VPDPBUSD_BCST(x.hi.Offset(4*t), u[t], lo)
		}
	}
	if k.planes == 2 {
		VPSLLD(U8(7), hi, hi)
	}
	VPADDD(hi, lo, lo)

	k.AddScaled(lo, sum, lo, p, x.x)
	return lo
}

// total sets z to the sum of a token's activations in the part.
func (k *kernel) total(z reg.VecVirtual, p units512.Part, x Mem) {
	switch {
	case p.N == 8:
		VPBROADCASTD(x.Offset(format.Sum), z)
	case p.First == 0:
		VPBROADCASTD(x.Offset(format.Half), z)
	default: // the second half
		VPBROADCASTD(x.Offset(format.Sum), z)
		VPSUBD_BCST(x.Offset(format.Half), z, z)
	}
}

// An order is a way to read weights for one token. Memory bandwidth limits these products. The fastest order depends
// on the processor, the type and the shape (RATIONALE.md).
type order struct {
	name     string
	panels   int        // panels at a time
	prefetch func(m Op) // prefetches weights format.Ahead bytes ahead; may be nil
}

var orders = []order{{"t1", 1, nil}, {"t1nta", 1, PREFETCHNTA}, {"t1x4", 4, nil}, {"t1x4ahead", 4, PREFETCHT0}}

// one writes a kernel for one token. The activations stay in the cache.
func one(f format.Format, planes int, r order) {
	name := name(f, planes, r.name)
	TEXT(name, NOSPLIT, "func(y *float32, w *byte, wStep int, x *byte, hi, lo *int8, blocks int)")
	Doc(fmt.Sprintf("%s adds to %d float32 at y the products of blocks of %d panels, wStep bytes apart, with a token.", name, 16*r.panels, r.panels))
	k := newKernel(f, planes)
	y, w := Load(Param("y"), GP64()), units512.Panels{W: GP64()}
	Load(Param("w"), w.W)
	x, hi, lo := Load(Param("x"), GP64()), Load(Param("hi"), GP64()), Load(Param("lo"), GP64())
	blocks := Load(Param("blocks"), GP64())
	w.At = []func(base reg.GPVirtual, disp int) Mem{
		func(base reg.GPVirtual, disp int) Mem { return Mem{Base: base, Disp: disp} },
	}
	if r.panels == 4 {
		step, three := Load(Param("wStep"), GP64()), GP64()
		LEAQ(Mem{Base: step, Index: step, Scale: 2}, three)
		w.At = append(w.At,
			func(base reg.GPVirtual, disp int) Mem { return Mem{Base: base, Index: step, Scale: 1, Disp: disp} },
			func(base reg.GPVirtual, disp int) Mem { return Mem{Base: base, Index: step, Scale: 2, Disp: disp} },
			func(base reg.GPVirtual, disp int) Mem { return Mem{Base: base, Index: three, Scale: 1, Disp: disp} },
		)
	}
	sum := make([]reg.VecVirtual, r.panels)
	for i := range sum {
		sum[i] = ZMM()
		VMOVUPS(Mem{Base: y, Disp: unit * i}, sum[i])
	}

	Label("block")
	SUBQ(U8(1), blocks)
	JL(LabelRef("done"))
	k.Block(w, func(i int, units Mem, parts func() []units512.Part) {
		if r.prefetch != nil {
			for at := 0; at < unit*k.Bits; at += unit {
				r.prefetch(units.Offset(format.Ahead + at)) // harmless beyond the last weight: a prefetch does not fault
			}
		}
		scaled := parts() // load scales first, because they precede the units in memory
		u := k.Units(units)
		for _, p := range scaled {
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

// several writes the kernel for one panel and any number of tokens. It unpacks a span of the panel once for
// all tokens. Tokens are independent, so the processor can overlap their work.
func several(f format.Format, planes int) {
	name := name(f, planes, "tn")
	TEXT(name, NOSPLIT, "func(y *float32, yStep int, w, x *byte, xStep int, hi, lo *int8, rowStep, tokens, blocks int)")
	Doc(name + " adds to 16 float32 at y, and each yStep bytes behind them, the products of blocks of a panel with tokens, whose parts are xStep and rowStep bytes apart.")
	k := newKernel(f, planes)
	w := units512.Panels{W: GP64(), At: []func(base reg.GPVirtual, disp int) Mem{
		func(base reg.GPVirtual, disp int) Mem { return Mem{Base: base, Disp: disp} },
	}}
	Load(Param("w"), w.W)
	x, hi, lo := Load(Param("x"), GP64()), Load(Param("hi"), GP64()), Load(Param("lo"), GP64())
	blocks := Load(Param("blocks"), GP64())
	SUBQ(hi, lo) // distance of the planes

	Label("block")
	SUBQ(U8(1), blocks)
	JL(LabelRef("done"))
	k.Block(w, func(_ int, units Mem, parts func() []units512.Part) {
		parts32 := parts()
		u := k.Units(units)
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
		units512.Advance("yStep", y)
		units512.Advance("xStep", at)
		units512.Advance("rowStep", plane)
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

// tokens8 is the number of tokens whose sums are in registers.
const tokens8 = 8

// eight writes the kernel for one panel and eight tokens, whose sums stay in registers for the whole call. The
// eight tokens' products with a unit are independent, which hides their latency.
func eight(f format.Format, planes int) {
	name := name(f, planes, "t8")
	TEXT(name, NOSPLIT, "func(y *float32, yStep int, w, x *byte, xStep int, hi, lo *int8, rowStep, blocks int)")
	Doc(name + " adds to 16 float32 at y, and at each of 7 times yStep bytes behind them, the products of blocks of a panel with eight tokens, whose parts are xStep and rowStep bytes apart.")
	k := newKernel(f, planes)
	w := units512.Panels{W: GP64(), At: []func(base reg.GPVirtual, disp int) Mem{
		func(base reg.GPVirtual, disp int) Mem { return Mem{Base: base, Disp: disp} },
	}}
	var sum, dot [tokens8]reg.VecVirtual
	for i, m := range rows8("y", "yStep") {
		sum[i], dot[i] = ZMM(), ZMM()
		VMOVUPS(m, sum[i])
	}
	Load(Param("w"), w.W)
	x, q := rows8("x", "xStep"), rows8("hi", "rowStep")
	between := AllocLocal(8) // distance of the planes
	if planes == 2 {
		distance := Load(Param("lo"), GP64())
		SUBQ(q[0].Base, distance)
		MOVQ(distance, between)
	}
	left := AllocLocal(8)
	MOVQ(Load(Param("blocks"), GP64()), left)

	Label("block")
	SUBQ(U8(1), left)
	JL(LabelRef("done"))
	k.Block(w, func(_ int, at Mem, parts func() []units512.Part) {
		scaled := parts()
		u := k.Units(at)
		for _, p := range scaled {
			multiply := func() {
				for t := p.First; t < p.First+p.N; t++ {
					for i := range dot {
						VPDPBUSD_BCST(q[i].Offset(4*t), u[t], dot[i])
					}
				}
			}
			for i := range dot {
				VPXORD(dot[i], dot[i], dot[i])
			}
			multiply()
			if planes == 2 {
				ADDQ(between, q[0].Base)
				for i := range dot {
					VPSLLD(U8(7), dot[i], dot[i])
				}
				multiply()
				SUBQ(between, q[0].Base)
			}
			for i := range dot {
				if k.Zero > 0 {
					z := ZMM()
					k.total(z, p, x[i])
					VPSLLD(U8(k.Zero), z, z)
					VPSUBD(z, dot[i], dot[i])
				}
				k.AddScaled(sum[i], sum[i], dot[i], p, x[i])
			}
		}
	}, func() {
		ADDQ(U8(format.Bytes), x[0].Base)
		ADDQ(U8(32), q[0].Base)
	})
	JMP(LabelRef("block"))

	Label("done")
	for i, m := range rows8("y", "yStep") {
		VMOVUPS(sum[i], m)
	}
	VZEROUPPER()
	RET()
}

// rows8 returns the addresses of eight rows. first and step name the parameters with the address of the first row and
// the distance between rows.
func rows8(first, step string) (m [tokens8]Mem) {
	base, one := Load(Param(first), GP64()), Load(Param(step), GP64())
	three, five, seven := GP64(), GP64(), GP64()
	LEAQ(Mem{Base: one, Index: one, Scale: 2}, three)
	LEAQ(Mem{Base: one, Index: one, Scale: 4}, five)
	LEAQ(Mem{Base: three, Index: one, Scale: 4}, seven)
	m[0] = Mem{Base: base}
	for i, r := range []struct {
		index reg.Register
		scale uint8
	}{{one, 1}, {one, 2}, {three, 1}, {one, 4}, {five, 1}, {three, 2}, {seven, 1}} {
		m[i+1] = Mem{Base: base, Index: r.index, Scale: r.scale}
	}
	return m
}
