package kernel

import (
	"encoding/binary"

	"pesti/gguf/quant"
)

// The portable integer kernels use SWAR (SIMD within a register). A 64-bit word has the unsigned
// weights of four elements of one row as bytes in its low half, and those of the next row in its high
// half. After masking one byte in each half, one multiplication by an activation q gives the products
// of both rows.
//
// A weight is d·(u − zero) + m, where u is the stored unsigned integer, zero a constant of the type,
// and d and m are float32 numbers of the block. The product of a block with activations s·q is
// therefore s·d·(Σu·q − zero·Σq) + s·m·Σq, where both sums are exact integers.

// A swarSpan is a span of up to 256 elements of two rows, with d and m of each block.
type swarSpan struct {
	u [8][8]uint64 // of 32 elements each
	d [2][16]float32
	m [2][16]float32
}

// A swarType is a weight type that can be unpacked into a swarSpan.
type swarType struct {
	typ    quant.Type
	zero   int32 // subtracted from every u
	min    bool  // whether m is used
	block  block // size of the sums that share a d
	unpack func(l *swarSpan, r0, r1 []byte)
}

var swarTypes = []swarType{
	{quant.Q4_0, 8, false, narrow32, unpackQ4_0},
	{quant.Q4_1, 0, true, narrow32, unpackQ4_1},
	{quant.Q5_0, 16, false, narrow32, unpackQ5_0},
	{quant.Q5_1, 0, true, narrow32, unpackQ5_1},
	{quant.Q8_0, 128, false, wide32, unpackQ8_0},
	{quant.Q4_K, 0, true, narrow32, unpackQ4_K},
	{quant.Q5_K, 0, true, narrow32, unpackQ5_K},
	{quant.Q6_K, 32, false, narrow16, unpackQ6_K},
}

// swarTypeOf returns the swarType of a type, or nil.
func swarTypeOf(t quant.Type) *swarType {
	for i := range swarTypes {
		if swarTypes[i].typ == t {
			return &swarTypes[i]
		}
	}
	return nil
}

func le16(b []byte) uint16 { return binary.LittleEndian.Uint16(b) }

// pair4 returns four bytes of each row: byte j of r0 at bit 8j, byte j of r1 at bit 32+8j.
func pair4(r0, r1 []byte) uint64 {
	return uint64(binary.LittleEndian.Uint32(r0)) | uint64(binary.LittleEndian.Uint32(r1))<<32
}

const (
	ones     = 1<<32 | 1          // 1 in each half
	eachByte = 0x0101010101010101 // 1 in each byte
	nibbles  = 15 * eachByte
)

func unpackQ4_0(l *swarSpan, r0, r1 []byte) {
	for b := 0; len(r0) >= 18 && len(r1) >= 18; b++ {
		l.d[0][b], l.d[1][b] = f16(le16(r0)), f16(le16(r1))
		unpackNibbles(&l.u[b], r0[2:18], r1[2:18])
		r0, r1 = r0[18:], r1[18:]
	}
}

func unpackQ4_1(l *swarSpan, r0, r1 []byte) {
	for b := 0; len(r0) >= 20 && len(r1) >= 20; b++ {
		l.d[0][b], l.d[1][b] = f16(le16(r0)), f16(le16(r1))
		l.m[0][b], l.m[1][b] = f16(le16(r0[2:])), f16(le16(r1[2:]))
		unpackNibbles(&l.u[b], r0[4:20], r1[4:20])
		r0, r1 = r0[20:], r1[20:]
	}
}

func unpackQ5_0(l *swarSpan, r0, r1 []byte) {
	for b := 0; len(r0) >= 22 && len(r1) >= 22; b++ {
		l.d[0][b], l.d[1][b] = f16(le16(r0)), f16(le16(r1))
		u := &l.u[b]
		unpackNibbles(u, r0[6:22], r1[6:22])
		addFifthBits(u, pair4(r0[2:], r1[2:]))
		r0, r1 = r0[22:], r1[22:]
	}
}

func unpackQ5_1(l *swarSpan, r0, r1 []byte) {
	for b := 0; len(r0) >= 24 && len(r1) >= 24; b++ {
		l.d[0][b], l.d[1][b] = f16(le16(r0)), f16(le16(r1))
		l.m[0][b], l.m[1][b] = f16(le16(r0[2:])), f16(le16(r1[2:]))
		u := &l.u[b]
		unpackNibbles(u, r0[8:24], r1[8:24])
		addFifthBits(u, pair4(r0[4:], r1[4:]))
		r0, r1 = r0[24:], r1[24:]
	}
}

// unpackNibbles unpacks 16 bytes of each row: low nibbles are elements 0–15, high nibbles 16–31.
func unpackNibbles(u *[8]uint64, r0, r1 []byte) {
	_, _ = r0[15], r1[15]
	for i := range 4 {
		v := pair4(r0[4*i:], r1[4*i:])
		u[i], u[4+i] = v&nibbles, v>>4&nibbles
	}
}

