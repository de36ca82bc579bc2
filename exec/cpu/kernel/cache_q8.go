package kernel

import (
	"encoding/binary"

	"pesti/exec/plan"
	"pesti/gguf/numfmt"
)

// q8Group is the size in bytes of one block of 32 elements for each of the 16 positions of a page.
const q8Group = plan.PageTokens * numfmt.Q8_0Bytes

// q8Cache is a format with blocks of 32 elements of a position, x ≈ d·q. Values are stored in the
// blocks of numfmt.QuantizeQ8_0. Keys are stored in groups of the blocks of 16 positions: d float16[16],
// q int8[32][16].
func q8Cache(v *vectors, dim int) *cacheFormat {
	const page = plan.PageTokens
	blocks := dim / numfmt.BlockLen
	block := make([]byte, numfmt.Q8_0Bytes)
	return &cacheFormat{
		dim: dim, bytes: blocks * q8Group,
		putKey: func(part []byte, at int, key []float32) {
			for b := range blocks {
				numfmt.QuantizeQ8_0(block, key[b*numfmt.BlockLen:])
				g := part[b*q8Group:][:q8Group]
				copy(g[2*at:], block[:2])
				for i, q := range block[2:] {
					g[2*page+i*page+at] = q
				}
			}
		},
		putValue: func(part []byte, at int, value []float32) {
			for b := range blocks {
				numfmt.QuantizeQ8_0(part[(at*blocks+b)*numfmt.Q8_0Bytes:], value[b*numfmt.BlockLen:])
			}
		},
		keys: func(tile []float32, part []byte, from, to int) {
			if to-from == page {
				v.q8Keys(tile, part, blocks)
				return
			}
			q8Columns(tile, part, blocks, from, to)
		},
		values: func(tile []float32, stride int, part []byte, from, to int) {
			for j := from; j < to; j++ {
				v.q8Values(tile[j*stride:], part[j*blocks*numfmt.Q8_0Bytes:], blocks)
			}
		},
	}
}

func portableQ8Keys(tile []float32, part []byte, groups int) {
	q8Columns(tile, part, groups, 0, plan.PageTokens)
}

// q8Columns loads the keys of positions [from, to) into the same columns of tile.
func q8Columns(tile []float32, part []byte, groups, from, to int) {
	const page = plan.PageTokens
	for b := range groups {
		group, tile := part[b*q8Group:][:q8Group], tile[b*numfmt.BlockLen*page:][:numfmt.BlockLen*page]
		q := group[2*page:]
		for j := from; j < to; j++ {
			d := f16(binary.LittleEndian.Uint16(group[2*j:]))
			for i := j; i < len(q); i += page {
				tile[i] = d * float32(int8(q[i]))
			}
		}
	}
}

func portableQ8Values(row []float32, blocks []byte, n int) {
	for b := range n {
		block := blocks[b*numfmt.Q8_0Bytes:][:numfmt.Q8_0Bytes]
		d := f16(binary.LittleEndian.Uint16(block))
		for i, q := range block[2:] {
			row[b*numfmt.BlockLen+i] = d * float32(int8(q))
		}
	}
}
