//go:build amd64 && !purego

package kernel

import (
	"slices"
	"unsafe"

	"pesti/gguf/quant"
)

// assemblyMatmuls are the matmul kernels in assembly.
var assemblyMatmuls = slices.Concat(
	withWords(inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q4_0, "panel16", "q8x2", panel16Q8x2(quant.Q4_0, [readOrders]panel16One{panel16Q4_0_t1, panel16Q4_0_t1ahead, panel16Q4_0_t1nta}, panel16Q4_0_t2, panel16Q4_0_t4)))),
	withWords(inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q4_1, "panel16", "q8x2", panel16Q8x2(quant.Q4_1, [readOrders]panel16One{panel16Q4_1_t1, panel16Q4_1_t1ahead, panel16Q4_1_t1nta}, panel16Q4_1_t2, panel16Q4_1_t4)))),
	withWords(inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q5_0, "panel16", "q8x2", panel16Q8x2(quant.Q5_0, [readOrders]panel16One{panel16Q5_0_t1, panel16Q5_0_t1ahead, panel16Q5_0_t1nta}, panel16Q5_0_t2, panel16Q5_0_t4)))),
	withWords(inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q5_1, "panel16", "q8x2", panel16Q8x2(quant.Q5_1, [readOrders]panel16One{panel16Q5_1_t1, panel16Q5_1_t1ahead, panel16Q5_1_t1nta}, panel16Q5_1_t2, panel16Q5_1_t4)))),
	withWords(inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q8_0, "panel16", "q8x2", panel16Words(quant.Q8_0, [readOrders]panel16Some{panel16Q8_0_t1, panel16Q8_0_t1ahead, panel16Q8_0_t1nta}, panel16Q8_0_t2, panel16Q8_0_t4)))),
	withWords(inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q4_K, "panel16", "q8x2", panel16Q8x2(quant.Q4_K, [readOrders]panel16One{panel16Q4_K_t1, panel16Q4_K_t1ahead, panel16Q4_K_t1nta}, panel16Q4_K_t2, panel16Q4_K_t4)))),
	withWords(inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q5_K, "panel16", "q8x2", panel16Q8x2(quant.Q5_K, [readOrders]panel16One{panel16Q5_K_t1, panel16Q5_K_t1ahead, panel16Q5_K_t1nta}, panel16Q5_K_t2, panel16Q5_K_t4)))),
	withWords(inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q6_K, "panel16", "q8x2", panel16Q8x2(quant.Q6_K, [readOrders]panel16One{panel16Q6_K_t1, panel16Q6_K_t1ahead, panel16Q6_K_t1nta}, panel16Q6_K_t2, panel16Q6_K_t4)))),

	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q4_0, "panel16", "q8", panel16Q8(quant.Q4_0, [readOrders]panel16Some{panel16Q4_0_q8_t1, panel16Q4_0_q8_t1ahead, panel16Q4_0_q8_t1nta}, panel16Q4_0_q8_t2, panel16Q4_0_q8_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q4_1, "panel16", "q8", panel16Q8(quant.Q4_1, [readOrders]panel16Some{panel16Q4_1_q8_t1, panel16Q4_1_q8_t1ahead, panel16Q4_1_q8_t1nta}, panel16Q4_1_q8_t2, panel16Q4_1_q8_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q5_0, "panel16", "q8", panel16Q8(quant.Q5_0, [readOrders]panel16Some{panel16Q5_0_q8_t1, panel16Q5_0_q8_t1ahead, panel16Q5_0_q8_t1nta}, panel16Q5_0_q8_t2, panel16Q5_0_q8_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q5_1, "panel16", "q8", panel16Q8(quant.Q5_1, [readOrders]panel16Some{panel16Q5_1_q8_t1, panel16Q5_1_q8_t1ahead, panel16Q5_1_q8_t1nta}, panel16Q5_1_q8_t2, panel16Q5_1_q8_t4))),
	withWords(inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q8_0, "panel16", "q8", panel16Words(quant.Q8_0, [readOrders]panel16Some{panel16Q8_0_t1, panel16Q8_0_t1ahead, panel16Q8_0_t1nta}, panel16Q8_0_t2, panel16Q8_0_t4)))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q4_K, "panel16", "q8", panel16Q8(quant.Q4_K, [readOrders]panel16Some{panel16Q4_K_q8_t1, panel16Q4_K_q8_t1ahead, panel16Q4_K_q8_t1nta}, panel16Q4_K_q8_t2, panel16Q4_K_q8_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q5_K, "panel16", "q8", panel16Q8(quant.Q5_K, [readOrders]panel16Some{panel16Q5_K_q8_t1, panel16Q5_K_q8_t1ahead, panel16Q5_K_q8_t1nta}, panel16Q5_K_q8_t2, panel16Q5_K_q8_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q6_K, "panel16", "q8", panel16Q8(quant.Q6_K, [readOrders]panel16Some{panel16Q6_K_q8_t1, panel16Q6_K_q8_t1ahead, panel16Q6_K_q8_t1nta}, panel16Q6_K_q8_t2, panel16Q6_K_q8_t4))),

	panel16FloatMatmuls("avx2", panel16AVX2Floats),

	unpackedMatmuls(),
	avx512Matmuls(),
	amxMatmuls(),
)

