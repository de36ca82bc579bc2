// Command pack generates the AVX2 kernels that pack weights into layout panel16. They store the same bytes as
// the portable code in panel16.go.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pesti/exec/cpu/kernel/_asm/format"
)

// A kind describes an integer type: where a block of the file has its bits and scales.
type kind struct {
	format.Format
	file    int // bytes of a block of the file
	subs    int // sub-blocks of 32 elements in a block
	units   func(sub, half int) []bits
	fifth   int   // offset of the 32 highest bits, in the order of the elements, or 0
	scales  []int // offsets of float16 scales
	reorder func(p *packer, f format.Format)
}

// bits describes where a block of the file has bits of the 16 elements of half a sub-block.
type bits struct {
	at   int
	left int    // left shift
	mask uint64 // bits of an element, or 0 for all
}

var kinds = []kind{
	{Format: format.Named("Q4_0"), file: 18, subs: 1, units: nibbles(2), scales: []int{0}},
	{Format: format.Named("Q4_1"), file: 20, subs: 1, units: nibbles(4), scales: []int{0, 2}},
	{Format: format.Named("Q5_0"), file: 22, subs: 1, units: nibbles(6), fifth: 2, scales: []int{0}},
	{Format: format.Named("Q5_1"), file: 24, subs: 1, units: nibbles(8), fifth: 4, scales: []int{0, 2}},
	{Format: format.Named("Q8_0"), file: 34, subs: 1, scales: []int{0},
		units: func(_, half int) []bits { return []bits{{at: 2 + 16*half}} }},
	{Format: format.Named("Q4_K"), file: 144, subs: 8, scales: []int{0, 2}, reorder: (*packer).sixBits,
		units: func(sub, half int) []bits { return []bits{nibbleK(16, sub, half)} }},
	{Format: format.Named("Q5_K"), file: 176, subs: 8, scales: []int{0, 2}, reorder: (*packer).sixBits,
		units: func(sub, half int) []bits {
			return []bits{nibbleK(48, sub, half), {at: 16 + 16*half, left: 4 - sub, mask: 0x10}}
		}},
	{Format: format.Named("Q6_K"), file: 210, subs: 8, scales: []int{208}, reorder: (*packer).eightBits,
		units: func(sub, half int) []bits {
			n, j := sub/4, sub%4
			return []bits{
				{at: 64*n + 32*(j%2) + 16*half, left: -4 * (j / 2), mask: 0x0f},
				{at: 128 + 32*n + 16*half, left: 4 - 2*j, mask: 0x30},
			}
		}},
}

// nibbles describes 16 bytes, each with one element of the first half and one of the second.
func nibbles(at int) func(_, half int) []bits {
	return func(_, half int) []bits { return []bits{{at: at, left: -4 * half, mask: 0x0f}} }
}

// nibbleK describes 32 bytes, each with one element of a sub-block and one of the next sub-block.
func nibbleK(at, sub, half int) bits {
	return bits{at: at + 32*(sub/2) + 16*half, left: -4 * (sub % 2), mask: 0x0f}
}

func main() {
	ConstraintExpr("!purego")
	c := newConstants()
	for _, k := range kinds {
		k.write(c)
	}
	float32s()
	float16s(c)
	Generate()
}

// A packer packs eight rows at a time, which are the lanes of a vector.
type packer struct {
	constants
	src, dst reg.GPVirtual
	steps    map[int]reg.GPVirtual // distance in bytes of 1, 3, 5 and 7 rows
	first    reg.GPVirtual         // first of the eight rows: 0 or 8
	loaded   struct {              // what quad loaded last
		at      int
		columns [4]reg.VecVirtual
	}
}

