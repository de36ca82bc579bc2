//go:build amd64 && !purego

package kernel

import (
	"unsafe"

	"pesti/gguf/quant"
)

// amxMatmuls are the matmul kernels for several tokens with TDPBSSD. They have the bits of avx512Matmuls. On
// processors with AMX (Emerald Rapids was measured) one token is fastest with four streams and prefetch.
func amxMatmuls() (all []Matmul) {
	for i, k := range panel16amxKernels {
		fewer := panel16avx512Kernels[i]
		all = append(all, gemvAndGemm("amx", k.kind, "r16", "q8x2", panel16amxTile(k.kind, k.q8x2, fewer.q8x2.add(k.kind, FourStreamsAhead)))...)
		all = append(all, gemvAndGemm("amx", k.kind, "r16", "q8", panel16amxTile(k.kind, k.q8, fewer.q8.add(k.kind, FourStreamsAhead)))...)
	}
	return withReading(all, FourStreamsAhead)
}

// panel16amxKernels has the types of panel16avx512Kernels, in that order.
var panel16amxKernels = []struct {
	kind     quant.Type
	q8x2, q8 panel16amx
}{
	{quant.Q4_0, panel16amxQ4_0, panel16amxQ4_0_q8},
	{quant.Q4_1, panel16amxQ4_1, panel16amxQ4_1_q8},
	{quant.Q5_0, panel16amxQ5_0, panel16amxQ5_0_q8},
	{quant.Q5_1, panel16amxQ5_1, panel16amxQ5_1_q8},
	{quant.Q8_0, panel16amxQ8_0, panel16amxQ8_0_q8},
	{quant.Q4_K, panel16amxQ4_K, panel16amxQ4_K_q8},
	{quant.Q5_K, panel16amxQ5_K, panel16amxQ5_K_q8},
	{quant.Q6_K, panel16amxQ6_K, panel16amxQ6_K_q8},
}

// A panel16amx adds the products of blocks of two panels with up to 16 tokens to y; see _asm/panel16amx.
type panel16amx func(y *float32, yStep int, w *byte, wStep int, x *byte, xStep int, q *int8, qStep, planeStep, tokens, blocks int, config *byte)

// amxTokens is the number of tokens from which tiles are faster than VPDPBUSD.
const amxTokens = 8

// panel16amxTile returns a tile kernel. Few tokens, and a last panel without a second one, are left to rest.
func panel16amxTile(kind quant.Type, products panel16amx, rest tileFunc) tileFunc {
	const call = 1 << 13 // elements of a row in a call; limited because assembly cannot be preempted
	layout, _ := LookupLayout("r16", kind)
	block, units := layout.Block, 8 // units of the same scale
	if swarTypeOf(kind).block == narrow16 {
		units = 4
	}
	var configs [tileTokens + 1][64]byte
	for tokens := range configs {
		configs[tokens] = amxConfig(tokens, units)
	}
	return func(y []float32, w []byte, n int, x *activation) {
		blocks, panels := x.k/block, (n+panelRows-1)/panelRows
		panelBytes := len(w) / panels
		blockBytes := panelBytes / blocks
		xStep, qStep := x.k/32*int(unsafe.Sizeof(qblock{})), len(x.planes.row(0))
		clear(y[:x.m*x.width])
		p := 0
		for ; p+2 <= panels && x.m >= amxTokens; p += 2 {
			y, w := &y[p*panelRows], w[p*panelBytes:(p+2)*panelBytes]
			for at := 0; at < blocks; at += call / block {
				q, _ := x.planes.split(x.first)
				products(y, 4*x.width, &w[at*blockBytes], panelBytes, (*byte)(unsafe.Pointer(&x.q[at*block/32])), xStep,
					&q[at*block], qStep, x.k, x.m, min(call/block, blocks-at), &configs[x.m][0])
			}
		}
		if p < panels {
			rest(y[p*panelRows:], w[p*panelBytes:], n-p*panelRows, x)
		}
	}
}

// amxConfig returns the shapes of tiles for the products of so many tokens and units: Intel's Software
// Developer's Manual, volume 1, 18.3.
func amxConfig(tokens, units int) (config [64]byte) {
	const palette, widths, heights = 0, 16, 48 // offsets
	config[palette] = 1
	for t := range 8 {
		width, height := unitBytes, tokens // products
		switch t {
		case 0, 1: // tokens
			width = 4 * units
		case 2, 3: // weights
			height = units
		}
		config[widths+2*t], config[heights+t] = byte(width), byte(height)
	}
	return config
}
