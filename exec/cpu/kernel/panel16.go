package kernel

import (
	"encoding/binary"
	"slices"

	"pesti/gguf/quant"
)

// A Layout is the order of a repacked weight matrix's elements. n rows of k elements become ⌈n/16⌉
// panels of 16 rows; rows missing in the last one are zero. A panel is a sequence of blocks along k,
// each with Block elements of all 16 rows. The table of exec/plan/layout.go has their sizes, which follow here from
// the order; a test compares them.
type Layout struct {
	Name  string // as in names of kernels: "panel16"
	Type  quant.Type
	Block int // elements of a row in a block
	Bytes int // of a panel's block

	// For integer types: bits of an element, and the format of the scales before the units.
	bits   int
	scales *scales
}

const (
	panelRows = 16
	unitBytes = 4 * panelRows
)

// Layout panel16 stores integers in units. A unit has four elements of each of the 16 rows: it is a vector
// of 64 bytes whose 32-bit lane r belongs to row r. The same four activations multiply all lanes of a
// unit, whatever the width of the machine's vectors. Every 32 elements of k are eight units; unit t has
// elements 4t to 4t+3. The eight units of elements of b bits are packed into b vectors: unit t < b is in
// the low bits of the bytes of vector t, and the other units are in the unused high bits, as packUnits
// shows. q8_0 is signed; other types are stored as in the file.
//
// A block is stored in the order in which kernels read it, because loads at ascending addresses are the
// fastest. It begins with d as 16 float16, and m or dmin as 16 float16 if the type has it. Then come the
// units. In types with sub-blocks, a vector of scales precedes the units of every 64 elements: a byte of
// each row for each of their sub-blocks, and then for each minimum if there is one. For float types, a
// block is one element of each row. The row scales of f8_e4m3 are not part of the layout.
var layouts = []Layout{
	floatLayout(quant.F32),
	floatLayout(quant.F16),
	floatLayout(quant.BF16),
	floatLayout(quant.F8E4M3),
	integerLayout(quant.Q4_0, 4, &scaleOnly),
	integerLayout(quant.Q4_1, 4, &scaleAndMin),
	integerLayout(quant.Q5_0, 5, &scaleOnly),
	integerLayout(quant.Q5_1, 5, &scaleAndMin),
	integerLayout(quant.Q8_0, 8, &scaleOnly),
	integerLayout(quant.Q4_K, 4, &scalesK),
	integerLayout(quant.Q5_K, 5, &scalesK),
	integerLayout(quant.Q6_K, 6, &scalesQ6_K),
}

func floatLayout(t quant.Type) Layout {
	l := Layout{Name: "panel16", Type: t, Block: 1}
	l.Bytes = panelRows * l.info().BlockBytes
	return l
}

func integerLayout(t quant.Type, bits int, s *scales) Layout {
	l := Layout{Name: "panel16", Type: t, bits: bits, scales: s}
	l.Block = l.info().BlockLen
	l.Bytes = l.units(l.Block/32-1) + bits*unitBytes
	return l
}

// Layouts returns the layouts, one row per layout and type.
func Layouts() []Layout { return slices.Clone(layouts) }

// LookupLayout returns the layout of that name for weights of a type.
func LookupLayout(name string, t quant.Type) (*Layout, bool) {
	for i := range layouts {
		if l := &layouts[i]; l.Name == name && l.Type == t {
			return l, true
		}
	}
	return nil, false
}

// units returns the offset in a block of its units from element 32·i on.
func (l *Layout) units(i int) int {
	return l.scales.head + (i/2+1)*l.scales.vector + i*l.bits*unitBytes
}

// scaleVector returns the vector of scales that precedes the units from element 64·i on.
func (l *Layout) scaleVector(block []byte, i int) []byte {
	return block[l.units(2*i)-unitBytes:][:unitBytes]
}

// panel returns the size in bytes of a panel whose rows have k elements.
func (l *Layout) panel(k int) int { return k / l.Block * l.Bytes }

// info returns the description of the layout's type.
func (l *Layout) info() *quant.Info {
	info, _ := quant.ByName(l.Type.String())
	return info
}

// Panels returns the number of panels of n rows.
func (l *Layout) Panels(n int) int { return (n + panelRows - 1) / panelRows }

// Size returns the size in bytes of a matrix of n rows of k elements. k is a multiple of the block.
func (l *Layout) Size(n, k int) int { return l.Panels(n) * l.panel(k) }

// Pack is a Packer in portable Go.
func (l *Layout) Pack(dst, src []byte, n, k, from, to int) {
	info := l.info()
	rowBytes := k / info.BlockLen * info.BlockBytes
	var u swarSpan // one for all panels, to save an allocation of 640 bytes for each
	for p := from; p < to; p++ {
		panel := dst[p*l.panel(k):][:l.panel(k)]
		first := p * panelRows
		rows := min(panelRows, n-first)
		if rows < panelRows {
			clear(panel)
		}
		file := src[first*rowBytes : (first+rows)*rowBytes]
		if l.scales == nil {
			l.packFloats(panel, file, rows)
		} else {
			l.packIntegers(panel, file, rows, &u)
		}
	}
}

