package kernel

import (
	"encoding/binary"
	"slices"

	"pesti/gguf/quant"
)

// A Layout is an order of a weight matrix's elements that kernels want in place of the file's.
// n rows of k elements become ⌈n/16⌉ panels of 16 rows, the last one filled up with zeros; a panel
// is a sequence of blocks along k, each with Block elements of all its rows. A plan's table of
// layouts has the same sizes.
type Layout struct {
	Name  string // as in the names of kernels: "r16"
	Type  quant.Type
	Block int // elements of a row in a block
	Bytes int // of a panel's block

	// pack stores one block of lane r of a panel, and unpack gives it back as in the file.
	pack   func(panel, file []byte, r int)
	unpack func(file, panel []byte, r int)
}

// Layout r16 holds integers in units: vectors of 64 bytes whose 32-bit lane r belongs to row r, so
// that one unit meets the same four activations in all 16 rows, whatever width a machine's vectors
// have. Every 32 elements of k are eight units of bytes, unit t being elements 4t to 4t+3, of which
// a panel holds
//   - q8_0: the units
//   - others: four vectors with the low four bits of unit t in their low and those of unit 4+t
//     in their high nibbles; then for 5 bits one vector with the fifth bit of unit t in bit t of
//     each byte, and for 6 bits two with the high bits of unit t in bits 2t and 2t+1 of the first,
//     and those of unit 4+t there in the second.
//
// A block begins with its scales: d as 16 float16, then dmin or m where the type has it; of types
// with sub-blocks then a byte for the scale of each sub-block and row, and of the minima. Blocks of
// float types are 16 elements.
const (
	panelRows = 16
	unitBytes = 4 * panelRows
)

