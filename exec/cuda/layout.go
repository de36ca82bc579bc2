package cuda

import (
	"encoding/binary"
	"fmt"
	"strings"

	"pesti/gguf/quant"
)

// A Layout is the layout soa (structure of arrays) of one weight type. A matrix of n rows of k elements is
// a sequence of sections. Each section has one part of every block, in row order: first the quants, then
// the parts with smaller alignment. For 32 elements a section has at most 16 bytes, so that lanes that
// read adjacent blocks read consecutive bytes. A block is as large as in the file, except that the scales
// of q4_k and q5_k take a byte each instead of six bits.
//
// Of 32 elements, 0–15 are the low nibbles of 16 bytes and 16–31 the high nibbles. A fifth bit of element
// e is bit 8·(e mod 4) + e/4 of a word. A fifth and sixth bit of element e are at bit
// 8·(e mod 4) + 2·(e/4 mod 4) of word e/16 of two words. Each scale of a sub-block is a byte, followed by
// its minimum if the type has one. Elements of a byte or more are as in the file, 16 bytes per section.
type Layout struct {
	Type    string // of the weight: "q5_0"
	Code    uint32 // number of the type in kernels
	Block   int    // k is a multiple of it
	Integer bool   // kernels can multiply the type as integers

	sections []int // bytes of a block in each section
	pack     func(parts [][]byte, block []byte)
}

// A type's code is its index in the table. Weights of other types can be stored as f32.
var layouts = []Layout{
	{"q4_0", 0, 32, true, []int{16, 2}, packQ4_0},
	{"q4_1", 1, 32, true, []int{16, 4}, packQ4_1},
	{"q5_0", 2, 32, true, []int{16, 4, 2}, packQ5_0},
	{"q5_1", 3, 32, true, []int{16, 4, 4}, packQ5_1},
	{"q8_0", 4, 32, true, []int{16, 16, 2}, packQ8_0},
	{"q4_k", 5, 256, true, []int{128, 4, 16}, packQ4_K},
	{"q5_k", 6, 256, true, []int{128, 32, 4, 16}, packQ5_K},
	{"q6_k", 7, 256, true, []int{128, 64, 16, 2}, packQ6_K},
	{"f32", 8, 32, false, []int{16, 16, 16, 16, 16, 16, 16, 16}, packPlain},
	{"f16", 9, 32, false, []int{16, 16, 16, 16}, packPlain},
	{"bf16", 10, 32, false, []int{16, 16, 16, 16}, packPlain},
	{"f8_e4m3", 11, 32, false, []int{16, 16}, packPlain},
}

// Layouts returns the layouts, one for each type that kernels read.
func Layouts() []Layout { return layouts }

// LookupLayout returns the layout for weights of a type.
func LookupLayout(kind string) (*Layout, bool) {
	for i := range layouts {
		if layouts[i].Type == kind {
			return &layouts[i], true
		}
	}
	return nil, false
}

// Bytes returns the size of a block.
func (l *Layout) Bytes() int {
	sum := 0
	for _, n := range l.sections {
		sum += n
	}
	return sum
}

// Size returns the size in bytes of a matrix of n rows of k elements.
func (l *Layout) Size(n, k int) int { return n * (k / l.Block) * l.Bytes() }

// file returns the type's description in model files and the size there of a block of the layout.
func (l *Layout) file() (*quant.Info, int, error) {
	info, ok := quant.ByName(strings.ToUpper(l.Type))
	if !ok {
		return nil, 0, fmt.Errorf("no type %s in files", l.Type)
	}
	return info, l.Block / info.BlockLen * info.BlockBytes, nil
}

// Pack packs rows [from, to) of a matrix of n rows of k elements. src is the matrix in the layout of the
// file and dst the whole packed matrix. Calls for different rows may run concurrently.
func (l *Layout) Pack(dst, src []byte, n, k, from, to int) error {
	_, bytes, err := l.file()
	if err != nil {
		return err
	}
	if k%l.Block != 0 || from < 0 || to > n || len(dst) != l.Size(n, k) || len(src) != n*(k/l.Block)*bytes {
		return fmt.Errorf("rows %d to %d of %d rows of %d elements of %s: %d bytes to %d, expected blocks of %d elements, %d bytes to %d",
			from, to, n, k, l.Type, len(src), len(dst), l.Block, n*(k/l.Block)*bytes, l.Size(n, k))
	}
	blocks := k / l.Block
	parts := make([][]byte, len(l.sections))
	for b := from * blocks; b < to*blocks; b++ {
		l.parts(parts, dst, b, n*blocks)
		l.pack(parts, src[b*bytes:][:bytes])
	}
	return nil
}