// packFloats transposes rows into columns.
func (l *Layout) packFloats(panel, file []byte, rows int) {
	size := l.Bytes / panelRows
	rowBytes := len(file) / rows
	for r := range rows {
		row, lane := file[r*rowBytes:(r+1)*rowBytes], panel[r*size:]
		switch size {
		case 1:
			for at, b := range row {
				lane[at*panelRows] = b
			}
		case 2:
			for at := 0; at+2 <= len(row); at += 2 {
				put16(lane[at*panelRows:], le16(row[at:]))
			}
		case 4:
			for at := 0; at+4 <= len(row); at += 4 {
				put32(lane[at*panelRows:], get32(row[at:]))
			}
		}
	}
}

// packIntegers packs two rows at a time. A swarSpan already holds their elements as units.
func (l *Layout) packIntegers(panel, file []byte, rows int, u *swarSpan) {
	info, _ := quant.Lookup(l.Type)
	t := swarTypeOf(l.Type)
	rowBytes := len(file) / rows
	spanBytes, spanUnits := span/info.BlockLen*info.BlockBytes, span/l.Block*l.Bytes
	for r := 0; r < rows; r += 2 {
		both := ^uint64(0)
		if r+1 == rows { // a missing row is zero
			both >>= 32
		}
		r0, r1 := file[r*rowBytes:][:rowBytes], file[min(r+1, rows-1)*rowBytes:][:rowBytes]
		for rest := panel; len(r0) > 0; {
			n := min(spanBytes, len(r0))
			t.unpack(u, r0[:n], r1[:n])
			l.packSpan(rest, u, n/info.BlockBytes*info.BlockLen, r, both)
			for at, block := 0, rest; at < n; at += info.BlockBytes {
				l.scales.pack(l, block, r0[at:], r)
				if r+1 < rows {
					l.scales.pack(l, block, r1[at:], r+1)
				}
				block = block[l.Bytes:]
			}
			r0, r1, rest = r0[n:], r1[n:], rest[min(spanUnits, len(rest)):]
		}
	}
}

// packSpan stores n elements of rows r and r+1. The mask both clears a missing row.
func (l *Layout) packSpan(panel []byte, u *swarSpan, n, r int, both uint64) {
	for b := 0; b < n/32; panel = panel[l.Bytes:] {
		for i := range l.Block / 32 {
			l.packUnits(panel[l.units(i)+4*r:], &u.u[b], both)
			b++
		}
	}
}

// packUnits stores 32 elements of two rows in their lanes of the units.
func (l *Layout) packUnits(units []byte, u *[8]uint64, both uint64) {
	v := *u
	switch l.bits {
	case 4:
		v[0] |= v[4] << 4
		v[1] |= v[5] << 4
		v[2] |= v[6] << 4
		v[3] |= v[7] << 4
	case 5: // three bits are free in five vectors
		v[0] |= v[5] & (7 * eachByte) << 5
		v[1] |= v[5]&(24*eachByte)<<2 | v[7]&(8*eachByte)<<4
		v[2] |= v[6] & (7 * eachByte) << 5
		v[3] |= v[6]&(24*eachByte)<<2 | v[7]&(16*eachByte)<<3
		v[4] |= v[7] & (7 * eachByte) << 5
	case 6: // two bits are free in six vectors
		v[0] |= v[6] & (3 * eachByte) << 6
		v[1] |= v[6] & (12 * eachByte) << 4
		v[2] |= v[6] & (48 * eachByte) << 2
		v[3] |= v[7] & (3 * eachByte) << 6
		v[4] |= v[7] & (12 * eachByte) << 4
		v[5] |= v[7] & (48 * eachByte) << 2
	case 8:
		for t := range v {
			v[t] ^= 128 * eachByte
		}
	}
	for i, v := range v[:l.bits] {
		put64(units[unitBytes*i:], v&both)
	}
}

// unpack is the unpack function of a swarType, for rows r and r+1 of a panel, up to a span of it.
func (l *Layout) unpack(u *swarSpan, panel []byte, r int) {
	for at, b := 0, 0; at < len(panel); at += l.Bytes {
		block := panel[at : at+l.Bytes]
		for i := range 2 {
			l.scales.read(l, u.d[i][b:], u.m[i][b:], block, r+i)
		}
		for i := range l.Block / 32 {
			l.unpackUnits(&u.u[b], block[l.units(i)+4*r:])
			b++
		}
	}
}

// unpackUnits is the inverse of packUnits.
func (l *Layout) unpackUnits(u *[8]uint64, units []byte) {
	var v [8]uint64
	for i := range v[:l.bits] {
		v[i] = get64(units[unitBytes*i:])
		u[i] = v[i] & ((1<<l.bits - 1) * eachByte)
	}
	switch l.bits {
	case 4:
		for i := range 4 {
			u[4+i] = v[i] >> 4 & (15 * eachByte)
		}
	case 5:
		u[5] = v[0]>>5&(7*eachByte) | v[1]>>2&(24*eachByte)
		u[6] = v[2]>>5&(7*eachByte) | v[3]>>2&(24*eachByte)
		u[7] = v[4]>>5&(7*eachByte) | v[1]>>4&(8*eachByte) | v[3]>>3&(16*eachByte)
	case 6:
		u[6] = v[0]>>6&(3*eachByte) | v[1]>>4&(12*eachByte) | v[2]>>2&(48*eachByte)
		u[7] = v[3]>>6&(3*eachByte) | v[4]>>4&(12*eachByte) | v[5]>>2&(48*eachByte)
	case 8:
		for t := range u {
			u[t] ^= 128 * eachByte
		}
	}
}

