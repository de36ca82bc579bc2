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
		all = append(all, gemvAndGemmInOrder("avx512vnni", k.kind, "q8x2", OneStream, k.q8x2.add(k.kind, OneStream))...)
		all = append(all, gemvAndGemmInOrder("avx512vnni", k.kind, "q8", OneStream, k.q8.add(k.kind, OneStream))...)
	}
	return all
}

// gemvAndGemmInOrder is gemvAndGemm for layout panel16 and a function that adds to a tile, with the order in which one
// token reads weights by default.
func gemvAndGemmInOrder(isa string, kind quant.Type, act string, order ReadOrder, add tileFunc) []Matmul {
	rows := gemvAndGemm(isa, kind, "panel16", act, func(y []float32, w []byte, n int, x *activation) {
		clear(y[:x.m*x.width])
		add(y, w, n, x)
	})
	for i := range rows {
		rows[i].order = &order
	}
	return rows
}

var panel16avx512Kernels = []struct {
	kind     quant.Type
	q8x2, q8 panel16avx512
}{
	{quant.Q4_0, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q4_0_t1, panel16avx512Q4_0_t1x4, panel16avx512Q4_0_t1x4ahead}, panel16avx512Q4_0_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q4_0_q8_t1, panel16avx512Q4_0_q8_t1x4, panel16avx512Q4_0_q8_t1x4ahead}, panel16avx512Q4_0_q8_tn}},
	{quant.Q4_1, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q4_1_t1, panel16avx512Q4_1_t1x4, panel16avx512Q4_1_t1x4ahead}, panel16avx512Q4_1_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q4_1_q8_t1, panel16avx512Q4_1_q8_t1x4, panel16avx512Q4_1_q8_t1x4ahead}, panel16avx512Q4_1_q8_tn}},
	{quant.Q5_0, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q5_0_t1, panel16avx512Q5_0_t1x4, panel16avx512Q5_0_t1x4ahead}, panel16avx512Q5_0_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q5_0_q8_t1, panel16avx512Q5_0_q8_t1x4, panel16avx512Q5_0_q8_t1x4ahead}, panel16avx512Q5_0_q8_tn}},
	{quant.Q5_1, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q5_1_t1, panel16avx512Q5_1_t1x4, panel16avx512Q5_1_t1x4ahead}, panel16avx512Q5_1_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q5_1_q8_t1, panel16avx512Q5_1_q8_t1x4, panel16avx512Q5_1_q8_t1x4ahead}, panel16avx512Q5_1_q8_tn}},
	{quant.Q8_0, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q8_0_t1, panel16avx512Q8_0_t1x4, panel16avx512Q8_0_t1x4ahead}, panel16avx512Q8_0_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q8_0_q8_t1, panel16avx512Q8_0_q8_t1x4, panel16avx512Q8_0_q8_t1x4ahead}, panel16avx512Q8_0_q8_tn}},
	{quant.Q4_K, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q4_K_t1, panel16avx512Q4_K_t1x4, panel16avx512Q4_K_t1x4ahead}, panel16avx512Q4_K_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q4_K_q8_t1, panel16avx512Q4_K_q8_t1x4, panel16avx512Q4_K_q8_t1x4ahead}, panel16avx512Q4_K_q8_tn}},
	{quant.Q5_K, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q5_K_t1, panel16avx512Q5_K_t1x4, panel16avx512Q5_K_t1x4ahead}, panel16avx512Q5_K_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q5_K_q8_t1, panel16avx512Q5_K_q8_t1x4, panel16avx512Q5_K_q8_t1x4ahead}, panel16avx512Q5_K_q8_tn}},
	{quant.Q6_K, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q6_K_t1, panel16avx512Q6_K_t1x4, panel16avx512Q6_K_t1x4ahead}, panel16avx512Q6_K_tn}, panel16avx512{[readOrders]panel16avx512One{panel16avx512Q6_K_q8_t1, panel16avx512Q6_K_q8_t1x4, panel16avx512Q6_K_q8_t1x4ahead}, panel16avx512Q6_K_q8_tn}},
}

// A panel16avx512 has the kernels for one token by ReadOrder, and the one for several tokens, which reads one panel.
// They add the products of blocks to y; see _asm/panel16avx512. For one plane, lo is not read.
type panel16avx512 struct {
	one     [readOrders]panel16avx512One
	several func(y *float32, yStep int, w, x *byte, xStep int, hi, lo *int8, rowStep, tokens, blocks int)
}

type panel16avx512One func(y *float32, w *byte, wStep int, x *byte, hi, lo *int8, blocks int)

// add returns a function that adds products to a tile, in the given order of reading if there is no other choice.
// All kernels give a token the bits of the portable kernel.
func (k panel16avx512) add(kind quant.Type, byDefault ReadOrder) tileFunc {
	const (
		call    = 1 << 13 // elements of a row in a call; limited because assembly cannot be preempted
		abreast = 4       // panels that all orders but OneStream read
	)
	layout, _ := LookupLayout("panel16", kind)
	block := layout.Block
	return func(y []float32, w []byte, n int, x *activation) {
		blocks, panels := x.k/block, (n+panelRows-1)/panelRows
		panelBytes := len(w) / panels
		blockBytes := panelBytes / blocks
		xStep, rowStep := x.k/32*int(unsafe.Sizeof(qblock{})), len(x.planes.row(0))
		order := x.choices.readOrder(kind, byDefault)
		for p := 0; p < panels; {
			together, one := 1, k.one[OneStream]
			if order != OneStream && x.m == 1 && panels-p >= abreast {
				together, one = abreast, k.one[order]
			}
			_ = w[(p+together)*panelBytes-1]
			for at := 0; at < blocks; at += call / block {
				y, part := &y[p*panelRows], &w[p*panelBytes+at*blockBytes]
				q := (*byte)(unsafe.Pointer(&x.q[at*block/32]))
				hi, lo := x.planes.split(x.first)
				if lo == nil {
					lo = hi
				}
				hi, lo = hi[at*block:], lo[at*block:]
				n := min(call/block, blocks-at)
				if x.m == 1 {
					one(y, part, panelBytes, q, &hi[0], &lo[0], n)
				} else {
					k.several(y, 4*x.width, part, q, xStep, &hi[0], &lo[0], rowStep, x.m, n)
				}
			}
			p += together
		}
	}
}