// begin writes the start of a kernel: its declaration, and the code that loads its parameters.
func begin(name, what string, c constants) *packer {
	TEXT("pack"+name, NOSPLIT, "func(dst, src *byte, step, blocks int)")
	Doc(fmt.Sprintf("pack%s packs blocks of %s of 16 rows, which begin at src and are step bytes apart, into a panel at dst.", name, what))
	p := &packer{constants: c, steps: map[int]reg.GPVirtual{}}
	p.loaded.at = -1
	p.dst = Load(Param("dst"), GP64()).(reg.GPVirtual)
	p.src = Load(Param("src"), GP64()).(reg.GPVirtual)
	for _, rows := range []int{1, 3, 5, 7} {
		p.steps[rows] = GP64()
	}
	Load(Param("step"), p.steps[1])
	for rows := 3; rows <= 7; rows += 2 {
		LEAQ(Mem{Base: p.steps[rows-2], Index: p.steps[1], Scale: 2}, p.steps[rows])
	}
	p.first = GP64()
	return p
}

// loop writes the loop over blocks and the end of the kernel. A block has file bytes in a row and panel bytes in
// a panel. body packs eight rows of a block.
func (p *packer) loop(file, panel int, body func()) {
	blocks, next := Load(Param("blocks"), GP64()), GP64()
	MOVQ(p.steps[1], next) // distance from behind row 15 to the next block of row 0
	SHLQ(U8(4), next)
	NEGQ(next)
	ADDQ(I32(file), next)

	Label("block")
	SUBQ(U8(1), blocks)
	JL(LabelRef("done"))
	XORQ(p.first, p.first)
	Label("rows")
	body()
	LEAQ(Mem{Base: p.src, Index: p.steps[1], Scale: 8}, p.src)
	ADDQ(U8(8), p.first)
	CMPQ(p.first, U8(16))
	JLT(LabelRef("rows"))
	ADDQ(next, p.src)
	ADDQ(I32(panel), p.dst)
	JMP(LabelRef("block"))

	Label("done")
	VZEROUPPER()
	RET()
}

// row returns the address of offset at in row r of the eight rows.
func (p *packer) row(r, at int) Mem {
	m := Mem{Base: p.src, Disp: at}
	switch r {
	case 0:
	case 2, 4:
		m.Index, m.Scale = p.steps[1], uint8(r)
	case 6:
		m.Index, m.Scale = p.steps[3], 2
	default:
		m.Index, m.Scale = p.steps[r], 1
	}
	return m
}

// lanes returns the address of the eight rows' lanes in the vector at an offset of the panel's block. A lane has
// size bytes.
func (p *packer) lanes(size uint8, at int) Mem {
	return Mem{Base: p.dst, Index: p.first, Scale: size, Disp: at}
}

// columns loads 16 bytes of each row and transposes them: each of the four vectors has 4 bytes of each row.
func (p *packer) columns(at int) [4]reg.VecVirtual {
	var v, t, c [4]reg.VecVirtual
	for i := range v {
		v[i] = YMM()
		VBROADCASTI128(p.row(i, at), v[i])
		VINSERTI128(U8(1), p.row(i+4, at), v[i], v[i])
	}
	for i := range t {
		t[i], c[i] = YMM(), YMM()
	}
	VPUNPCKLDQ(v[1], v[0], t[0])
	VPUNPCKHDQ(v[1], v[0], t[1])
	VPUNPCKLDQ(v[3], v[2], t[2])
	VPUNPCKHDQ(v[3], v[2], t[3])
	VPUNPCKLQDQ(t[2], t[0], c[0])
	VPUNPCKHQDQ(t[2], t[0], c[1])
	VPUNPCKLQDQ(t[3], t[1], c[2])
	VPUNPCKHQDQ(t[3], t[1], c[3])
	return c
}

// write writes the kernel of an integer type.
func (k *kind) write(c constants) {
	p := begin(k.Name, k.Name, c)
	p.loop(k.file, k.Size(), func() {
		for i, at := range k.scales {
			VMOVDQU(p.halves(at), p.lanes(2, 32*i))
		}
		if k.reorder != nil {
			k.reorder(p, k.Format)
		}
		for sub := range k.subs {
			units := func(v int) Mem { return p.lanes(4, k.Units(sub)+64*v) }
			if k.Bits == 8 {
				for half := range 2 {
					for i, v := range k.quad(p, sub, half) {
						VMOVDQU(v, units(4*half+i))
					}
				}
				continue
			}
			quad := func(half int) [4]reg.VecVirtual { return k.quad(p, sub, half) }
			if k.fifth != 0 {
				row := p.column(k.fifth)
				quad = func(half int) [4]reg.VecVirtual {
					u := k.quad(p, sub, half)
					p.addFifth(row, u, half)
					return u
				}
			}
			// Units without a vector of their own come first: pieces of them go into the high bits of the others.
			above := map[int]reg.VecVirtual{}
			for i, u := range quad(1) {
				for _, piece := range format.Pieces[k.Bits][4+i] {
					p.put(above, piece, u)
				}
				if 4+i < k.Bits {
					p.or(above, 4+i, u)
				}
			}
			for v := 4; v < k.Bits; v++ {
				VMOVDQU(above[v], units(v))
			}
			for v, u := range quad(0) {
				VPOR(above[v], u, u)
				VMOVDQU(u, units(v))
			}
		}
	})
}

