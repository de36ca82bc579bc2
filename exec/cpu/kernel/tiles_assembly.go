//go:build amd64 && !purego

package kernel

import (
	"slices"

	"pesti/gguf/numfmt"
	"pesti/gguf/quant"
)

// assemblyPairs are the matmul rows whose pairPackers are in assembly. They dequantize panels to float32
// with the kernels of panel16 and then round to bf16; dequantizing takes most of the time.
var assemblyPairs = slices.Concat(pairsFor("avx2", pairsAVX2), pairsFor("amx", pairsAVX512))

func pairsFor(isa string, round func(dst *uint32, src *float32, pairs int)) []Matmul {
	var all []Matmul
	for _, t := range []struct {
		kind    quant.Type
		convert func(dst *float32, w *byte, blocks int)
	}{
		{quant.F32, nil},
		{quant.F16, panel16DequantizeF16},
		{quant.BF16, panel16DequantizeBF16},
		{quant.Q4_0, panel16DequantizeQ4_0},
		{quant.Q4_1, panel16DequantizeQ4_1},
		{quant.Q5_0, panel16DequantizeQ5_0},
		{quant.Q5_1, panel16DequantizeQ5_1},
		{quant.Q8_0, panel16DequantizeQ8_0},
		{quant.Q4_K, panel16DequantizeQ4_K},
		{quant.Q5_K, panel16DequantizeQ5_K},
		{quant.Q6_K, panel16DequantizeQ6_K},
	} {
		l, _ := LookupLayout("panel16", t.kind)
		all = append(all, gemvAndGemmPairs(isa, t.kind, l.Name, func(dst []uint32, w []byte, _, from, to int, tiles *tiles) {
			for at := from; at < to; at += panelPart {
				part := w[at/l.Block*l.Bytes:]
				some := min(panelPart, to-at)
				values := &tiles.part[0]
				if t.convert != nil {
					t.convert(values, &part[0], some/l.Block)
				} else {
					values = &view[float32](part)[0]
				}
				pairs := dst[(at-from)/2*panelRows:][:some/2*panelRows]
				round(&pairs[0], values, some/2)
			}
		})...)
	}
	return all
}

var assemblyMultipliers = []multiplierVariant{{"avx2", multiplyOnAVX2}, {"amx", multiplyOnAMX}}

func multiplyOnAVX2(y []float32, w []uint32, panels, k int, x []uint16, xStep, tokens int) {
	size := k / 2 * panelRows
	for i := range tokens {
		row := x[i*xStep:][:k]
		for p := range panels {
			y, w := y[i*tileWidth+p*panelRows:][:panelRows], w[p*size:][:size]
			multiplyAVX2(&y[0], &w[0], k/tileK, &row[0])
		}
	}
}

func multiplyOnAMX(y []float32, w []uint32, panels, k int, x []uint16, xStep, tokens int) {
	const (
		block = 32   // tokens
		call  = 1024 // tokens in a call; limited because assembly cannot be preempted
	)
	for from := 0; from+block <= tokens; from += call {
		some := min(call, tokens-from) / block * block
		y, x, w := y[from*tileWidth:][:some*tileWidth], x[from*xStep:][:(some-1)*xStep+k], w[:panels*k/2*panelRows]
		multiplyAMX(&y[0], &w[0], panels/2, k/tileK, &x[0], 2*xStep, some)
	}
	if whole := tokens / block * block; whole < tokens {
		portableMultiply(y[whole*tileWidth:], w, panels, k, x[whole*xStep:], xStep, tokens-whole)
	}
}

func roundOnAVX2(row []byte, x []float32) {
	if whole := len(x) &^ 15; whole > 0 {
		roundBF16AVX2(&row[:2*whole][0], &x[0], whole)
		row, x = row[2*whole:], x[whole:]
	}
	numfmt.EncodeBF16(row, x)
}
