//go:build amd64 && !purego

package kernel

import (
	"slices"
	"unsafe"

	"pesti/gguf/quant"
)

// assemblyMatmuls are the products in assembly.
var assemblyMatmuls = slices.Concat(
	both("avx2", quant.Q4_0, "r16", "q8x2", r16Tile(32, r16Q4_0x1, r16Q4_0x2, r16Q4_0x4)),
	both("avx2", quant.Q4_1, "r16", "q8x2", r16Tile(32, r16Q4_1x1, r16Q4_1x2, r16Q4_1x4)),
	both("avx2", quant.Q5_0, "r16", "q8x2", r16Tile(32, r16Q5_0x1, r16Q5_0x2, r16Q5_0x4)),
	both("avx2", quant.Q5_1, "r16", "q8x2", r16Tile(32, r16Q5_1x1, r16Q5_1x2, r16Q5_1x4)),
	both("avx2", quant.Q8_0, "r16", "q8x2", r16Tile(32, r16Q8_0x1, r16Q8_0x2, r16Q8_0x4)),
	both("avx2", quant.Q4_K, "r16", "q8x2", r16Tile(256, r16Q4_Kx1, r16Q4_Kx2, r16Q4_Kx4)),
	both("avx2", quant.Q5_K, "r16", "q8x2", r16Tile(256, r16Q5_Kx1, r16Q5_Kx2, r16Q5_Kx4)),
	both("avx2", quant.Q6_K, "r16", "q8x2", r16Tile(256, r16Q6_Kx1, r16Q6_Kx2, r16Q6_Kx4)),
)

// An r16Func adds the products of blocks of a panel with some tokens to y: see _asm/r16.
type r16Func func(y *float32, yStep int, w *byte, x *byte, xStep int, blocks int)

// r16Tile returns the tile kernel for blocks of so many elements that computes one token, two, and
// four at a time. All give a token the same bits.
func r16Tile(block int, x1, x2, x4 r16Func) func(y []float32, w []byte, n int, x *activation) {
	const call = 1 << 14 // elements of a row: a goroutine in assembly cannot be interrupted
	return func(y []float32, w []byte, n int, x *activation) {
		blocks, row := x.k/block, x.k/32
		panelBytes := len(w) / ((n + panelRows - 1) / panelRows)
		blockBytes := panelBytes / blocks
		clear(y[:x.m*x.width])
		for i := 0; i < n; i += panelRows {
			panel := w[i/panelRows*panelBytes:][:panelBytes]
			for at := 0; at < blocks; at += call / block {
				some := min(call/block, blocks-at)
				for m := 0; m < x.m; {
					f, tokens := x1, 1
					switch {
					case x.m-m >= 4:
						f, tokens = x4, 4
					case x.m-m >= 2:
						f, tokens = x2, 2
					}
					q := x.q[m*row+at*(block/32):]
					f(&y[m*x.width+i], 4*x.width, &panel[at*blockBytes],
						(*byte)(unsafe.Pointer(unsafe.SliceData(q))), row*int(unsafe.Sizeof(qblock{})), some)
					m += tokens
				}
			}
		}
	}
}