var layouts = []Layout{
	{"r16", quant.F32, 1, 64, packF32, unpackF32},
	{"r16", quant.F16, 1, 32, packF16, unpackF16},
	{"r16", quant.BF16, 1, 32, packF16, unpackF16},
	{"r16", quant.Q4_0, 32, 288, packR16Q4_0, unpackR16Q4_0},
	{"r16", quant.Q4_1, 32, 320, packR16Q4_1, unpackR16Q4_1},
	{"r16", quant.Q5_0, 32, 352, packR16Q5_0, unpackR16Q5_0},
	{"r16", quant.Q5_1, 32, 384, packR16Q5_1, unpackR16Q5_1},
	{"r16", quant.Q8_0, 32, 544, packR16Q8_0, unpackR16Q8_0},
	{"r16", quant.Q4_K, 256, 2368, packR16Q4_K, unpackR16Q4_K},
	{"r16", quant.Q5_K, 256, 2880, packR16Q5_K, unpackR16Q5_K},
	{"r16", quant.Q6_K, 256, 3360, packR16Q6_K, unpackR16Q6_K},
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

// panel returns the bytes of a panel of rows of k elements.
func (l *Layout) panel(k int) int { return k / l.Block * l.Bytes }

// Size returns the bytes that a matrix of n rows of k elements takes, k being whole blocks.
func (l *Layout) Size(n, k int) int { return (n + panelRows - 1) / panelRows * l.panel(k) }

// Panels returns the number of panels of n rows.
func (l *Layout) Panels(n int) int { return (n + panelRows - 1) / panelRows }

// Pack stores the panels from ≤ p < to of a matrix of n rows of k elements, which src holds as in
// the file, where they belong in dst, which has room for all of it. Calls for different panels
// may run side by side.
func (l *Layout) Pack(dst, src []byte, n, k, from, to int) {
	info, _ := quant.Lookup(l.Type)
	blocks, fileBytes := k/l.Block, l.Block/info.BlockLen*info.BlockBytes
	rowBytes := blocks * fileBytes
	for p := from; p < to; p++ {
		panel := dst[p*l.panel(k):][:l.panel(k)]
		first := p * panelRows
		rows := min(panelRows, n-first)
		if rows < panelRows {
			clear(panel)
		}
		for b := range blocks {
			block := panel[b*l.Bytes:][:l.Bytes]
			for r := range rows {
				l.pack(block, src[(first+r)*rowBytes+b*fileBytes:][:fileBytes], r)
			}
		}
	}
}

// unpackRow stores row r of a panel as in the file.
func (l *Layout) unpackRow(dst, panel []byte, r int) {
	info, _ := quant.Lookup(l.Type)
	fileBytes := l.Block / info.BlockLen * info.BlockBytes
	for len(panel) >= l.Bytes {
		l.unpack(dst[:fileBytes], panel[:l.Bytes], r)
		dst, panel = dst[fileBytes:], panel[l.Bytes:]
	}
}

// spread stores four-byte words of one row as lanes of consecutive units, the first of which
// begins at its lane. gather is its inverse.
func spread(units, words []byte) {
	for i := range len(words) / 4 {
		put32(units[unitBytes*i:], get32(words[4*i:]))
	}
}

func gather(words, units []byte) {
	for i := range len(words) / 4 {
		put32(words[4*i:], get32(units[unitBytes*i:]))
	}
}

// set2 copies the two bytes of a float16.
func set2(dst, src []byte) { *(*[2]byte)(dst) = [2]byte(src) }

func get32(b []byte) uint32    { return binary.LittleEndian.Uint32(b) }
func put32(b []byte, v uint32) { binary.LittleEndian.PutUint32(b, v) }

func packF32(panel, file []byte, r int)   { *(*[4]byte)(panel[4*r:]) = [4]byte(file) }
func unpackF32(file, panel []byte, r int) { *(*[4]byte)(file) = [4]byte(panel[4*r:]) }
func packF16(panel, file []byte, r int)   { set2(panel[2*r:], file) }
func unpackF16(file, panel []byte, r int) { set2(file, panel[2*r:]) }

// nibbleBlock is the bytes of the low four bits of 32 elements of 16 rows.
const nibbleBlock = 4 * unitBytes

func packR16Q4_0(panel, file []byte, r int) {
	set2(panel[2*r:], file)
	spread(panel[32+4*r:], file[2:18])
}

func unpackR16Q4_0(file, panel []byte, r int) {
	set2(file, panel[2*r:])
	gather(file[2:18], panel[32+4*r:])
}

func packR16Q4_1(panel, file []byte, r int) {
	set2(panel[2*r:], file)
	set2(panel[32+2*r:], file[2:])
	spread(panel[64+4*r:], file[4:20])
}

func unpackR16Q4_1(file, panel []byte, r int) {
	set2(file, panel[2*r:])
	set2(file[2:], panel[32+2*r:])
	gather(file[4:20], panel[64+4*r:])
}

func packR16Q5_0(panel, file []byte, r int) {
	set2(panel[2*r:], file)
	spread(panel[32+4*r:], file[6:22])
	put32(panel[32+nibbleBlock+4*r:], byByte(get32(file[2:])))
}

func unpackR16Q5_0(file, panel []byte, r int) {
	set2(file, panel[2*r:])
	gather(file[6:22], panel[32+4*r:])
	put32(file[2:], byElement(get32(panel[32+nibbleBlock+4*r:])))
}

func packR16Q5_1(panel, file []byte, r int) {
	set2(panel[2*r:], file)
	set2(panel[32+2*r:], file[2:])
	spread(panel[64+4*r:], file[8:24])
	put32(panel[64+nibbleBlock+4*r:], byByte(get32(file[4:])))
}

func unpackR16Q5_1(file, panel []byte, r int) {
	set2(file, panel[2*r:])
	set2(file[2:], panel[32+2*r:])
	gather(file[8:24], panel[64+4*r:])
	put32(file[4:], byElement(get32(panel[64+nibbleBlock+4*r:])))
}

// byByte moves bit 4t+j to bit 8j+t: the number of a bit, t2 t1 t0 j1 j0 in binary, becomes
// j1 j0 t2 t1 t0. byElement moves it back.
func byByte(h uint32) uint32 { return unshuffle(unshuffle(h)) }

func byElement(h uint32) uint32 { return unshuffle(unshuffle(unshuffle(h))) }

// unshuffle moves the even bits to the low half and the odd ones to the high half: the number of
// a bit is rotated right by one (Warren, Hacker's Delight, section 7-2).
func unshuffle(h uint32) uint32 {
	h = swapBits(h, 1, 0x22222222)
	h = swapBits(h, 2, 0x0c0c0c0c)
	h = swapBits(h, 4, 0x00f000f0)
	return swapBits(h, 8, 0x0000ff00)
}

// swapBits swaps the bits of mask with those that are shift above them.
func swapBits[T uint32 | uint64](h T, shift int, mask T) T {
	t := (h ^ h>>shift) & mask
	return h ^ t ^ t<<shift
}

func packR16Q8_0(panel, file []byte, r int) {
	set2(panel[2*r:], file)
	spread(panel[32+4*r:], file[2:34])
}

func unpackR16Q8_0(file, panel []byte, r int) {
	set2(file, panel[2*r:])
	gather(file[2:34], panel[32+4*r:])
}

// kHead is the bytes of d, dmin, and the scales and minima of eight sub-blocks.
const kHead = 2*32 + 2*8*panelRows

func packR16Q4_K(panel, file []byte, r int) {
	packKScales(panel, file, r)
	for c := range 4 {
		packNibbles(panel[kHead+2*c*nibbleBlock+4*r:], nibbleBlock, file[16+32*c:])
	}
}

func unpackR16Q4_K(file, panel []byte, r int) {
	unpackKScales(file, panel, r)
	for c := range 4 {
		unpackNibblePair(file[16+32*c:], panel[kHead+2*c*nibbleBlock+4*r:], nibbleBlock)
	}
}

// packNibbles stores 32 bytes, whose low nibbles are a sub-block of 32 elements and whose high
// nibbles are the one that begins apart bytes behind it.
func packNibbles(units []byte, apart int, file []byte) {
	const low = 0x0f0f0f0f
	for i := range 4 {
		a, b := get32(file[4*i:]), get32(file[16+4*i:])
		put32(units[unitBytes*i:], a&low|b&low<<4)
		put32(units[apart+unitBytes*i:], a>>4&low|b&^low)
	}
}

func unpackNibblePair(file, units []byte, apart int) {
	const low = 0x0f0f0f0f
	for i := range 4 {
		x, y := get32(units[unitBytes*i:]), get32(units[apart+unitBytes*i:])
		put32(file[4*i:], x&low|y&low<<4)
		put32(file[16+4*i:], x>>4&low|y&^low)
	}
}

// A sub-block of q5_k is nibbles and fifth bits.
const fiveBits = nibbleBlock + unitBytes

func packR16Q5_K(panel, file []byte, r int) {
	packKScales(panel, file, r)
	panel = panel[kHead+4*r:]
	for c := range 4 {
		packNibbles(panel[2*c*fiveBits:], fiveBits, file[48+32*c:])
	}
	for j := range 4 {
		var h uint64
		for t := range 8 {
			h |= uint64(file[16+4*t+j]) << (8 * t)
		}
		h = transpose(h)
		for s := range 8 {
			panel[s*fiveBits+nibbleBlock+j] = byte(h >> (8 * s))
		}
	}
}

func unpackR16Q5_K(file, panel []byte, r int) {
	unpackKScales(file, panel, r)
	panel = panel[kHead+4*r:]
	for c := range 4 {
		unpackNibblePair(file[48+32*c:], panel[2*c*fiveBits:], fiveBits)
	}
	for j := range 4 {
		var h uint64
		for s := range 8 {
			h |= uint64(panel[s*fiveBits+nibbleBlock+j]) << (8 * s)
		}
		h = transpose(h)
		for t := range 8 {
			file[16+4*t+j] = byte(h >> (8 * t))
		}
	}
}

// transpose swaps bit j of byte i with bit i of byte j.
func transpose(h uint64) uint64 {
	h = swapBits(h, 7, 0x00aa00aa00aa00aa)
	h = swapBits(h, 14, 0x0000cccc0000cccc)
	return swapBits(h, 28, 0x00000000f0f0f0f0)
}

// packKScales stores the first 16 bytes of a Q4_K or Q5_K block: see kScales for the file's way.
func packKScales(panel, file []byte, r int) {
	set2(panel[2*r:], file)
	set2(panel[32+2*r:], file[2:])
	s := (*[12]byte)(file[4:])
	scales, mins := panel[64+r:], panel[64+128+r:]
	for j := range 4 {
		scales[16*j], mins[16*j] = s[j]&63, s[j+4]&63
		scales[16*(j+4)] = s[j+8]&15 | s[j]>>6<<4
		mins[16*(j+4)] = s[j+8]>>4 | s[j+4]>>6<<4
	}
}

func unpackKScales(file, panel []byte, r int) {
	set2(file, panel[2*r:])
	set2(file[2:], panel[32+2*r:])
	s := (*[12]byte)(file[4:])
	scales, mins := panel[64+r:], panel[64+128+r:]
	for j := range 4 {
		s[j] = scales[16*j] | scales[16*(j+4)]>>4<<6
		s[j+4] = mins[16*j] | mins[16*(j+4)]>>4<<6
		s[j+8] = scales[16*(j+4)]&15 | mins[16*(j+4)]<<4
	}
}

// A block of q6_k begins with d and the scales of 16 sub-blocks; 32 elements are nibbles and two
// vectors of high bits.
const (
	sixHead = 32 + 16*panelRows
	sixBits = nibbleBlock + 2*unitBytes
)

func packR16Q6_K(panel, file []byte, r int) {
	set2(panel[2*r:], file[208:])
	for j, s := range file[192:208] {
		panel[32+16*j+r] = s
	}
	panel = panel[sixHead+4*r:]
	for half := range 2 {
		units := panel[half*4*sixBits:]
		packNibbles(units, 2*sixBits, file[64*half:])
		packNibbles(units[sixBits:], 2*sixBits, file[64*half+32:])
		for v := range 2 {
			for j, h := range transposePairs(file[128+32*half+16*v:]) {
				put32(units[j*sixBits+nibbleBlock+v*unitBytes:], h)
			}
		}
	}
}

func unpackR16Q6_K(file, panel []byte, r int) {
	set2(file[208:], panel[2*r:])
	for j := range 16 {
		file[192+j] = panel[32+16*j+r]
	}
	panel = panel[sixHead+4*r:]
	for half := range 2 {
		units := panel[half*4*sixBits:]
		unpackNibblePair(file[64*half:], units, 2*sixBits)
		unpackNibblePair(file[64*half+32:], units[sixBits:], 2*sixBits)
		for v := range 2 {
			var high [16]byte
			for j := range 4 {
				put32(high[4*j:], get32(units[j*sixBits+nibbleBlock+v*unitBytes:]))
			}
			for t, h := range transposePairs(high[:]) {
				put32(file[128+32*half+16*v+4*t:], h)
			}
		}
	}
}

// transposePairs reads four words and swaps bit pair j of each byte of word i with bit pair i of
// that byte of word j.
func transposePairs(words []byte) (out [4]uint32) {
	const pair = 0x03030303
	for t := range 4 {
		h := get32(words[4*t:])
		for j := range out {
			out[j] |= h >> (2 * j) & pair << (2 * t)
		}
	}
	return out
}

// tile returns the kernel for weights in the layout that puts two rows at a time back as they are
// in the file, for the kernel that takes them there. It is what others are checked against.
func (l *Layout) tile(inFile func(y []float32, w []byte, n int, x *activation)) func(y []float32, w []byte, n int, x *activation) {
	info, _ := quant.Lookup(l.Type)
	return func(y []float32, w []byte, n int, x *activation) {
		panel := l.panel(x.k)
		rowBytes := x.k / info.BlockLen * info.BlockBytes
		for i := 0; i < n; i += 2 {
			rows := min(2, n-i)
			for j := range rows {
				l.unpackRow(x.file[j*rowBytes:(j+1)*rowBytes], w[i/panelRows*panel:][:panel], (i+j)%panelRows)
			}
			inFile(y[i:], x.file[:rows*rowBytes], rows, x)
		}
	}
}
