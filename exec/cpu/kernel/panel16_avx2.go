//go:build amd64 && !purego

package kernel

import (
	"slices"
	"unsafe"

	"pesti/gguf/quant"
)

// assemblyMatmuls are the matmul kernels in assembly.
var assemblyMatmuls = slices.Concat(
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q4_0, "panel16", "q8x2", panel16Tile(quant.Q4_0, [readOrders]panel16One{panel16Q4_0_t1, panel16Q4_0_t1ahead, panel16Q4_0_t1nta}, panel16Q4_0_t2, panel16Q4_0_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q4_1, "panel16", "q8x2", panel16Tile(quant.Q4_1, [readOrders]panel16One{panel16Q4_1_t1, panel16Q4_1_t1ahead, panel16Q4_1_t1nta}, panel16Q4_1_t2, panel16Q4_1_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q5_0, "panel16", "q8x2", panel16Tile(quant.Q5_0, [readOrders]panel16One{panel16Q5_0_t1, panel16Q5_0_t1ahead, panel16Q5_0_t1nta}, panel16Q5_0_t2, panel16Q5_0_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q5_1, "panel16", "q8x2", panel16Tile(quant.Q5_1, [readOrders]panel16One{panel16Q5_1_t1, panel16Q5_1_t1ahead, panel16Q5_1_t1nta}, panel16Q5_1_t2, panel16Q5_1_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q8_0, "panel16", "q8x2", panel16Tile(quant.Q8_0, [readOrders]panel16One{panel16Q8_0_t1, panel16Q8_0_t1ahead, panel16Q8_0_t1nta}, panel16Q8_0_t2, panel16Q8_0_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q4_K, "panel16", "q8x2", panel16Tile(quant.Q4_K, [readOrders]panel16One{panel16Q4_K_t1, panel16Q4_K_t1ahead, panel16Q4_K_t1nta}, panel16Q4_K_t2, panel16Q4_K_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q5_K, "panel16", "q8x2", panel16Tile(quant.Q5_K, [readOrders]panel16One{panel16Q5_K_t1, panel16Q5_K_t1ahead, panel16Q5_K_t1nta}, panel16Q5_K_t2, panel16Q5_K_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q6_K, "panel16", "q8x2", panel16Tile(quant.Q6_K, [readOrders]panel16One{panel16Q6_K_t1, panel16Q6_K_t1ahead, panel16Q6_K_t1nta}, panel16Q6_K_t2, panel16Q6_K_t4))),

	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q4_0, "panel16", "q8", panel16Q8Tile(quant.Q4_0, [readOrders]panel16Q8{panel16Q4_0_q8_t1, panel16Q4_0_q8_t1ahead, panel16Q4_0_q8_t1nta}, panel16Q4_0_q8_t2, panel16Q4_0_q8_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q4_1, "panel16", "q8", panel16Q8Tile(quant.Q4_1, [readOrders]panel16Q8{panel16Q4_1_q8_t1, panel16Q4_1_q8_t1ahead, panel16Q4_1_q8_t1nta}, panel16Q4_1_q8_t2, panel16Q4_1_q8_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q5_0, "panel16", "q8", panel16Q8Tile(quant.Q5_0, [readOrders]panel16Q8{panel16Q5_0_q8_t1, panel16Q5_0_q8_t1ahead, panel16Q5_0_q8_t1nta}, panel16Q5_0_q8_t2, panel16Q5_0_q8_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q5_1, "panel16", "q8", panel16Q8Tile(quant.Q5_1, [readOrders]panel16Q8{panel16Q5_1_q8_t1, panel16Q5_1_q8_t1ahead, panel16Q5_1_q8_t1nta}, panel16Q5_1_q8_t2, panel16Q5_1_q8_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q8_0, "panel16", "q8", panel16Tile(quant.Q8_0, [readOrders]panel16One{panel16Q8_0_t1, panel16Q8_0_t1ahead, panel16Q8_0_t1nta}, panel16Q8_0_t2, panel16Q8_0_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q4_K, "panel16", "q8", panel16Q8Tile(quant.Q4_K, [readOrders]panel16Q8{panel16Q4_K_q8_t1, panel16Q4_K_q8_t1ahead, panel16Q4_K_q8_t1nta}, panel16Q4_K_q8_t2, panel16Q4_K_q8_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q5_K, "panel16", "q8", panel16Q8Tile(quant.Q5_K, [readOrders]panel16Q8{panel16Q5_K_q8_t1, panel16Q5_K_q8_t1ahead, panel16Q5_K_q8_t1nta}, panel16Q5_K_q8_t2, panel16Q5_K_q8_t4))),
	inOrders(avx2Orders, gemvAndGemm("avx2", quant.Q6_K, "panel16", "q8", panel16Q8Tile(quant.Q6_K, [readOrders]panel16Q8{panel16Q6_K_q8_t1, panel16Q6_K_q8_t1ahead, panel16Q6_K_q8_t1nta}, panel16Q6_K_q8_t2, panel16Q6_K_q8_t4))),

	gemvAndGemm("avx2", quant.F32, "panel16", "f32", panel16F32Tile(1, nil)),
	gemvAndGemm("avx2", quant.F16, "panel16", "f32", panel16F32Tile(1, panel16DequantizeF16)),
	gemvAndGemm("avx2", quant.BF16, "panel16", "f32", panel16F32Tile(1, panel16DequantizeBF16)),
	gemvAndGemm("avx2", quant.F8E4M3, "panel16", "f32", panel16F32Tile(1, panel16DequantizeF8_E4M3)),
	gemvAndGemm("avx2", quant.Q4_0, "panel16", "f32", panel16F32Tile(32, panel16DequantizeQ4_0)),
	gemvAndGemm("avx2", quant.Q4_1, "panel16", "f32", panel16F32Tile(32, panel16DequantizeQ4_1)),
	gemvAndGemm("avx2", quant.Q5_0, "panel16", "f32", panel16F32Tile(32, panel16DequantizeQ5_0)),
	gemvAndGemm("avx2", quant.Q5_1, "panel16", "f32", panel16F32Tile(32, panel16DequantizeQ5_1)),
	gemvAndGemm("avx2", quant.Q8_0, "panel16", "f32", panel16F32Tile(32, panel16DequantizeQ8_0)),
	gemvAndGemm("avx2", quant.Q4_K, "panel16", "f32", panel16F32Tile(256, panel16DequantizeQ4_K)),
	gemvAndGemm("avx2", quant.Q5_K, "panel16", "f32", panel16F32Tile(256, panel16DequantizeQ5_K)),
	gemvAndGemm("avx2", quant.Q6_K, "panel16", "f32", panel16F32Tile(256, panel16DequantizeQ6_K)),

	unpackedMatmuls(),
	avx512Matmuls(),
	amxMatmuls(),
)

// avx2Orders begin with the order that was fastest on the processor that was measured (Zen 1).
var avx2Orders = []ReadOrder{OneStreamAhead, OneStream, OneStreamNTA}

// inOrders returns matmul kernels in which one token reads weights in one of orders.
func inOrders(orders []ReadOrder, rows []Matmul) []Matmul {
	for i := range rows {
		rows[i].orders = orders
	}
	return rows
}

var assemblyQblocks qblockFunc = func(dst []qblock, hi, lo []int8, scale []float32, sum []int32) {
	n := len(dst)
	if n == 0 {
		return
	}
	_, _, _ = hi[32*n-1], scale[n-1], sum[2*n-1]
	if lo == nil {
		qblocks8AVX2((*byte)(unsafe.Pointer(&dst[0])), &hi[0], &scale[0], &sum[0], n)
		return
	}
	_ = lo[32*n-1]
	qblocksAVX2((*byte)(unsafe.Pointer(&dst[0])), &hi[0], &lo[0], &scale[0], &sum[0], n)
}

// Kernels for one token and for several. They add the products of a panel's blocks to y; see _asm/panel16.
type (
	panel16Q8   func(y *float32, yStep int, w, x *byte, xStep int, q *int8, qStep, blocks int)
	panel16One  func(y *float32, w, x *byte, hi, lo *int8, blocks int)
	panel16Some func(y *float32, yStep int, w, x *byte, xStep int, blocks int)
)

// panel16Tile returns the tile kernel for a type, from kernels for one token by the order in which it reads weights, and
// for two and four tokens. All of them give a token the same bits.
func panel16Tile(kind quant.Type, one [readOrders]panel16One, x2, x4 panel16Some) tileFunc {
	const call = 1 << 14 // elements of a row in a call; limited because assembly cannot be preempted
	layout, _ := LookupLayout("panel16", kind)
	block := layout.Block
	return func(y []float32, w []byte, n int, x *activation) {
		blocks := x.k / block
		panelBytes := len(w) / ((n + panelRows - 1) / panelRows)
		x1 := one[x.choices.readOrder(kind, avx2Orders)]
		clear(y[:x.m*x.width])
		for i := 0; i < n; i += panelRows {
			panel := w[i/panelRows*panelBytes:][:panelBytes]
			for at := 0; at < blocks; at += call / block {
				part, some := &panel[at*(panelBytes/blocks)], min(call/block, blocks-at)
				for m := 0; m < x.m; {
					y, q := &y[m*x.width+i], (*byte)(unsafe.Pointer(&x.q[(m*x.k+at*block)/32]))
					switch yStep, xStep := 4*x.width, x.k/32*int(unsafe.Sizeof(qblock{})); x.m - m {
					default:
						x4(y, yStep, part, q, xStep, some)
						m += 4
					case 2, 3:
						x2(y, yStep, part, q, xStep, some)
						m += 2
					case 1:
						hi, lo := x.planes.split(x.first + m)
						if lo == nil { // only with 8-bit weights, whose x1 reads neither plane
							lo = hi
						}
						x1(y, part, q, &hi[at*block], &lo[at*block], some)
						m++
					}
				}
			}
		}
	}
}

// panel16Q8Tile is panel16Tile for q8 activations.
func panel16Q8Tile(kind quant.Type, one [readOrders]panel16Q8, x2, x4 panel16Q8) tileFunc {
	const call = 1 << 14 // as in panel16Tile
	layout, _ := LookupLayout("panel16", kind)
	block := layout.Block
	return func(y []float32, w []byte, n int, x *activation) {
		blocks := x.k / block
		panelBytes := len(w) / ((n + panelRows - 1) / panelRows)
		xStep, planeStep := x.k/32*int(unsafe.Sizeof(qblock{})), len(x.planes.row(0))
		x1 := one[x.choices.readOrder(kind, avx2Orders)]
		clear(y[:x.m*x.width])
		for i := 0; i < n; i += panelRows {
			panel := w[i/panelRows*panelBytes:][:panelBytes]
			for at := 0; at < blocks; at += call / block {
				part, some := &panel[at*(panelBytes/blocks)], min(call/block, blocks-at)
				for m := 0; m < x.m; {
					f, tokens := x1, 1
					switch {
					case x.m-m >= 4:
						f, tokens = x4, 4
					case x.m-m >= 2:
						f, tokens = x2, 2
					}
					q, _ := x.planes.split(x.first + m)
					f(&y[m*x.width+i], 4*x.width, part, (*byte)(unsafe.Pointer(&x.q[(m*x.k+at*block)/32])), xStep, &q[at*block], planeStep, some)
					m += tokens
				}
			}
		}
	}
}

// panel16F32Tile returns the tile kernel for f32 activations and types with block elements in a block.
// convert dequantizes blocks with the bits of gguf/quant; it is nil for float32 weights.
func panel16F32Tile(block int, convert func(dst *float32, w *byte, blocks int)) func(y []float32, w []byte, n int, x *activation) {
	return func(y []float32, w []byte, n int, x *activation) {
		panelBytes := len(w) / ((n + panelRows - 1) / panelRows)
		blockBytes := panelBytes / (x.k / block)
		clear(y[:x.m*x.width])
		for i := 0; i < n; i += panelRows {
			panel := w[i/panelRows*panelBytes:][:panelBytes]
			for at := 0; at < x.k; at += panelPart {
				part := panel[at/block*blockBytes:]
				some := min(panelPart, x.k-at)
				values := &x.panel[0]
				if convert != nil {
					convert(values, &part[0], some/block)
				} else {
					values = &view[float32](part)[0]
				}
				for m := 0; m < x.m; {
					y, row := &y[m*x.width+i], &x.rows[m*x.k+at]
					switch x.m - m {
					default:
						panel16F32_t4(y, 4*x.width, values, row, 4*x.k, some)
						m += 4
					case 2, 3:
						panel16F32_t2(y, 4*x.width, values, row, 4*x.k, some)
						m += 2
					case 1:
						panel16F32_t1(y, 4*x.width, values, row, 4*x.k, some)
						m++
					}
				}
			}
		}
	}
}
