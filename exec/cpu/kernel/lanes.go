package kernel

import (
	"encoding/binary"

	"pesti/gguf/quant"
)

// The integer kernels compute two weight rows at once in the halves of 64-bit words: a word
// holds an unsigned weight of one row in its low half and of the next row in its high half, and
// one multiplication by an activation q adds to both products.
//
// Per block of elements a weight is d·(u − zero) + m with u the stored unsigned integer, zero
// one constant per type, and d and m float32 per block. So per block the product with an
// activation s·q is s·d·(Σu·q − zero·Σq) + s·m·Σq, where both sums are exact integers.

// lanes is a span of up to 256 elements of two rows. Scales are per block; d and m are divided
// by 128, since an activation is scale/128 · q.
type lanes struct {
	u [256]uint64
	d [2][16]float32
	m [2][16]float32
}

// A laneType is a weight type that can be unpacked into lanes.
type laneType struct {
	typ    quant.Type
	block  int   // elements for each d: 32 or 16
	zero   int32 // subtracted from every u
	min    bool  // whether m is used
	unpack func(l *lanes, r0, r1 []byte)
}

// Sums must stay within 31 bits and a sign, for the halves of a word not to mix: |q| ≤ 16256
// (14 bits), so Σ|u·q| over 32 elements is below 2²³ for 4-bit u, 2²⁴ for 5 bits, 2²⁷ for 8 bits;
// over 16 elements below 2²⁴ for 6 bits.
var laneTypes = []laneType{
	{quant.Q4_0, 32, 8, false, unpackQ4_0},
	{quant.Q4_1, 32, 0, true, unpackQ4_1},
	{quant.Q5_0, 32, 16, false, unpackQ5_0},
	{quant.Q5_1, 32, 0, true, unpackQ5_1},
	{quant.Q8_0, 32, 128, false, unpackQ8_0},
	{quant.Q4_K, 32, 0, true, unpackQ4_K},
	{quant.Q5_K, 32, 0, true, unpackQ5_K},
	{quant.Q6_K, 16, 32, false, unpackQ6_K},
}

func le16(b []byte) uint16 { return binary.LittleEndian.Uint16(b) }

// pair4 is four bytes of each row: byte j of r0 at bit 8j, of r1 at bit 32+8j.
func pair4(r0, r1 []byte) uint64 {
	return uint64(binary.LittleEndian.Uint32(r0)) | uint64(binary.LittleEndian.Uint32(r1))<<32
}

const (
	ones     = 1<<32 | 1
	nibbles  = 15 * ones
	highBits = 16 * ones
)

func unpackQ4_0(l *lanes, r0, r1 []byte) {
	for b := 0; len(r0) >= 18 && len(r1) >= 18; b++ {
		l.d[0][b], l.d[1][b] = f16(le16(r0))/128, f16(le16(r1))/128
		unpackNibbles((*[32]uint64)(l.u[b*32:]), (*[16]byte)(r0[2:]), (*[16]byte)(r1[2:]))
		r0, r1 = r0[18:], r1[18:]
	}
}

func unpackQ4_1(l *lanes, r0, r1 []byte) {
	for b := 0; len(r0) >= 20 && len(r1) >= 20; b++ {
		l.d[0][b], l.d[1][b] = f16(le16(r0))/128, f16(le16(r1))/128
		l.m[0][b], l.m[1][b] = f16(le16(r0[2:]))/128, f16(le16(r1[2:]))/128
		unpackNibbles((*[32]uint64)(l.u[b*32:]), (*[16]byte)(r0[4:]), (*[16]byte)(r1[4:]))
		r0, r1 = r0[20:], r1[20:]
	}
}

func unpackQ5_0(l *lanes, r0, r1 []byte) {
	for b := 0; len(r0) >= 22 && len(r1) >= 22; b++ {
		l.d[0][b], l.d[1][b] = f16(le16(r0))/128, f16(le16(r1))/128
		u := (*[32]uint64)(l.u[b*32:])
		unpackNibbles(u, (*[16]byte)(r0[6:]), (*[16]byte)(r1[6:]))
		addFifthBits(u, pair4(r0[2:], r1[2:]))
		r0, r1 = r0[22:], r1[22:]
	}
}

func unpackQ5_1(l *lanes, r0, r1 []byte) {
	for b := 0; len(r0) >= 24 && len(r1) >= 24; b++ {
		l.d[0][b], l.d[1][b] = f16(le16(r0))/128, f16(le16(r1))/128
		l.m[0][b], l.m[1][b] = f16(le16(r0[2:]))/128, f16(le16(r1[2:]))/128
		u := (*[32]uint64)(l.u[b*32:])
		unpackNibbles(u, (*[16]byte)(r0[8:]), (*[16]byte)(r1[8:]))
		addFifthBits(u, pair4(r0[4:], r1[4:]))
		r0, r1 = r0[24:], r1[24:]
	}
}

// unpackNibbles spreads 16 bytes of each row: low nibbles are elements 0–15, high ones 16–31.
func unpackNibbles(u *[32]uint64, r0, r1 *[16]byte) {
	for i := 0; i < 16; i += 4 {
		v := pair4(r0[i:i+4], r1[i:i+4])
		lo, hi := (*[4]uint64)(u[i:]), (*[4]uint64)(u[16+i:])
		lo[0] = v & nibbles
		hi[0] = v >> 4 & nibbles
		lo[1] = v >> 8 & nibbles
		hi[1] = v >> 12 & nibbles
		lo[2] = v >> 16 & nibbles
		hi[2] = v >> 20 & nibbles
		lo[3] = v >> 24 & nibbles
		hi[3] = v >> 28 & nibbles
	}
}

