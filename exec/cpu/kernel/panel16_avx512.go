//go:build amd64 && !purego

package kernel

import (
	"unsafe"

	"pesti/gguf/quant"
)

// avx512Matmuls are the matmul kernels with VPDPBUSD. On processors without AMX one token reads one stream by
// default: that was fastest for most types on the one that was measured (Zen 4), and other orders were far behind.
func avx512Matmuls() (all []Matmul) {
	for _, k := range panel16avx512Kernels {
		all = append(all, inOrders(avx512Orders, gemvAndGemm("avx512vnni", k.kind, "panel16", "q8x2", cleared(k.q8x2.add(k.kind, avx512Orders))))...)
		all = append(all, inOrders(avx512Orders, gemvAndGemm("avx512vnni", k.kind, "panel16", "q8", cleared(k.q8.add(k.kind, avx512Orders))))...)
	}
	return append(all, panel16FloatMatmuls("avx512vnni", panel16AVX512Floats)...)
}

// panel16AVX512Floats are the kernels of AVX-512, by decreasing number of tokens.
var panel16AVX512Floats = []panel16Float{{8, panel16avx512F32_t8}, {4, panel16avx512F32_t4}, {2, panel16avx512F32_t2}, {1, panel16avx512F32_t1}}

var avx512Orders = []ReadOrder{OneStream, OneStreamNTA, FourStreams, FourStreamsAhead}

// cleared returns the tile function that clears the tile and calls add.
func cleared(add tileFunc) tileFunc {
	return func(y []float32, w []byte, n int, x *activation) {
		clear(y[:x.m*x.width])
		add(y, w, n, x)
	}
}

var panel16avx512Kernels = []struct {
	kind     quant.Type
	q8x2, q8 panel16avx512
}{
	{quant.Q4_0, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q4_0_t1, nil, panel16avx512Q4_0_t1nta, panel16avx512Q4_0_t1x4, panel16avx512Q4_0_t1x4ahead}, panel16avx512Q4_0_t8, panel16avx512Q4_0_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q4_0_q8_t1, nil, panel16avx512Q4_0_q8_t1nta, panel16avx512Q4_0_q8_t1x4, panel16avx512Q4_0_q8_t1x4ahead}, panel16avx512Q4_0_q8_t8, panel16avx512Q4_0_q8_tn}},
	{quant.Q4_1, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q4_1_t1, nil, panel16avx512Q4_1_t1nta, panel16avx512Q4_1_t1x4, panel16avx512Q4_1_t1x4ahead}, panel16avx512Q4_1_t8, panel16avx512Q4_1_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q4_1_q8_t1, nil, panel16avx512Q4_1_q8_t1nta, panel16avx512Q4_1_q8_t1x4, panel16avx512Q4_1_q8_t1x4ahead}, panel16avx512Q4_1_q8_t8, panel16avx512Q4_1_q8_tn}},
	{quant.Q5_0, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q5_0_t1, nil, panel16avx512Q5_0_t1nta, panel16avx512Q5_0_t1x4, panel16avx512Q5_0_t1x4ahead}, panel16avx512Q5_0_t8, panel16avx512Q5_0_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q5_0_q8_t1, nil, panel16avx512Q5_0_q8_t1nta, panel16avx512Q5_0_q8_t1x4, panel16avx512Q5_0_q8_t1x4ahead}, panel16avx512Q5_0_q8_t8, panel16avx512Q5_0_q8_tn}},
	{quant.Q5_1, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q5_1_t1, nil, panel16avx512Q5_1_t1nta, panel16avx512Q5_1_t1x4, panel16avx512Q5_1_t1x4ahead}, panel16avx512Q5_1_t8, panel16avx512Q5_1_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q5_1_q8_t1, nil, panel16avx512Q5_1_q8_t1nta, panel16avx512Q5_1_q8_t1x4, panel16avx512Q5_1_q8_t1x4ahead}, panel16avx512Q5_1_q8_t8, panel16avx512Q5_1_q8_tn}},
	{quant.Q8_0, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q8_0_t1, nil, panel16avx512Q8_0_t1nta, panel16avx512Q8_0_t1x4, panel16avx512Q8_0_t1x4ahead}, panel16avx512Q8_0_t8, panel16avx512Q8_0_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q8_0_q8_t1, nil, panel16avx512Q8_0_q8_t1nta, panel16avx512Q8_0_q8_t1x4, panel16avx512Q8_0_q8_t1x4ahead}, panel16avx512Q8_0_q8_t8, panel16avx512Q8_0_q8_tn}},
	{quant.Q4_K, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q4_K_t1, nil, panel16avx512Q4_K_t1nta, panel16avx512Q4_K_t1x4, panel16avx512Q4_K_t1x4ahead}, panel16avx512Q4_K_t8, panel16avx512Q4_K_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q4_K_q8_t1, nil, panel16avx512Q4_K_q8_t1nta, panel16avx512Q4_K_q8_t1x4, panel16avx512Q4_K_q8_t1x4ahead}, panel16avx512Q4_K_q8_t8, panel16avx512Q4_K_q8_tn}},
	{quant.Q5_K, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q5_K_t1, nil, panel16avx512Q5_K_t1nta, panel16avx512Q5_K_t1x4, panel16avx512Q5_K_t1x4ahead}, panel16avx512Q5_K_t8, panel16avx512Q5_K_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q5_K_q8_t1, nil, panel16avx512Q5_K_q8_t1nta, panel16avx512Q5_K_q8_t1x4, panel16avx512Q5_K_q8_t1x4ahead}, panel16avx512Q5_K_q8_t8, panel16avx512Q5_K_q8_tn}},
	{quant.Q6_K, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q6_K_t1, nil, panel16avx512Q6_K_t1nta, panel16avx512Q6_K_t1x4, panel16avx512Q6_K_t1x4ahead}, panel16avx512Q6_K_t8, panel16avx512Q6_K_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q6_K_q8_t1, nil, panel16avx512Q6_K_q8_t1nta, panel16avx512Q6_K_q8_t1x4, panel16avx512Q6_K_q8_t1x4ahead}, panel16avx512Q6_K_q8_t8, panel16avx512Q6_K_q8_tn}},
}