// put adds a piece of a unit to the high bits of another unit's vector.
func (p *packer) put(above map[int]reg.VecVirtual, piece format.Piece, u reg.VecVirtual) {
	v := YMM()
	VPAND(p.bytes[piece.Mask], u, v)
	VPSLLD(U8(piece.Right), v, v)
	p.or(above, piece.Vector, v)
}

func (p *packer) or(above map[int]reg.VecVirtual, i int, v reg.VecVirtual) {
	if has, ok := above[i]; ok {
		VPOR(v, has, has)
	} else {
		above[i] = v
	}
}

// quad loads the four units of half a sub-block.
func (k *kind) quad(p *packer, sub, half int) [4]reg.VecVirtual {
	var units [4]reg.VecVirtual
	for n, b := range k.units(sub, half) {
		if p.loaded.at != b.at { // the last call may have used other bits of the same bytes
			p.loaded.at, p.loaded.columns = b.at, p.columns(b.at)
		}
		for i, v := range p.loaded.columns {
			u := v
			switch { // shifts are of dwords; the mask removes bits of the neighboring byte
			case b.left > 0:
				u = YMM()
				VPSLLD(U8(b.left), v, u)
			case b.left < 0:
				u = YMM()
				VPSRLD(U8(-b.left), v, u)
			}
			if b.mask != 0 {
				v, u = u, YMM()
				VPAND(p.bytes[b.mask], v, u)
			}
			if n > 0 {
				VPOR(units[i], u, u)
			}
			units[i] = u
		}
	}
	return units
}

// addFifth adds the fifth bits to the units of half a sub-block. row has the 32 fifth bits of each row's sub-block.
func (p *packer) addFifth(row reg.VecVirtual, units [4]reg.VecVirtual, half int) {
	for i, u := range units {
		// Copy the byte with the unit's bits to each element, and keep the element's own bit.
		v := YMM()
		VPSHUFB(p.spread[2*half+i/2], row, v)
		VPAND(p.single[i%2], v, v)
		VPCMPEQB(p.single[i%2], v, v)
		VPAND(p.bytes[0x10], v, v)
		VPOR(v, u, u)
	}
}

// column loads four bytes of each row.
func (p *packer) column(at int) reg.VecVirtual {
	v, high := YMM(), XMM()
	VPXOR(v, v, v) // initialize the whole register, which avo requires
	for i, half := range []reg.VecVirtual{v.AsX().(reg.VecVirtual), high} {
		VMOVD(p.row(4*i, at), half)
		for r := 1; r < 4; r++ {
			VPINSRD(U8(r), p.row(4*i+r, at), half, half)
		}
	}
	VINSERTI128(U8(1), high, v, v)
	return v
}

// halves loads a word of each row.
func (p *packer) halves(at int) reg.VecVirtual {
	v := XMM()
	VPXOR(v, v, v)
	for r := range 8 {
		VPINSRW(U8(r), p.row(r, at), v, v)
	}
	return v
}