// addFifthBits adds bit i of each half of h to element i, worth 16.
func addFifthBits(u *[32]uint64, h uint64) {
	for i := 0; i < 4; i++ {
		u[i] |= h << (4 - i) & highBits
	}
	for i := 4; i < 32; i++ {
		u[i] |= h >> (i - 4) & highBits
	}
}

// unpackQ8_0 adds 128 to each signed weight.
func unpackQ8_0(l *lanes, r0, r1 []byte) {
	for b := 0; len(r0) >= 34 && len(r1) >= 34; b++ {
		l.d[0][b], l.d[1][b] = f16(le16(r0))/128, f16(le16(r1))/128
		for i := 0; i < 32; i += 4 {
			v := pair4(r0[2+i:2+i+4], r1[2+i:2+i+4]) ^ 0x8080808080808080
			u := (*[4]uint64)(l.u[b*32+i:])
			u[0] = v & (255 * ones)
			u[1] = v >> 8 & (255 * ones)
			u[2] = v >> 16 & (255 * ones)
			u[3] = v >> 24 & (255 * ones)
		}
		r0, r1 = r0[34:], r1[34:]
	}
}

// kScales unpacks the eight 6-bit scales and minima of a Q4_K or Q5_K block, whose first 16 bytes
// are f16 d, f16 dmin, and 12 bytes: the low 6 bits of bytes 0–3 and 4–7 are scales and minima of
// blocks 0–3; those of blocks 4–7 have their low 4 bits in the nibbles of bytes 8–11 and their
// high 2 bits on top of bytes 0–3 and 4–7.
func kScales(d, m *[16]float32, r []byte) {
	scale, min := f16(le16(r))/128, -f16(le16(r[2:]))/128
	s := (*[12]byte)(r[4:])
	for j := range 4 {
		d[j] = scale * float32(s[j]&63)
		m[j] = min * float32(s[j+4]&63)
		d[j+4] = scale * float32(s[j+8]&15|s[j]>>6<<4)
		m[j+4] = min * float32(s[j+8]>>4|s[j+4]>>6<<4)
	}
}

func unpackQ4_K(l *lanes, r0, r1 []byte) {
	kScales(&l.d[0], &l.m[0], r0)
	kScales(&l.d[1], &l.m[1], r1)
	unpackK(l, (*[128]byte)(r0[16:]), (*[128]byte)(r1[16:]))
}

// unpackQ5_K adds a fifth bit: bit j of byte i belongs to element i of block j.
func unpackQ5_K(l *lanes, r0, r1 []byte) {
	kScales(&l.d[0], &l.m[0], r0)
	kScales(&l.d[1], &l.m[1], r1)
	unpackK(l, (*[128]byte)(r0[48:]), (*[128]byte)(r1[48:]))
	h0, h1 := (*[32]byte)(r0[16:]), (*[32]byte)(r1[16:])
	for i := 0; i < 32; i++ {
		h := (uint64(h0[i]) | uint64(h1[i])<<32) << 4
		for j := 0; j < 8; j++ {
			l.u[j*32+i] |= h >> j & highBits
		}
	}
}

// unpackK spreads 128 bytes of each row: of every 32 bytes the low nibbles are one block of 32
// elements and the high nibbles the next.
func unpackK(l *lanes, r0, r1 *[128]byte) {
	for c := 0; c < 128; c += 32 {
		u := (*[64]uint64)(l.u[c*2:])
		for i := 0; i < 32; i += 4 {
			v := pair4(r0[c+i:c+i+4], r1[c+i:c+i+4])
			lo, hi := (*[4]uint64)(u[i:]), (*[4]uint64)(u[32+i:])
			lo[0] = v & nibbles
			hi[0] = v >> 4 & nibbles
			lo[1] = v >> 8 & nibbles
			hi[1] = v >> 12 & nibbles
			lo[2] = v >> 16 & nibbles
			hi[2] = v >> 20 & nibbles
			lo[3] = v >> 24 & nibbles
			hi[3] = v >> 28 & nibbles
		}
	}
}

// unpackQ6_K: of each half of 128 elements, 64 bytes hold the low 4 bits (low nibbles elements
// 0–63, high nibbles 64–127) and 32 bytes the high 2 bits (bit pair j of byte i belongs to
// element 32j+i). Scales are int8 per 16 elements.
func unpackQ6_K(l *lanes, r0, r1 []byte) {
	d0, d1 := f16(le16(r0[208:]))/128, f16(le16(r1[208:]))/128
	for j := 0; j < 16; j++ {
		l.d[0][j] = d0 * float32(int8(r0[192+j]))
		l.d[1][j] = d1 * float32(int8(r1[192+j]))
	}
	const high = 48 * ones
	for half := 0; half < 2; half++ {
		l0, l1 := (*[64]byte)(r0[half*64:]), (*[64]byte)(r1[half*64:])
		h0, h1 := (*[32]byte)(r0[128+half*32:]), (*[32]byte)(r1[128+half*32:])
		u := (*[128]uint64)(l.u[half*128:])
		for i := 0; i < 32; i++ {
			a := uint64(l0[i]) | uint64(l1[i])<<32
			b := uint64(l0[32+i]) | uint64(l1[32+i])<<32
			h := (uint64(h0[i]) | uint64(h1[i])<<32) << 4
			u[i] = a&nibbles | h&high
			u[32+i] = b&nibbles | h>>2&high
			u[64+i] = a>>4&nibbles | h>>4&high
			u[96+i] = b>>4&nibbles | h>>6&high
		}
	}
}
