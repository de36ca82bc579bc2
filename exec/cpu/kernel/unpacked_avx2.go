//go:build amd64 && !purego

package kernel

import "pesti/gguf/quant"

// dequantizersAVX2 are the dequantizers of types without a panel layout. They give the bits of gguf/quant.
var dequantizersAVX2 = map[quant.Type]func(dst *float32, src *byte, blocks int){
	quant.Q2_K:   dequantizeQ2_K,
	quant.Q3_K:   dequantizeQ3_K,
	quant.IQ4_NL: dequantizeIQ4_NL,
	quant.IQ4_XS: dequantizeIQ4_XS,
	quant.MXFP4:  dequantizeMXFP4,
	quant.NVFP4:  dequantizeNVFP4,
	quant.TQ1_0:  dequantizeTQ1_0,
	quant.TQ2_0:  dequantizeTQ2_0,
}

// gridDequantizersAVX2 are the dequantizers of types whose elements are looked up in a grid.
var gridDequantizersAVX2 = map[quant.Type]func(dst *float32, src *byte, grid *int8, blocks int){
	quant.IQ2_XXS: dequantizeIQ2_XXS,
	quant.IQ2_XS:  dequantizeIQ2_XS,
	quant.IQ2_S:   dequantizeIQ2_S,
	quant.IQ3_XXS: dequantizeIQ3_XXS,
	quant.IQ3_S:   dequantizeIQ3_S,
	quant.IQ1_S:   dequantizeIQ1_S,
	quant.IQ1_M:   dequantizeIQ1_M,
}

// unpackedMatmuls returns the products of weights in the layout of the file, for all types. Types
// without an AVX2 dequantizer are dequantized in portable Go and multiplied with AVX2.
func unpackedMatmuls() []Matmul {
	var all []Matmul
	for t := quant.Type(0); ; t++ {
		info, ok := quant.Lookup(t)
		if !ok {
			return all
		}
		if info.Dequantize != nil {
			all = append(all, gemvAndGemm("avx2", t, "", "f32", rowTile(info, unpackedDequantizer(info)))...)
		}
	}
}

// unpackedDequantizer returns the fastest dequantizer of a type, for whole blocks.
func unpackedDequantizer(info *quant.Info) func(dst []float32, src []byte) {
	f := dequantizersAVX2[info.Type]
	if g := gridDequantizersAVX2[info.Type]; g != nil {
		points := quant.Points(info.Type)
		f = func(dst *float32, src *byte, blocks int) { g(dst, src, &points()[0], blocks) }
	}
	if f == nil {
		return info.Dequantize
	}
	return func(dst []float32, src []byte) {
		if blocks := len(dst) / info.BlockLen; blocks > 0 {
			_ = src[blocks*info.BlockBytes-1]
			f(&dst[0], &src[0], blocks)
		}
	}
}

// rowTile returns the tile kernel that dequantizes parts of four rows and multiplies each part, while it
// is in the L1 cache, with all tokens. Parts are added to y in order.
func rowTile(info *quant.Info, dequantize func(dst []float32, src []byte)) func(y []float32, w []byte, n int, x *activation) {
	const together = 4 // rows that are multiplied at a time
	return func(y []float32, w []byte, n int, x *activation) {
		rowBytes := x.k / info.BlockLen * info.BlockBytes
		clear(y[:x.m*x.width])
		for i := 0; i < n; i += together {
			for at := 0; at < x.k; at += panelPart {
				some := min(panelPart, x.k-at)
				from, to := at/info.BlockLen*info.BlockBytes, (at+some)/info.BlockLen*info.BlockBytes
				values := x.panel[:together*panelPart] // missing rows keep old values; their products are not used
				for j := range min(together, n-i) {
					row := w[(i+j)*rowBytes:][:rowBytes]
					dequantize(values[j*panelPart:][:some], row[from:to])
				}
				for m := 0; m < x.m; {
					f, tokens := rowF32_t1, 1
					if x.m-m >= 2 {
						f, tokens = rowF32_t2, 2
					}
					f(&y[m*x.width+i], 4*x.width, &values[0], 4*panelPart, &x.rows[m*x.k+at], 4*x.k, some&^7)
					m += tokens
				}
				if rest := some &^ 7; rest < some { // possible for types whose blocks are single elements
					for m := range x.m {
						x, y := x.rows[m*x.k+at:][rest:some], y[m*x.width+i:][:together]
						for j := range y {
							for k, v := range values[j*panelPart:][rest:some] {
								y[j] += float32(v * x[k])
							}
						}
					}
				}
			}
		}
	}
}
