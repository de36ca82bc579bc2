// Package units512 writes code that loads blocks of panels in layout panel16 (panel16.go of package kernel) into
// 512-bit vectors: the units of a span of 32 elements, and the scales of its parts.
package units512

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pesti/exec/cpu/kernel/_asm/format"
)

const (
	Unit   = 64 // bytes of an unpacked unit
	halves = 32 // bytes of 16 float16
)

// A Kernel holds the format of the weights and the registers for unpacking them.
type Kernel struct {
	format.Format
	signed bool
	masks  map[uint64]reg.VecVirtual // each repeats one byte
}

// New fills the registers that Units needs. Units are unsigned bytes, or, if signed is true, signed bytes from which
// the zero point is already subtracted.
func New(f format.Format, signed bool) *Kernel {
	k := &Kernel{Format: f, signed: signed, masks: map[uint64]reg.VecVirtual{}}
	if k.Bits == 8 {
		if !signed {
			k.mask(0x80)
		}
		return k
	}
	if signed && k.Zero > 0 {
		k.mask(1 << k.Zero)
	}
	k.mask(1<<k.Bits - 1)
	for t := range 8 {
		for _, p := range format.Pieces[k.Bits][t] {
			k.mask(p.Mask)
		}
	}
	return k
}

// mask fills a register with copies of a byte, unless there is one already.
func (k *Kernel) mask(b uint64) {
	if k.masks[b] != nil {
		return
	}
	r, z := GP32(), ZMM()
	MOVL(U32(b*0x01010101), r)
	VPBROADCASTD(r, z)
	k.masks[b] = z
}

// Units loads the eight units at w. Shifts are of words; the mask removes bits of the next byte.
func (k *Kernel) Units(w Mem) (u [8]reg.VecVirtual) {
	for t := range u {
		u[t] = ZMM()
		switch {
		case k.Bits == 8 && k.signed:
			VMOVDQU64(w.Offset(Unit*t), u[t])
		case k.Bits == 8:
			VPXORD(w.Offset(Unit*t), k.masks[0x80], u[t]) // plus 128, the zero point
		case t < k.Bits:
			VPANDD(w.Offset(Unit*t), k.masks[1<<k.Bits-1], u[t])
		}
		for i, p := range format.Pieces[k.Bits][t] {
			v := ZMM()
			VPSRLW(U8(p.Right), w.Offset(Unit*p.Vector), v)
			if i == 0 {
				VPANDD(k.masks[p.Mask], v, u[t])
			} else {
				const orAnd = 0xf8 // u | v & mask
				VPTERNLOGD(U8(orAnd), k.masks[p.Mask], v, u[t])
			}
		}
		if k.signed && k.Zero > 0 && k.Bits < 8 {
			VPSUBB(k.masks[1<<k.Zero], u[t], u[t])
		}
	}
	return u
}

// A Part is the units of a span that share a scale.
type Part struct {
	First, N int            // the part is units First to First+N-1
	D, M     reg.VecVirtual // scale and offset of each row
}

// Panels addresses several panels with one pointer: At[i] returns an address in panel i.
type Panels struct {
	W  reg.GPVirtual
	At []func(base reg.GPVirtual, disp int) Mem
}

// Block visits the spans of 32 elements of a block of each panel, advances w, and calls next after each
// span. units are the units of the span in panel i, and parts loads their scales.
func (k *Kernel) Block(w Panels, visit func(i int, units Mem, parts func() []Part), next func()) {
	if k.Sub > 0 {
		k.block256(w, visit, next)
		return
	}
	head := k.Head()
	for i, at := range w.At {
		visit(i, at(w.W, head), func() []Part {
			p := Part{N: 8, D: scale(at(w.W, 0))}
			if k.Min {
				p.M = scale(at(w.W, halves))
			}
			return []Part{p}
		})
	}
	ADDQ(U32(head+Unit*k.Bits), w.W)
	next()
}

// block256 is Block for types with blocks of 256 elements. Such a block has d and dmin, then four times the scales and
// minima of two spans and their units.
func (k *Kernel) block256(w Panels, visit func(i int, units Mem, parts func() []Part), next func()) {
	start, scales, left := GP64(), GP64(), GP64()
	MOVQ(w.W, start)
	ADDQ(U8(k.Head()), w.W)
	MOVQ(U32(8), left)
	Label("span")
	TESTB(U8(1), left.As8())
	JNE(LabelRef("second"))
	MOVQ(w.W, scales)
	ADDQ(U8(format.Vector), w.W)
	Label("second")
	for i, at := range w.At {
		visit(i, at(w.W, 0), func() (parts []Part) {
			for n := range 32 / k.Sub {
				p := Part{First: n * k.Sub / 4, N: k.Sub / 4}
				if k.Min {
					p.D = product(at(start, 0), at(scales, 16*n), VPMOVZXBD)
					p.M = product(at(start, halves), at(scales, format.Vector/2+16*n), VPMOVZXBD)
				} else {
					p.D = product(at(start, 0), at(scales, 16*n), VPMOVSXBD)
				}
				parts = append(parts, p)
			}
			return parts
		})
	}
	ADDQ(U8(16*32/k.Sub), scales)
	ADDQ(U32(Unit*k.Bits), w.W)
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

// AddScaled sets to to sum + products·(d·scale) + m·offset. products are the integer products of a part with a token,
// whose scales are at x. sum is a float32 vector in memory or in a register. Each operation rounds as in
// swar_products.go. AddScaled overwrites the products.
func (k *Kernel) AddScaled(to reg.VecVirtual, sum Op, products reg.VecVirtual, p Part, x Mem) {
	f := ZMM()
	VCVTDQ2PS(products, products)
	VMULPS_BCST(x.Offset(format.Scale), p.D, f)
	VMULPS(f, products, products)
	VADDPS(sum, products, to)
	if !k.Min {
		return
	}
	VMULPS_BCST(x.Offset(format.Offset), p.M, f)
	if k.Sub > 0 {
		VSUBPS(f, to, to) // these types subtract the minimum
	} else {
		VADDPS(f, to, to)
	}
}

// Advance adds a parameter of the function to a pointer, without a register for the parameter.
func Advance(param string, pointer reg.Register) {
	at, err := Param(param).Resolve()
	if err != nil {
		panic(err)
	}
	ADDQ(at.Addr, pointer)
}
