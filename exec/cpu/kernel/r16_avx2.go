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

	both("avx2", quant.Q4_0, "r16", "q8", r16PlaneTile(32, r16Q4_0q8x1, r16Q4_0q8x2, r16Q4_0q8x4)),
	both("avx2", quant.Q4_1, "r16", "q8", r16PlaneTile(32, r16Q4_1q8x1, r16Q4_1q8x2, r16Q4_1q8x4)),
	both("avx2", quant.Q5_0, "r16", "q8", r16PlaneTile(32, r16Q5_0q8x1, r16Q5_0q8x2, r16Q5_0q8x4)),
	both("avx2", quant.Q5_1, "r16", "q8", r16PlaneTile(32, r16Q5_1q8x1, r16Q5_1q8x2, r16Q5_1q8x4)),
	both("avx2", quant.Q8_0, "r16", "q8", r16Tile(32, r16Q8_0x1, r16Q8_0x2, r16Q8_0x4)),
	both("avx2", quant.Q4_K, "r16", "q8", r16PlaneTile(256, r16Q4_Kq8x1, r16Q4_Kq8x2, r16Q4_Kq8x4)),
	both("avx2", quant.Q5_K, "r16", "q8", r16PlaneTile(256, r16Q5_Kq8x1, r16Q5_Kq8x2, r16Q5_Kq8x4)),
	both("avx2", quant.Q6_K, "r16", "q8", r16PlaneTile(256, r16Q6_Kq8x1, r16Q6_Kq8x2, r16Q6_Kq8x4)),

	both("avx2", quant.F32, "r16", "f32", r16FloatTile(1, nil)),
	both("avx2", quant.F16, "r16", "f32", r16FloatTile(1, r16FloatF16)),
	both("avx2", quant.BF16, "r16", "f32", r16FloatTile(1, r16FloatBF16)),
	both("avx2", quant.F8E4M3, "r16", "f32", r16FloatTile(1, r16FloatF8_E4M3)),
	both("avx2", quant.Q4_0, "r16", "f32", r16FloatTile(32, r16FloatQ4_0)),
	both("avx2", quant.Q4_1, "r16", "f32", r16FloatTile(32, r16FloatQ4_1)),
	both("avx2", quant.Q5_0, "r16", "f32", r16FloatTile(32, r16FloatQ5_0)),
	both("avx2", quant.Q5_1, "r16", "f32", r16FloatTile(32, r16FloatQ5_1)),
	both("avx2", quant.Q8_0, "r16", "f32", r16FloatTile(32, r16FloatQ8_0)),
	both("avx2", quant.Q4_K, "r16", "f32", r16FloatTile(256, r16FloatQ4_K)),
	both("avx2", quant.Q5_K, "r16", "f32", r16FloatTile(256, r16FloatQ5_K)),
	both("avx2", quant.Q6_K, "r16", "f32", r16FloatTile(256, r16FloatQ6_K)),

	blockMatmuls(),
	avx512Matmuls,
)

var assemblyQblocks qblocker = func(dst []qblock, hi, lo []int8, scale []float32, sum []int32) {
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

// Kernels of one token and of several add the products of blocks of a panel to y: see _asm/r16.
type (
	r16Plane func(y *float32, yStep int, w, x *byte, xStep int, q *int8, qStep, blocks int)
	r16One   func(y *float32, w, x *byte, hi, lo *int8, blocks int)
	r16Some  func(y *float32, yStep int, w, x *byte, xStep int, blocks int)
)

// r16Tile returns the tile kernel for blocks of so many elements that computes one token, two, and
// four at a time. All give a token the same bits.
func r16Tile(block int, x1 r16One, x2, x4 r16Some) func(y []float32, w []byte, n int, x *activation) {
	const call = 1 << 14 // elements of a row: a goroutine in assembly cannot be interrupted
	return func(y []float32, w []byte, n int, x *activation) {
		blocks := x.k / block
		panelBytes := len(w) / ((n + panelRows - 1) / panelRows)
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
						if lo == nil { // with weights of 8 bits alone, for which x1 looks at neither
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

// r16PlaneTile is r16Tile for activations in one plane.
func r16PlaneTile(block int, x1, x2, x4 r16Plane) func(y []float32, w []byte, n int, x *activation) {
	const call = 1 << 14 // as in r16Tile
	return func(y []float32, w []byte, n int, x *activation) {
		blocks := x.k / block
		panelBytes := len(w) / ((n + panelRows - 1) / panelRows)
		xStep, planeStep := x.k/32*int(unsafe.Sizeof(qblock{})), len(x.planes.row(0))
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

// r16FloatTile returns the tile kernel in float32 for blocks of so many elements that convert makes
// float32 of, with the bits of gguf/quant; float32 itself needs no converting.
func r16FloatTile(block int, convert func(dst *float32, w *byte, blocks int)) func(y []float32, w []byte, n int, x *activation) {
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
						r16Floatx4(y, 4*x.width, values, row, 4*x.k, some)
						m += 4
					case 2, 3:
						r16Floatx2(y, 4*x.width, values, row, 4*x.k, some)
						m += 2
					case 1:
						r16Floatx1(y, 4*x.width, values, row, 4*x.k, some)
						m++
					}
				}
			}
		}
	}
}
