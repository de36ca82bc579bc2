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

// Layout r16 holds, where elements are integers, what lies in four bytes of the file in the same
// four bytes of a unit: a unit is one vector of 64 bytes whose 32-bit lane r belongs to row r. So
// one unit meets four activations in all 16 rows, whatever width a machine's vectors have. Bytes
// keep the file's bits, except:
//   - bit i of the fifth bits of q5_0 and q5_1 belongs to element i; here bit t of byte j belongs
//     to element 4t+j, that is to byte j of unit t
//   - the 6-bit scales and minima of q4_k and q5_k take a byte each
//
// A block is its units, then per sub-block a byte of 16 scales and of 16 minima, then the float16
// scales of 16 rows, and their minima. Blocks of float types are 16 elements.
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
	for len(words) >= 4 {
		*(*[4]byte)(units) = [4]byte(words)
		words = words[4:]
		units = units[min(unitBytes, len(units)):]
	}
}

func gather(words, units []byte) {
	for len(words) >= 4 {
		*(*[4]byte)(words) = [4]byte(units)
		words = words[4:]
		units = units[min(unitBytes, len(units)):]
	}
}

// set2 copies the two bytes of a float16.
func set2(dst, src []byte) { *(*[2]byte)(dst) = [2]byte(src) }

func packF32(panel, file []byte, r int)   { *(*[4]byte)(panel[4*r:]) = [4]byte(file) }
func unpackF32(file, panel []byte, r int) { *(*[4]byte)(file) = [4]byte(panel[4*r:]) }
func packF16(panel, file []byte, r int)   { set2(panel[2*r:], file) }
func unpackF16(file, panel []byte, r int) { set2(file, panel[2*r:]) }

func packR16Q4_0(panel, file []byte, r int) {
	spread(panel[4*r:256], file[2:18])
	set2(panel[256+2*r:], file)
}

func unpackR16Q4_0(file, panel []byte, r int) {
	gather(file[2:18], panel[4*r:256])
	set2(file, panel[256+2*r:])
}

func packR16Q4_1(panel, file []byte, r int) {
	spread(panel[4*r:256], file[4:20])
	set2(panel[256+2*r:], file)
	set2(panel[288+2*r:], file[2:])
}

func unpackR16Q4_1(file, panel []byte, r int) {
	gather(file[4:20], panel[4*r:256])
	set2(file, panel[256+2*r:])
	set2(file[2:], panel[288+2*r:])
}

func packR16Q5_0(panel, file []byte, r int) {
	spread(panel[4*r:256], file[6:22])
	binary.LittleEndian.PutUint32(panel[256+4*r:], byByte(binary.LittleEndian.Uint32(file[2:])))
	set2(panel[320+2*r:], file)
}

func unpackR16Q5_0(file, panel []byte, r int) {
	gather(file[6:22], panel[4*r:256])
	binary.LittleEndian.PutUint32(file[2:], byElement(binary.LittleEndian.Uint32(panel[256+4*r:])))
	set2(file, panel[320+2*r:])
}

func packR16Q5_1(panel, file []byte, r int) {
	spread(panel[4*r:256], file[8:24])
	binary.LittleEndian.PutUint32(panel[256+4*r:], byByte(binary.LittleEndian.Uint32(file[4:])))
	set2(panel[320+2*r:], file)
	set2(panel[352+2*r:], file[2:])
}

func unpackR16Q5_1(file, panel []byte, r int) {
	gather(file[8:24], panel[4*r:256])
	binary.LittleEndian.PutUint32(file[4:], byElement(binary.LittleEndian.Uint32(panel[256+4*r:])))
	set2(file, panel[320+2*r:])
	set2(file[2:], panel[352+2*r:])
}

// byByte moves bit 4t+j to bit 8j+t: the number of a bit, t2 t1 t0 j1 j0 in binary, becomes
// j1 j0 t2 t1 t0. byElement moves it back.
func byByte(h uint32) uint32 { return unshuffle(unshuffle(h)) }