// sixBits unpacks the 6-bit scales and minima of a block, as sixBits in swar.go does.
func (p *packer) sixBits(f format.Format) {
	c := p.columns(0)
	for i, first := range c[1:3] {
		v, high := YMM(), YMM()
		VPSRLD(U8(2), first, high)
		VPAND(p.bytes[0x30], high, high)
		VPAND(p.bytes[0x3f], first, first)
		at := f.ScaleAt
		if i == 1 {
			at = f.MinAt
		}
		p.turn(first, at(0), at(1), at(2), at(3))
		if i == 0 {
			VPAND(p.bytes[0x0f], c[3], v)
		} else {
			VPSRLD(U8(4), c[3], v)
			VPAND(p.bytes[0x0f], v, v)
		}
		VPOR(high, v, v)
		p.turn(v, at(4), at(5), at(6), at(7))
	}
}

// eightBits copies the 16 scales of a block.
func (p *packer) eightBits(f format.Format) {
	for i, v := range p.columns(192) {
		p.turn(v, f.ScaleAt(4*i), f.ScaleAt(4*i+1), f.ScaleAt(4*i+2), f.ScaleAt(4*i+3))
	}
}

// turn transposes four bytes of each row and stores four vectors, each with one byte of each row.
func (p *packer) turn(v reg.VecVirtual, at ...int) {
	high := XMM()
	VPSHUFB(p.fours, v, v)
	VEXTRACTI128(U8(1), v, high)
	for i, unpack := range []func(...Op){
		func(o ...Op) { VPUNPCKLDQ(o[0], o[1], o[2]) },
		func(o ...Op) { VPUNPCKHDQ(o[0], o[1], o[2]) },
	} {
		both := XMM()
		unpack(high, v.AsX(), both)
		VMOVQ(both, p.lanes(1, at[2*i]))
		VMOVHPS(both, p.lanes(1, at[2*i+1]))
	}
}

// float32s packs four elements at a time.
func float32s() {
	p := begin("F32", "4 float32", constants{})
	p.loop(16, 4*64, func() {
		for i, v := range p.columns(0) {
			VMOVDQU(v, p.lanes(4, 64*i))
		}
	})
}

// float16s packs eight elements of a 2-byte type at a time.
func float16s(c constants) {
	p := begin("F16", "8 float16 or bfloat16", c)
	p.loop(16, 8*32, func() {
		for i, v := range p.columns(0) {
			// v has two elements of each row. Separate the even elements from the odd ones.
			VPSHUFB(p.evens, v, v)
			VPERMQ(U8(0b11_01_10_00), v, v)
			VMOVDQU(v.AsX(), p.lanes(2, 64*i))
			VEXTRACTI128(U8(1), v, p.lanes(2, 64*i+32))
		}
	})
}

// constants are vectors in read-only memory that all kernels share.
type constants struct {
	bytes  map[uint64]Mem // each repeats one byte
	spread [4]Mem         // shuffle i copies byte i of each dword to all four of its bytes
	single [2]Mem         // byte j of a dword has bit j, or bit 4+j
	fours  Mem            // shuffle that gathers the lowest bytes of four dwords, then the next bytes
	evens  Mem            // shuffle that gathers the low words of four dwords, then the high words
}

func newConstants() constants {
	lanes := func(name string, low, high uint64) Mem {
		m := GLOBL("pack"+name, RODATA|NOPTR)
		for i := 0; i < 32; i += 16 {
			DATA(i, U64(low))
			DATA(i+8, U64(high))
		}
		return m
	}
	const each = 0x0101010101010101
	c := constants{
		bytes:  map[uint64]Mem{},
		single: [2]Mem{lanes("Lower", 0x0804020108040201, 0x0804020108040201), lanes("Upper", 0x8040201080402010, 0x8040201080402010)},
		fours:  lanes("Fours", 0x0d0905010c080400, 0x0f0b07030e0a0602),
		evens:  lanes("Evens", 0x0d0c090805040100, 0x0f0e0b0a07060302),
	}
	for _, b := range []uint64{0x03, 0x07, 0x08, 0x0c, 0x0f, 0x10, 0x18, 0x30, 0x3f} {
		c.bytes[b] = lanes(fmt.Sprintf("Bytes%02x", b), b*each, b*each)
	}
	for i := range c.spread {
		c.spread[i] = lanes(fmt.Sprint("Spread", i), 0x0404040400000000+uint64(i)*each, 0x0c0c0c0c08080808+uint64(i)*each)
	}
	return c
}