// avx2Orders begin with the order that was fastest on the processor that was measured (Zen 1).
var avx2Orders = []ReadOrder{OneStreamAhead, OneStream, OneStreamNTA}

// inOrders gives matmul kernels the orders in which one token can read weights.
func inOrders(orders []ReadOrder, rows []Matmul) []Matmul {
	for i := range rows {
		rows[i].orders = orders
	}
	return rows
}

var assemblyWords wordsFunc = func(dst []int16, hi, lo []int8) {
	n := len(dst) / 32
	if n == 0 {
		return
	}
	_ = hi[32*n-1]
	if lo == nil {
		words8AVX2(&dst[0], &hi[0], n)
		return
	}
	_ = lo[32*n-1]
	wordsAVX2(&dst[0], &hi[0], &lo[0], n)
}

// These kernels add the products of a panel's blocks to y; see _asm/panel16. A panel16One has one token in two planes.
// A panel16Some has one or more tokens, in one plane or as words, which are at q.
type (
	panel16One  func(y, w, x, hi, lo *byte, blocks int)
	panel16Some func(y *byte, yStep int, w, x *byte, xStep int, q *byte, qStep, blocks int)
)

// partOf returns the number of elements of k that a tile kernel multiplies at a time with m tokens. It is small enough
// for the activations to stay in the L1 or L2 cache and for calls to be short, because assembly cannot be preempted. It
// is large enough for calls to cost little.
func partOf(m int) int { return max(1<<14/m&^(span-1), 1024) }

// A panel16Part is a part of a panel along k, with the tokens that are multiplied with it.
type panel16Part struct {
	y, w      *byte
	x, q, lo  *byte // scales of the first token, and its planes
	words     *byte // of the first token, if they are needed
	yStep     int   // bytes from a token to the next
	xStep     int
	qStep     int
	wordsStep int
	blocks    int
	tokens    int
	order     ReadOrder // for one token
}

// panel16Tile returns the tile kernel for a type. add adds the products of a part with one, two or four tokens and
// returns the number of tokens.
func panel16Tile(kind quant.Type, add func(p *panel16Part) int) tileFunc {
	layout, _ := LookupLayout("panel16", kind)
	return func(y []float32, w []byte, n int, x *activation) {
		panelBytes, part := layout.panel(x.k), partOf(x.m)
		planes := x.planes.data[x.first*x.planes.bytes(x.k):][:x.m*x.planes.bytes(x.k)]
		p := panel16Part{
			yStep: 4 * x.width, xStep: x.k / 32 * int(unsafe.Sizeof(qscale{})), qStep: x.planes.bytes(x.k), wordsStep: 2 * x.k,
			order: x.choices.readOrder(kind, avx2Orders),
		}
		clear(y[:x.m*x.width])
		for at := 0; at < x.k; at += part {
			p.blocks = min(part, x.k-at) / layout.Block
			for i := 0; i < n; i += panelRows {
				p.w = &w[i/panelRows*panelBytes:][:panelBytes][at/layout.Block*layout.Bytes]
				for m := 0; m < x.m; {
					p.y, p.x = (*byte)(unsafe.Pointer(&y[m*x.width+i])), (*byte)(unsafe.Pointer(&x.scales[(m*x.k+at)/32]))
					p.q, p.lo = &planes[m*p.qStep+at], &planes[m*p.qStep+at+x.k*(x.planes.planes-1)]
					if x.words != nil {
						p.words = (*byte)(unsafe.Pointer(&x.words[m*x.k+at]))
					}
					p.tokens = x.m - m
					m += add(&p)
				}
			}
		}
	}
}

