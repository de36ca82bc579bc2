// Command panel16 generates the AVX2 kernels for weights in layout panel16 (panel16.go): products with
// activations in q8x2 or q8 (planar.go), dequantization of panels to float32, and products of
// float32 panels with float32 activations.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pesti/exec/cpu/kernel/_asm/format"
)

// A panel has two groups of eight rows, one for each half of a unit.
const (
	groups = 2
	vector = 32 // bytes
	unit   = groups * vector
)

func main() {
	ConstraintExpr("!purego")
	constants := newConstants()
	for _, f := range format.Formats {
		for _, single := range []bool{false, true} {
			if single && f.Bits == 8 { // 8-bit weights have the same kernels for one plane and two
				continue
			}
			for _, o := range orders {
				k := &product{unpacker: unpacker{Format: f, constants: constants}, tokens: 1, single: single, order: o}
				k.write()
			}
			for _, tokens := range []int{2, 4} {
				k := &product{unpacker: unpacker{Format: f, constants: constants}, tokens: tokens, single: single}
				if tokens == 2 {
					k.prefetch = PREFETCHT0
				}
				k.write()
			}
		}
		d := &dequantize{unpacker: unpacker{Format: f, constants: constants}}
		d.write()
	}
	small("F16", 2, func(half Mem, v reg.VecVirtual) { VCVTPH2PS(half, v) })
	small("F8_E4M3", 1, constants.widenE4M3)
	small("BF16", 2, func(half Mem, v reg.VecVirtual) {
		VPMOVZXWD(half, v)
		VPSLLD(U8(16), v, v) // the upper half of a float32
	})
	for _, tokens := range []int{1, 2, 4} {
		floats(tokens)
	}
	Generate()
}

// constants are vectors in read-only memory that all kernels share.
type constants struct {
	bytes      map[uint64]Mem // each repeats one byte
	one, plane Mem            // factors of VPMADDWD: 1 and, for the high plane, 128

	e4m3NaN, e4m3Half, e4m3Bias Mem // see widenE4M3
}

func newConstants() constants {
	fill := func(name string, v uint64) Mem {
		m := GLOBL("panel16"+name, RODATA|NOPTR)
		for i := 0; i < vector; i += 8 {
			DATA(i, U64(v))
		}
		return m
	}
	c := constants{bytes: map[uint64]Mem{}}
	for _, b := range []uint64{0x03, 0x07, 0x08, 0x0c, 0x0f, 0x10, 0x18, 0x1f, 0x30, 0x3f, 0x80} {
		c.bytes[b] = fill(fmt.Sprintf("Bytes%02x", b), b*0x0101010101010101)
	}
	c.one, c.plane = fill("One", 0x0001000100010001), fill("Plane", 0x0080008000800080)
	c.e4m3NaN, c.e4m3Half = fill("E4M3NaN", 0x007f007f007f007f), fill("E4M3Half", 0xbfffbfffbfffbfff)
	c.e4m3Bias = fill("E4M3Bias", 0x4380000043800000) // 256 as float32
	return c
}

// An unpacker generates code that loads units as bytes.
type unpacker struct {
	format.Format
	constants
	low  Op   // mask of the bits of an element
	kept bool // low is in a register
}

// mask sets low, in a register if keep is true.
func (p *unpacker) mask(keep bool) {
	p.kept = keep
	if p.Bits == 8 {
		p.low = p.constants.bytes[0x80]
	} else {
		p.low = p.constants.bytes[1<<p.Bits-1]
	}
	if keep {
		r := YMM()
		VMOVDQU(p.low, r)
		p.low = r
	}
}

// unsigned loads unit t of a group as unsigned bytes. Shifts are of words; the mask removes bits of the next byte.
func (p *unpacker) unsigned(u reg.VecVirtual, w Mem, t int) {
	switch {
	case p.Bits == 8:
		VMOVDQU(w.Offset(unit*t), u)
		VPXOR(p.low, u, u) // signed bytes plus 128, the zero point
	case t < p.Bits && p.kept:
		VPAND(w.Offset(unit*t), p.low, u)
	case t < p.Bits:
		VMOVDQU(w.Offset(unit*t), u)
		VPAND(p.low, u, u)
	}
	for i, piece := range format.Pieces[p.Bits][t] {
		v := u
		if i > 0 {
			v = YMM()
		}
		VMOVDQU(w.Offset(unit*piece.Vector), v)
		VPSRLW(U8(piece.Right), v, v)
		if piece.Mask == 0x0f && p.kept {
			VPAND(p.low, v, v)
		} else {
			VPAND(p.constants.bytes[piece.Mask], v, v)
		}
		if i > 0 {
			VPOR(v, u, u)
		}
	}
}

// A part is the units of a block that share a scale.
type part struct {
	w        Mem // the 32 elements that contain the part
	first, n int // the part is units first to first+n-1

	// scales loads the d and m of each group.
	scales func() (d, m [groups]reg.VecVirtual)
}

// block visits the parts of the block at w and advances w. It calls next after every 32 elements.
func (p *unpacker) block(w reg.GPVirtual, visit func(part), next func()) {
	if p.Sub > 0 {
		p.block256(w, visit, next)
		return
	}
	// d and m of 16 rows, and the units.
	head := p.Head()
	base := Mem{Base: w}
	visit(part{base.Offset(head), 0, 8, func() (d, m [groups]reg.VecVirtual) {
		for g := range groups {
			d[g] = YMM()
			VCVTPH2PS(base.Offset(16*g), d[g])
			if p.Min {
				m[g] = YMM()
				VCVTPH2PS(base.Offset(vector+16*g), m[g])
			}
		}
		return d, m
	}})
	ADDQ(U32(head+unit*p.Bits), w)
	next()
}

// block256 is block for types with blocks of 256 elements. Such a block has d and dmin, then four times the scales,
// minima and units of 64 elements.
func (p *unpacker) block256(w reg.GPVirtual, visit func(part), next func()) {
	head, scales, left := GP64(), GP64(), GP64()
	MOVQ(w, head)
	ADDQ(U8(p.Head()), w)
	MOVQ(U32(8), left)
	extend := VPMOVZXBD
	if !p.Min {
		extend = VPMOVSXBD
	}
	Label("sub")
	TESTB(U8(1), left.As8())
	JNE(LabelRef("second"))
	MOVQ(w, scales)
	ADDQ(U8(format.Vector), w)
	Label("second")
	for first := 0; first < 8; first += p.Sub / 4 {
		visit(part{Mem{Base: w}, first, p.Sub / 4, func() (d, m [groups]reg.VecVirtual) {
			for g := range groups {
				at := 4*first + 8*g
				d[g] = byteScale(Mem{Base: head, Disp: 16 * g}, Mem{Base: scales, Disp: at}, extend)
				if p.Min {
					m[g] = byteScale(Mem{Base: head, Disp: vector + 16*g}, Mem{Base: scales, Disp: format.Vector/2 + at}, extend)
				}
			}
			return d, m
		}})
	}
	ADDQ(U8(512/p.Sub), scales)
	ADDQ(U32(unit*p.Bits), w)
	next()
	DECQ(left)
	JNE(LabelRef("sub"))
}

// byteScale returns a float16 times a byte, for eight rows.
func byteScale(half, bytes Mem, extend func(ops ...Op)) reg.VecVirtual {
	d, s := YMM(), YMM()
	extend(bytes, s)
	VCVTDQ2PS(s, s)
	VCVTPH2PS(half, d)
	VMULPS(s, d, d)
	return d
}