// A panel16avx512 has the kernels for one token by ReadOrder, nil for the orders that are not in avx512Orders, and those
// for eight and for fewer tokens, which read one panel. They add the products of blocks to y; see _asm/panel16avx512.
// For one plane, lo is not read.
type panel16avx512 struct {
	one     [readOrders]panel16avx512One
	eight   func(y *float32, yStep int, w, x *byte, xStep int, hi, lo *int8, rowStep, blocks int)
	several func(y *float32, yStep int, w, x *byte, xStep int, hi, lo *int8, rowStep, tokens, blocks int)
}

type panel16avx512One func(y *float32, w *byte, wStep int, x *byte, hi, lo *int8, blocks int)

// add returns a function that adds products to a tile. orders are the orders in which one token can read weights, the
// default first. All kernels give a token the bits of the portable kernel.
func (k panel16avx512) add(kind quant.Type, orders []ReadOrder) tileFunc {
	const abreast = 4 // panels that FourStreams and FourStreamsAhead read at a time
	layout, _ := LookupLayout("panel16", kind)
	return func(y []float32, w []byte, n int, x *activation) {
		panels, panelBytes, part := (n+panelRows-1)/panelRows, layout.panel(x.k), partOf(x.m)
		xStep, rowStep := x.k/32*int(unsafe.Sizeof(qscale{})), len(x.planes.row(0))
		order := x.choices.readOrder(kind, orders)
		for at := 0; at < x.k; at += part {
			blocks := min(part, x.k-at) / layout.Block
			for p := 0; p < panels; {
				together, one := 1, k.one[order]
				if order >= FourStreams {
					if x.m == 1 && panels-p >= abreast {
						together = abreast
					} else {
						one = k.one[OneStream]
					}
				}
				_ = w[(p+together)*panelBytes-1]
				w := &w[p*panelBytes+at/layout.Block*layout.Bytes]
				for m := 0; m < x.m; {
					y, scales := &y[m*x.width+p*panelRows], (*byte)(unsafe.Pointer(&x.scales[(m*x.k+at)/32]))
					hi, lo := x.planes.split(x.first + m)
					if lo == nil {
						lo = hi
					}
					switch tokens := x.m - m; {
					case x.m == 1:
						one(y, w, panelBytes, scales, &hi[at], &lo[at], blocks)
						m++
					case tokens >= 8:
						k.eight(y, 4*x.width, w, scales, xStep, &hi[at], &lo[at], rowStep, blocks)
						m += 8
					default:
						k.several(y, 4*x.width, w, scales, xStep, &hi[at], &lo[at], rowStep, tokens, blocks)
						m += tokens
					}
				}
				p += together
			}
		}
	}
}