// parts sets parts to the parts of block b of a matrix with that number of blocks.
func (l *Layout) parts(parts [][]byte, matrix []byte, b, blocks int) {
	for i, size := range l.sections {
		parts[i] = matrix[b*size:][:size]
		matrix = matrix[blocks*size:]
	}
}

var le = binary.LittleEndian

func packPlain(parts [][]byte, block []byte) {
	for i, p := range parts {
		copy(p, block[16*i:])
	}
}

func packQ4_0(parts [][]byte, block []byte) {
	copy(parts[1], block)
	copy(parts[0], block[2:])
}

func packQ4_1(parts [][]byte, block []byte) {
	copy(parts[1], block)
	copy(parts[0], block[4:])
}

func packQ5_0(parts [][]byte, block []byte) {
	copy(parts[2], block)
	le.PutUint32(parts[1], fifthBits(le.Uint32(block[2:])))
	copy(parts[0], block[6:])
}

func packQ5_1(parts [][]byte, block []byte) {
	copy(parts[2], block)
	le.PutUint32(parts[1], fifthBits(le.Uint32(block[4:])))
	copy(parts[0], block[8:])
}

func packQ8_0(parts [][]byte, block []byte) {
	copy(parts[2], block)
	copy(parts[0], block[2:])
	copy(parts[1], block[18:])
}

func packQ4_K(parts [][]byte, block []byte) {
	copy(parts[1], block[:4])
	packScales(parts[2], block[4:16])
	packNibbles(parts[0], block[16:])
}

func packQ5_K(parts [][]byte, block []byte) {
	copy(parts[2], block[:4])
	packScales(parts[3], block[4:16])
	packNibbles(parts[0], block[48:])
	for j := range 8 {
		var bits uint32 // of sub-block j, element e at bit e
		for e, b := range block[16:48] {
			bits |= uint32(b>>j&1) << e
		}
		le.PutUint32(parts[1][4*j:], fifthBits(bits))
	}
}

func packQ6_K(parts [][]byte, block []byte) {
	copy(parts[2], block[192:208])
	copy(parts[3], block[208:])
	var q [256]byte
	for i := range q { // see quant.Q6_K: halves of 128 elements, element 32·part + e of each
		half, part, e := i/128, i/32%4, i%32
		low := block[64*half+32*(part%2)+e] >> (part / 2 * 4) & 15
		high := block[128+32*half+e] >> (2 * part) & 3
		q[i] = low | high<<4
	}
	clear(parts[1])
	for i, v := range q {
		b, e := i/32, i%32
		at := &parts[0][16*b+e%16]
		if e < 16 {
			*at = v & 15
		} else {
			*at |= v & 15 << 4
		}
		parts[1][8*b+e/16*4+e%4] |= v >> 4 << (2 * (e / 4 % 4))
	}
}

// fifthBits moves bit e of 32 to its place in the layout.
func fifthBits(bits uint32) (moved uint32) {
	for e := range 32 {
		moved |= bits >> e & 1 << (8*(e%4) + e/4)
	}
	return moved
}

// packNibbles converts the nibbles of a K type, with two sub-blocks in each 32 bytes, to 16 bytes for each
// sub-block.
func packNibbles(dst, src []byte) {
	for c := range 4 {
		for i := range 16 {
			lo, hi := src[32*c+i], src[32*c+16+i]
			dst[32*c+i] = lo&15 | hi<<4
			dst[32*c+16+i] = lo>>4 | hi&0xf0
		}
	}
}

// packScales unpacks eight pairs of 6-bit numbers to bytes, see quant.Q4_K.
func packScales(dst, b []byte) {
	for j := range 4 {
		dst[2*j], dst[2*j+1] = b[j]&63, b[4+j]&63
		dst[8+2*j], dst[8+2*j+1] = b[8+j]&15|b[j]>>6<<4, b[8+j]>>4|b[4+j]>>6<<4
	}
}