// panel16Q8x2 returns the tile kernel for q8x2 activations, from kernels for one token by the order in which it reads
// weights, and for two and four tokens. All of them give a token the same bits.
func panel16Q8x2(kind quant.Type, one [readOrders]panel16One, x2, x4 panel16Some) tileFunc {
	return panel16Tile(kind, func(p *panel16Part) int {
		if p.tokens == 1 {
			one[p.order](p.y, p.w, p.x, p.q, p.lo, p.blocks)
			return 1
		}
		f, tokens := x2, 2
		if p.tokens >= 4 {
			f, tokens = x4, 4
		}
		f(p.y, p.yStep, p.w, p.x, p.xStep, p.words, p.wordsStep, p.blocks)
		return tokens
	})
}

// panel16Words is panel16Q8x2 for 8-bit weights, in both formats.
func panel16Words(kind quant.Type, one [readOrders]panel16Some, x2, x4 panel16Some) tileFunc {
	return panel16Tile(kind, func(p *panel16Part) int {
		f, tokens := p.choose(&one, x2, x4)
		f(p.y, p.yStep, p.w, p.x, p.xStep, p.words, p.wordsStep, p.blocks)
		return tokens
	})
}

// panel16Q8 is panel16Q8x2 for q8 activations.
func panel16Q8(kind quant.Type, one [readOrders]panel16Some, x2, x4 panel16Some) tileFunc {
	return panel16Tile(kind, func(p *panel16Part) int {
		f, tokens := p.choose(&one, x2, x4)
		f(p.y, p.yStep, p.w, p.x, p.xStep, p.q, p.qStep, p.blocks)
		return tokens
	})
}

// choose returns the kernel for the part's next tokens, and how many it multiplies.
func (p *panel16Part) choose(one *[readOrders]panel16Some, x2, x4 panel16Some) (panel16Some, int) {
	switch {
	case p.tokens >= 4:
		return x4, 4
	case p.tokens >= 2:
		return x2, 2
	}
	return one[p.order], 1
}

// A panel16Float is a kernel that adds the products of a part of a panel in float32 with a number of tokens to y.
type panel16Float struct {
	tokens int
	add    func(y *float32, yStep int, w, x *float32, xStep int, k int)
}

// panel16AVX2Floats are the kernels of AVX2, by decreasing number of tokens.
var panel16AVX2Floats = []panel16Float{{4, panel16F32_t4}, {2, panel16F32_t2}, {1, panel16F32_t1}}

// panel16FloatMatmuls returns the products of f32 activations with panels of all types, which are dequantized with the
// bits of gguf/quant.
func panel16FloatMatmuls(isa string, kernels []panel16Float) (all []Matmul) {
	for _, k := range []struct {
		kind       quant.Type
		dequantize func(dst *float32, w *byte, blocks int) // nil for float32 weights
	}{
		{quant.F32, nil},
		{quant.F16, panel16DequantizeF16},
		{quant.BF16, panel16DequantizeBF16},
		{quant.F8E4M3, panel16DequantizeF8_E4M3},
		{quant.Q4_0, panel16DequantizeQ4_0},
		{quant.Q4_1, panel16DequantizeQ4_1},
		{quant.Q5_0, panel16DequantizeQ5_0},
		{quant.Q5_1, panel16DequantizeQ5_1},
		{quant.Q8_0, panel16DequantizeQ8_0},
		{quant.Q4_K, panel16DequantizeQ4_K},
		{quant.Q5_K, panel16DequantizeQ5_K},
		{quant.Q6_K, panel16DequantizeQ6_K},
	} {
		all = append(all, gemvAndGemm(isa, k.kind, "panel16", "f32", panel16FloatTile(k.kind, k.dequantize, kernels))...)
	}
	return all
}

// panel16FloatTile returns the tile kernel for f32 activations and a type of weights.
func panel16FloatTile(kind quant.Type, dequantize func(dst *float32, w *byte, blocks int), kernels []panel16Float) tileFunc {
	layout, _ := LookupLayout("panel16", kind)
	return func(y []float32, w []byte, n int, x *activation) {
		panelBytes := layout.panel(x.k)
		clear(y[:x.m*x.width])
		for i := 0; i < n; i += panelRows {
			panel := w[i/panelRows*panelBytes:][:panelBytes]
			for at := 0; at < x.k; at += panelPart {
				part := panel[at/layout.Block*layout.Bytes:]
				some := min(panelPart, x.k-at)
				values := &x.panel[0]
				if dequantize != nil {
					dequantize(values, &part[0], some/layout.Block)
				} else {
					values = &view[float32](part)[0]
				}
				m := 0
				for _, k := range kernels {
					for ; x.m-m >= k.tokens; m += k.tokens {
						k.add(&y[m*x.width+i], 4*x.width, values, &x.rows[m*x.k+at], 4*x.k, some)
					}
				}
			}
		}
	}
}
