//go:build arm64 && !purego

package kernel

import (
	"slices"
	"unsafe"

	"pesti/gguf/quant"
)

// assemblyMatmuls are the matmul kernels with SDOT. They have run on an emulated processor only, and
// their speed has not been measured.
var assemblyMatmuls = slices.Concat(
	gemvAndGemm("neondot", quant.Q4_0, "panel16", "q8x2", neondotTile(32, neondotQ4_0_t1, neondotQ4_0_t2)),
	gemvAndGemm("neondot", quant.Q4_1, "panel16", "q8x2", neondotTile(32, neondotQ4_1_t1, neondotQ4_1_t2)),
	gemvAndGemm("neondot", quant.Q5_0, "panel16", "q8x2", neondotTile(32, neondotQ5_0_t1, neondotQ5_0_t2)),
	gemvAndGemm("neondot", quant.Q5_1, "panel16", "q8x2", neondotTile(32, neondotQ5_1_t1, neondotQ5_1_t2)),
	gemvAndGemm("neondot", quant.Q8_0, "panel16", "q8x2", neondotTile(32, neondotQ8_0_t1, neondotQ8_0_t2)),
	gemvAndGemm("neondot", quant.Q4_K, "panel16", "q8x2", neondotTile(256, neondotQ4_K_t1, neondotQ4_K_t2)),
	gemvAndGemm("neondot", quant.Q5_K, "panel16", "q8x2", neondotTile(256, neondotQ5_K_t1, neondotQ5_K_t2)),
	gemvAndGemm("neondot", quant.Q6_K, "panel16", "q8x2", neondotTile(256, neondotQ6_K_t1, neondotQ6_K_t2)),
)

var assemblyWords wordsFunc

// A neondotFunc adds the products of a panel's blocks with one or two tokens to y; see _asm/neondot.
type neondotFunc func(y *float32, yStep int, w, x *byte, xStep int, hi, lo *int8, planeStep, blocks int)

// neondotTile returns the tile kernel for types with block elements in a block. Both kernels give a
// token the bits of the portable kernel.
func neondotTile(block int, x1, x2 neondotFunc) func(y []float32, w []byte, n int, x *activation) {
	const call = 1 << 14 // elements of a row in a call; limited because assembly cannot be preempted
	return func(y []float32, w []byte, n int, x *activation) {
		blocks, panels := x.k/block, (n+panelRows-1)/panelRows
		panelBytes := len(w) / panels
		xStep, planeStep := x.k/32*int(unsafe.Sizeof(qscale{})), len(x.planes.row(0))
		clear(y[:x.m*x.width])
		for p := range panels {
			panel := w[p*panelBytes:][:panelBytes]
			for at := 0; at < blocks; at += call / block {
				part, some := &panel[at*(panelBytes/blocks)], min(call/block, blocks-at)
				for m := 0; m < x.m; {
					f, tokens := x1, 1
					if x.m-m >= 2 {
						f, tokens = x2, 2
					}
					hi, lo := x.planes.split(x.first + m)
					f(&y[m*x.width+p*panelRows], 4*x.width, part, (*byte)(unsafe.Pointer(&x.scales[(m*x.k+at*block)/32])), xStep,
						&hi[at*block], &lo[at*block], planeStep, some)
					m += tokens
				}
			}
		}
	}
}