// rows is a rowLoader for panels.
func (l *Layout) rows(u *swarSpan, w []byte, k, i, _, at int) {
	panel := w[i/panelRows*l.panel(k):][:l.panel(k)]
	from := at / l.Block * l.Bytes
	to := min(from+span/l.Block*l.Bytes, len(panel))
	l.unpack(u, panel[from:to], i%panelRows)
}

// row is a dequantizer for panels. It gives the same bits as gguf/quant.
func (l *Layout) row(dst []float32, w []byte, i int, u *swarSpan) {
	if l.scales == nil {
		l.floatRow(dst, w, i)
		return
	}
	t := swarTypeOf(l.Type)
	for at := 0; at < len(dst); at += span {
		l.rows(u, w, len(dst), i&^1, 0, at)
		for e := range dst[at:min(at+span, len(dst))] {
			sub := e / 32
			if t.block == narrow16 {
				sub = e / 16
			}
			q := int32(u.u[e/32][e%32/4] >> (32*(i&1) + 8*(e%4)) & 255)
			v := float32(u.d[i&1][sub] * float32(q-t.zero))
			if t.min {
				v += u.m[i&1][sub]
			}
			dst[at+e] = v
		}
	}
}

// floatRow is row for float types.
func (l *Layout) floatRow(dst []float32, w []byte, i int) {
	info := l.info()
	size := l.Bytes / panelRows
	column := w[i/panelRows*l.panel(len(dst))+i%panelRows*size:]
	for e := range dst {
		info.Dequantize(dst[e:e+1], column[e*l.Bytes:][:size])
	}
}

func get32(b []byte) uint32    { return binary.LittleEndian.Uint32(b) }
func get64(b []byte) uint64    { return binary.LittleEndian.Uint64(b) }
func put16(b []byte, v uint16) { binary.LittleEndian.PutUint16(b, v) }
func put32(b []byte, v uint32) { binary.LittleEndian.PutUint32(b, v) }
func put64(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }

// scales is the format of the scales of a panel's block.
type scales struct {
	head   int // bytes of the float16 scales, at the beginning
	vector int // bytes of scales and minima before the units of every 64 elements: 64, or 0 if there are none
	// pack stores the scales of row r from a block of the file. read sets d and m of each sub-block to
	// the values of a swarType's unpack function.
	pack func(l *Layout, panel, file []byte, r int)
	read func(l *Layout, d, m []float32, panel []byte, r int)
}

var scaleOnly = scales{
	head: 32,
	pack: func(_ *Layout, panel, file []byte, r int) { put16(panel[2*r:], le16(file)) },
	read: func(_ *Layout, d, m []float32, panel []byte, r int) { d[0] = f16(le16(panel[2*r:])) },
}

var scaleAndMin = scales{
	head: 64,
	pack: func(_ *Layout, panel, file []byte, r int) {
		put16(panel[2*r:], le16(file))
		put16(panel[32+2*r:], le16(file[2:]))
	},
	read: func(_ *Layout, d, m []float32, panel []byte, r int) {
		d[0], m[0] = f16(le16(panel[2*r:])), f16(le16(panel[32+2*r:]))
	},
}

var scalesK = scales{
	head:   64,
	vector: unitBytes,
	pack: func(l *Layout, panel, file []byte, r int) {
		scaleAndMin.pack(l, panel, file, r)
		scale, low := sixBits((*[12]byte)(file[4:]))
		for j := range 8 {
			v := l.scaleVector(panel, j/2)
			v[16*(j%2)+r], v[32+16*(j%2)+r] = scale[j], low[j]
		}
	},
	read: func(l *Layout, d, m []float32, panel []byte, r int) {
		scale, low := f16(le16(panel[2*r:])), -f16(le16(panel[32+2*r:]))
		for j := range 8 {
			v := l.scaleVector(panel, j/2)
			d[j], m[j] = scale*float32(v[16*(j%2)+r]), low*float32(v[32+16*(j%2)+r])
		}
	},
}

var scalesQ6_K = scales{
	head:   32,
	vector: unitBytes,
	pack: func(l *Layout, panel, file []byte, r int) {
		for j, s := range file[192:208] {
			l.scaleVector(panel, j/4)[16*(j%4)+r] = s
		}
		put16(panel[2*r:], le16(file[208:]))
	},
	read: func(l *Layout, d, m []float32, panel []byte, r int) {
		scale := f16(le16(panel[2*r:]))
		for j := range 16 {
			d[j] = scale * float32(int8(l.scaleVector(panel, j/4)[16*(j%4)+r]))
		}
	},
}