// addFifthBits adds bit i of each half of h to element i as bit 4. The multiplication copies four bits
// to four bytes, with bit j in the lowest place of byte j.
func addFifthBits(u *[8]uint64, h uint64) {
	const spread = 1 | 1<<7 | 1<<14 | 1<<21
	for i := range u {
		u[i] |= h >> (4 * i) & (15 * ones) * spread & eachByte << 4
	}
}

// unpackQ8_0 adds 128 to each signed weight.
func unpackQ8_0(l *swarSpan, r0, r1 []byte) {
	for b := 0; len(r0) >= 34 && len(r1) >= 34; b++ {
		l.d[0][b], l.d[1][b] = f16(le16(r0)), f16(le16(r1))
		u := &l.u[b]
		for i := range u {
			u[i] = pair4(r0[2+4*i:34], r1[2+4*i:34]) ^ 128*eachByte
		}
		r0, r1 = r0[34:], r1[34:]
	}
}

// kScales unpacks the eight scales and minima of a Q4_K or Q5_K block. Its first 16 bytes are f16 d,
// f16 dmin, and the 12 bytes of sixBits.
func kScales(d, m *[16]float32, r []byte) {
	scale, min := f16(le16(r)), -f16(le16(r[2:]))
	s, low := sixBits((*[12]byte)(r[4:]))
	for j := range 8 {
		d[j], m[j] = scale*float32(s[j]), min*float32(low[j])
	}
}

// sixBits unpacks eight scales and minima of 6 bits. For blocks 0–3 they are the low 6 bits of bytes
// 0–3 and 4–7. For blocks 4–7 their low 4 bits are the nibbles of bytes 8–11, and their high 2 bits
// are the high bits of bytes 0–3 and 4–7.
func sixBits(b *[12]byte) (scale, low [8]uint8) {
	for j := range 4 {
		scale[j], low[j] = b[j]&63, b[j+4]&63
		scale[j+4] = b[j+8]&15 | b[j]>>6<<4
		low[j+4] = b[j+8]>>4 | b[j+4]>>6<<4
	}
	return scale, low
}

func unpackQ4_K(l *swarSpan, r0, r1 []byte) {
	kScales(&l.d[0], &l.m[0], r0)
	kScales(&l.d[1], &l.m[1], r1)
	unpackK(l, r0[16:144], r1[16:144])
}

// unpackQ5_K adds a fifth bit: bit j of byte i belongs to element i of block j.
func unpackQ5_K(l *swarSpan, r0, r1 []byte) {
	kScales(&l.d[0], &l.m[0], r0)
	kScales(&l.d[1], &l.m[1], r1)
	unpackK(l, r0[48:176], r1[48:176])
	for i := range 8 {
		h := pair4(r0[16+4*i:48], r1[16+4*i:48])
		for j := range 8 {
			l.u[j][i] |= h >> j & eachByte << 4
		}
	}
}

// unpackK unpacks 128 bytes of each row. In every 32 bytes, the low nibbles are one block of 32
// elements and the high nibbles the next.
func unpackK(l *swarSpan, r0, r1 []byte) {
	for c := range 4 {
		lo, hi := &l.u[2*c], &l.u[2*c+1]
		for i := range 8 {
			v := pair4(r0[c*32+4*i:], r1[c*32+4*i:])
			lo[i], hi[i] = v&nibbles, v>>4&nibbles
		}
	}
}

// unpackQ6_K: of each half of 128 elements, 64 bytes hold the low 4 bits (low nibbles elements
// 0–63, high nibbles 64–127) and 32 bytes the high 2 bits (bit pair j of byte i belongs to
// element 32j+i). Scales are int8 per 16 elements.
func unpackQ6_K(l *swarSpan, r0, r1 []byte) {
	d0, d1 := f16(le16(r0[208:])), f16(le16(r1[208:]))
	for j := range 16 {
		l.d[0][j] = d0 * float32(int8(r0[192+j]))
		l.d[1][j] = d1 * float32(int8(r1[192+j]))
	}
	const high = 48 * eachByte
	for half := range 2 {
		u := (*[4][8]uint64)(l.u[half*4:])
		for i := range 8 {
			a := pair4(r0[half*64+4*i:], r1[half*64+4*i:])
			b := pair4(r0[half*64+32+4*i:], r1[half*64+32+4*i:])
			h := pair4(r0[128+half*32+4*i:], r1[128+half*32+4*i:])
			u[0][i] = a&nibbles | h<<4&high
			u[1][i] = b&nibbles | h<<2&high
			u[2][i] = a>>4&nibbles | h&high
			u[3][i] = b>>4&nibbles | h>>2&high
		}
	}
}
