// Command r16 writes the AVX2 kernels for weights in layout r16, which r16.go describes: products
// with activations of 15 bits in blocks of 32 (qblock, in q8x2.go), and for products in float32
// what turns a panel into float32 and what multiplies that.
package main

import (
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

// A panel has two groups of eight rows, one for each half of a unit.
const (
	groups = 2
	vector = 32 // bytes
	unit   = groups * vector
)

func main() {
	ConstraintExpr("!purego")
	constants := newConstants()
	for _, f := range formats {
		for _, tokens := range []int{1, 2, 4} {
			k := &product{unpacker: unpacker{format: f, constants: constants}, tokens: tokens}
			k.write()
		}
		d := &dequantise{unpacker: unpacker{format: f, constants: constants}}
		d.write()
	}
	halves("F16", func(half Mem, v reg.VecVirtual) { VCVTPH2PS(half, v) })
	halves("BF16", func(half Mem, v reg.VecVirtual) {
		VPMOVZXWD(half, v)
		VPSLLD(U8(16), v, v) // the upper half of a float32
	})
	for _, tokens := range []int{1, 2, 4} {
		floats(tokens)
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

// An unpacker loads units as bytes.
type unpacker struct {
	format
	constants
	low, above Op   // masks of the low four bits and of those above
	kept       bool // in registers
}

// masks sets the masks, in registers if there are two to spare.
func (p *unpacker) masks(keep bool) {
	p.low, p.above, p.kept = p.constants.low, p.fifth, keep
	switch p.bits {
	case 6:
		p.above = p.high
	case 8:
		p.above = p.flip
	}
	if !keep {
		return
	}
	for _, mask := range []*Op{&p.low, &p.above} {
		r := YMM()
		VMOVDQU(*mask, r)
		*mask = r
	}
}

// upper is the vector with the bits above the fourth of unit t of a group.
func (p *unpacker) upper(w Mem, t int) Mem {
	if p.bits == 6 {
		return w.Offset(unit * (4 + t/4))
	}
	return w.Offset(unit * 4)
}

// bytes loads unit t of a group as unsigned bytes, whose upper bits are there. Shifts are of words:
// what comes from the next byte is masked.
func (p *unpacker) bytes(u reg.VecVirtual, w Mem, t int, upper Op) {
	switch {
	case p.bits == 8:
		VMOVDQU(w.Offset(unit*t), u)
		VPXOR(p.above, u, u) // signed bytes plus 128, the zero point
	case t >= 4:
		VMOVDQU(w.Offset(unit*(t%4)), u)
		VPSRLW(U8(4), u, u)
		VPAND(p.low, u, u)
	case !p.kept:
		VMOVDQU(w.Offset(unit*t), u)
		VPAND(p.low, u, u)
	default:
		VPAND(w.Offset(unit*t), p.low, u)
	}
	left := 4 - t
	switch p.bits {
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
	VPAND(p.above, upper, h)
	VPOR(h, u, u)
}

// A part is units of a block that share a scale.
type part struct {
	w        Mem // 32 elements
	first, n int // units of them

	// scales loads the d and m of each group.
	scales func() (d, m [groups]reg.VecVirtual)
}

// block visits the parts of the block at w and leaves w behind it; next is called after every 32
// elements.
func (p *unpacker) block(w reg.GPVirtual, visit func(part), next func()) {
	if p.sub > 0 {
		p.block256(w, visit, next)
		return
	}
	// d and m of 16 rows, and the units.
	head := vector
	if p.min {
		head = 2 * vector
	}
	base := Mem{Base: w}
	visit(part{base.Offset(head), 0, 8, func() (d, m [groups]reg.VecVirtual) {
		for g := range groups {
			d[g] = YMM()
			VCVTPH2PS(base.Offset(16*g), d[g])
			if p.min {
				m[g] = YMM()
				VCVTPH2PS(base.Offset(vector+16*g), m[g])
			}
		}
		return d, m
	}})
	ADDQ(U32(head+unit*p.bits), w)
	next()
}

// block256 is a block of 256 elements: d and dmin, then a byte for each scale and minimum, then
// the units of 32 elements, eight times.
func (p *unpacker) block256(w reg.GPVirtual, visit func(part), next func()) {
	head, scales, left := GP64(), GP64(), GP64()
	MOVQ(w, head)
	at := vector
	if p.min {
		at = 2 * vector
	}
	LEAQ(Mem{Base: w, Disp: at}, scales)
	ADDQ(U32(at+256), w) // 16 of 16 rows either way
	MOVQ(U32(8), left)
	extend := VPMOVZXBD
	if !p.min {
		extend = VPMOVSXBD
	}
	Label("sub")
	for first := 0; first < 8; first += p.sub / 4 {
		visit(part{Mem{Base: w}, first, p.sub / 4, func() (d, m [groups]reg.VecVirtual) {
			for g := range groups {
				at := 4*first + 8*g
				d[g] = byteScale(Mem{Base: head, Disp: 16 * g}, Mem{Base: scales, Disp: at}, extend)
				if p.min {
					m[g] = byteScale(Mem{Base: head, Disp: vector + 16*g}, Mem{Base: scales, Disp: 128 + at}, extend)
				}
			}
			return d, m
		}})
	}
	ADDQ(U8(512/p.sub), scales)
	ADDQ(U32(unit*p.bits), w)
	next()
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
