//go:build amd64 && !purego

package kernel

import (
	"slices"
	"unsafe"

	"pesti/gguf/quant"
)

// avx512Matmuls are the matmul kernels with VPDPBUSD. Their speed has not been measured.
var avx512Matmuls = slices.Concat(
	gemvAndGemm("avx512vnni", quant.Q4_0, "r16", "q8x2", panel16avx512Tile(32, panel16avx512Q4_0_t1, panel16avx512Q4_0_tn)),
	gemvAndGemm("avx512vnni", quant.Q4_1, "r16", "q8x2", panel16avx512Tile(32, panel16avx512Q4_1_t1, panel16avx512Q4_1_tn)),
	gemvAndGemm("avx512vnni", quant.Q5_0, "r16", "q8x2", panel16avx512Tile(32, panel16avx512Q5_0_t1, panel16avx512Q5_0_tn)),
	gemvAndGemm("avx512vnni", quant.Q5_1, "r16", "q8x2", panel16avx512Tile(32, panel16avx512Q5_1_t1, panel16avx512Q5_1_tn)),
	gemvAndGemm("avx512vnni", quant.Q8_0, "r16", "q8x2", panel16avx512Tile(32, panel16avx512Q8_0_t1, panel16avx512Q8_0_tn)),
	gemvAndGemm("avx512vnni", quant.Q4_K, "r16", "q8x2", panel16avx512Tile(256, panel16avx512Q4_K_t1, panel16avx512Q4_K_tn)),
	gemvAndGemm("avx512vnni", quant.Q5_K, "r16", "q8x2", panel16avx512Tile(256, panel16avx512Q5_K_t1, panel16avx512Q5_K_tn)),
	gemvAndGemm("avx512vnni", quant.Q6_K, "r16", "q8x2", panel16avx512Tile(256, panel16avx512Q6_K_t1, panel16avx512Q6_K_tn)),
)

// Kernels for four panels and one token, and for one panel and any number of tokens. They add the
// products of blocks to y; see _asm/panel16avx512.
type (
	panel16avx512One  func(y *float32, w *byte, wStep int, x *byte, hi, lo *int8, blocks int)
	panel16avx512Some func(y *float32, yStep int, w, x *byte, xStep int, hi, lo *int8, planeStep, tokens, blocks int)
)

// panel16avx512Tile returns the tile kernel for types with block elements in a block. Both kernels give
// a token the bits of the portable kernel.
func panel16avx512Tile(block int, one panel16avx512One, some panel16avx512Some) func(y []float32, w []byte, n int, x *activation) {
	const (
		call      = 1 << 13 // elements of a row in a call; limited because assembly cannot be preempted
		onePanels = 4
	)
	return func(y []float32, w []byte, n int, x *activation) {
		blocks, panels := x.k/block, (n+panelRows-1)/panelRows
		panelBytes := len(w) / panels
		blockBytes := panelBytes / blocks
		xStep, planeStep := x.k/32*int(unsafe.Sizeof(qblock{})), len(x.planes.row(0))
		clear(y[:x.m*x.width])
		for p := 0; p < panels; {
			together := 1
			if x.m == 1 && panels-p >= onePanels {
				together = onePanels
			}
			_ = w[(p+together)*panelBytes-1]
			for at := 0; at < blocks; at += call / block {
				y, part := &y[p*panelRows], &w[p*panelBytes+at*blockBytes]
				q := (*byte)(unsafe.Pointer(&x.q[at*block/32]))
				hi, lo := x.planes.split(x.first)
				hi, lo = hi[at*block:], lo[at*block:]
				n := min(call/block, blocks-at)
				if together == onePanels {
					one(y, part, panelBytes, q, &hi[0], &lo[0], n)
				} else {
					some(y, 4*x.width, part, q, xStep, &hi[0], &lo[0], planeStep, x.m, n)
				}
			}
			p += together
		}
	}
}