func byElement(h uint32) uint32 { return unshuffle(unshuffle(unshuffle(h))) }

// unshuffle moves the even bits to the low half and the odd ones to the high half: the number of
// a bit is rotated right by one (Warren, Hacker's Delight, section 7-2).
func unshuffle(h uint32) uint32 {
	for _, s := range [4]struct {
		shift uint
		mask  uint32
	}{{1, 0x22222222}, {2, 0x0c0c0c0c}, {4, 0x00f000f0}, {8, 0x0000ff00}} {
		t := (h ^ h>>s.shift) & s.mask
		h ^= t ^ t<<s.shift
	}
	return h
}

func packR16Q8_0(panel, file []byte, r int) {
	spread(panel[4*r:512], file[2:34])
	set2(panel[512+2*r:], file)
}

func unpackR16Q8_0(file, panel []byte, r int) {
	gather(file[2:34], panel[4*r:512])
	set2(file, panel[512+2*r:])
}

func packR16Q4_K(panel, file []byte, r int) {
	spread(panel[4*r:2048], file[16:144])
	packKScales(panel[2048:], file, r)
}

func unpackR16Q4_K(file, panel []byte, r int) {
	gather(file[16:144], panel[4*r:2048])
	unpackKScales(file, panel[2048:], r)
}

// The fifth bits of q5_k lie as in the file, behind the nibbles: bit s of byte j of unit t belongs
// to element 4t+j of sub-block s.
func packR16Q5_K(panel, file []byte, r int) {
	spread(panel[4*r:2048], file[48:176])
	spread(panel[2048+4*r:2560], file[16:48])
	packKScales(panel[2560:], file, r)
}

func unpackR16Q5_K(file, panel []byte, r int) {
	gather(file[48:176], panel[4*r:2048])
	gather(file[16:48], panel[2048+4*r:2560])
	unpackKScales(file, panel[2560:], r)
}

// packKScales stores the first 16 bytes of a Q4_K or Q5_K block: see kScales for the file's way.
func packKScales(panel, file []byte, r int) {
	s := (*[12]byte)(file[4:])
	scales, mins := panel[r:128], panel[128+r:256]
	for j := range 4 {
		scales[16*j], mins[16*j] = s[j]&63, s[j+4]&63
		scales[16*(j+4)] = s[j+8]&15 | s[j]>>6<<4
		mins[16*(j+4)] = s[j+8]>>4 | s[j+4]>>6<<4
	}
	set2(panel[256+2*r:], file)
	set2(panel[288+2*r:], file[2:])
}

func unpackKScales(file, panel []byte, r int) {
	s := (*[12]byte)(file[4:])
	scales, mins := panel[r:128], panel[128+r:256]
	for j := range 4 {
		s[j] = scales[16*j] | scales[16*(j+4)]>>4<<6
		s[j+4] = mins[16*j] | mins[16*(j+4)]>>4<<6
		s[j+8] = scales[16*(j+4)]&15 | mins[16*(j+4)]<<4
	}
	set2(file, panel[256+2*r:])
	set2(file[2:], panel[288+2*r:])
}

// The low four bits of q6_k come first, then the high two, both as in the file.
func packR16Q6_K(panel, file []byte, r int) {
	spread(panel[4*r:2048], file[:128])
	spread(panel[2048+4*r:3072], file[128:192])
	scales := panel[3072+r : 3328]
	for j, s := range file[192:208] {
		scales[16*j] = s
	}
	set2(panel[3328+2*r:], file[208:])
}

func unpackR16Q6_K(file, panel []byte, r int) {
	gather(file[:128], panel[4*r:2048])
	gather(file[128:192], panel[2048+4*r:3072])
	scales := panel[3072+r : 3328]
	for j := range file[192:208] {
		file[192+j] = scales[16*j]
	}
	set2(file[208:], panel[3328+2*r:])
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
