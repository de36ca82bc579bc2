//go:build amd64 && !purego

package kernel

import (
	"unsafe"

	"pesti/gguf/quant"
)

// amxMatmuls are the matmul kernels for several tokens with TDPBSSD. They have the bits of avx512Matmuls, which
// compute one token. On processors with AMX (Emerald Rapids was measured) one token is fastest with four streams and
// prefetch.
func amxMatmuls() (all []Matmul) {
	for _, k := range panel16avx512Kernels {
		amx := panel16amxKernels[k.kind]
		q8x2 := amx.q8x2.add(k.kind, k.q8x2.add(k.kind, amxOrders))
		q8 := amx.q8.add(k.kind, k.q8.add(k.kind, amxOrders))
		all = append(all, inOrders(amxOrders, gemvAndGemm("amx", k.kind, "panel16", "q8x2", cleared(q8x2)))...)
		all = append(all, inOrders(amxOrders, gemvAndGemm("amx", k.kind, "panel16", "q8", cleared(q8)))...)
	}
	return all
}

var amxOrders = []ReadOrder{FourStreamsAhead, OneStream, OneStreamNTA, FourStreams}

// panel16amxKernels has a kernel for each type of panel16avx512Kernels.
var panel16amxKernels = map[quant.Type]struct{ q8x2, q8 panel16amx }{
	quant.Q4_0: {panel16amxQ4_0, panel16amxQ4_0_q8},
	quant.Q4_1: {panel16amxQ4_1, panel16amxQ4_1_q8},
	quant.Q5_0: {panel16amxQ5_0, panel16amxQ5_0_q8},
	quant.Q5_1: {panel16amxQ5_1, panel16amxQ5_1_q8},
	quant.Q8_0: {panel16amxQ8_0, panel16amxQ8_0_q8},
	quant.Q4_K: {panel16amxQ4_K, panel16amxQ4_K_q8},
	quant.Q5_K: {panel16amxQ5_K, panel16amxQ5_K_q8},
	quant.Q6_K: {panel16amxQ6_K, panel16amxQ6_K_q8},
}

// A panel16amx adds the products of blocks of two panels with up to 16 tokens to y; see _asm/panel16amx.
type panel16amx func(y *float32, yStep int, w *byte, wStep int, x *byte, xStep int, q *int8, rowStep, planeStep, tokens, blocks int, config *byte)

// amxTokens is the number of tokens from which tiles are faster than VPDPBUSD.
const amxTokens = 8

// add returns a function that adds products to a tile. It calls fewer for fewer than amxTokens tokens, and for a last
// panel that has no partner.
func (f panel16amx) add(kind quant.Type, fewer tileFunc) tileFunc {
	const call = 1 << 13 // elements of a row in a call; limited because assembly cannot be preempted
	layout, _ := LookupLayout("panel16", kind)
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
		xStep, rowStep := x.k/32*int(unsafe.Sizeof(qscale{})), len(x.planes.row(0))
		p := 0
		for ; p+2 <= panels && x.m >= amxTokens; p += 2 {
			w := w[p*panelBytes : (p+2)*panelBytes]
			for at := 0; at < blocks; at += call / block {
				for m := 0; m < x.m; m += tileTokens {
					y, scales := &y[m*x.width+p*panelRows], (*byte)(unsafe.Pointer(&x.scales[(m*x.k+at*block)/32]))
					q, _ := x.planes.split(x.first + m)
					tokens := min(tileTokens, x.m-m)
					f(y, 4*x.width, &w[at*blockBytes], panelBytes, scales, xStep,
						&q[at*block], rowStep, x.k, tokens, min(call/block, blocks-at), &configs[tokens][0])
				}
			}
		}
		if p < panels {
			fewer(y[p*panelRows:], w[p*panelBytes:], n-p*panelRows, x)
		}
	}
}

// amxConfig returns the shapes of tiles for products of the given numbers of tokens and units. Intel's Software
// Developer's Manual, volume 1, 18.3, describes the format.
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
