//go:build amd64 && !purego && unix

package kernel

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pesti/exec/cpu/isa"
	"pesti/gguf/quant"
)

// TestUnpackedDequantizers checks that the AVX2 dequantizers give the bits of gguf/quant for blocks of
// random bytes at the end of a mapping, and write nothing else.
func TestUnpackedDequantizers(t *testing.T) {
	if _, err := isa.UpTo("avx2"); err != nil {
		t.Skip(err)
	}
	for _, typ := range slices.AppendSeq(slices.Collect(maps.Keys(dequantizersAVX2)), maps.Keys(gridDequantizersAVX2)) {
		info, _ := quant.Lookup(typ)
		rng := rand.New(rand.NewPCG(51, 52))
		for round := range 512 {
			blocks := round % 4
			data := make([]byte, blocks*info.BlockBytes)
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
			if blocks > 0 {
				data[0] = byte(round / 2) // a scale, of MXFP4
			}
			src := data
			if round < 8 { // each takes a page
				src = beforePage(t, data)
			}
			want := make([]float32, blocks*info.BlockLen)
			info.Dequantize(want, data)
			got, mem := guarded(len(want))
			unpackedDequantizer(info)(got, src)
			untouched(t, typ.String(), mem)
			for i, v := range got {
				if w := want[i]; math.Float32bits(v) != math.Float32bits(w) && !(v != v && w != w) {
					t.Fatalf("%s: element %d of % x is %v, expected %v", typ, i, data, v, w)
				}
			}
		}
	}
}

// TestRowTileRests multiplies rows whose length is not a multiple of a vector.
func TestRowTileRests(t *testing.T) {
	if _, err := isa.UpTo("avx2"); err != nil {
		t.Skip(err)
	}
	info, _ := quant.Lookup(quant.F64)
	f := rowTile(info, unpackedDequantizer(info))
	for _, k := range []int{1, 7, 8, 9, 255, 256, 257, 263, 265} {
		for m := 1; m <= 5; m++ {
			rng := rand.New(rand.NewPCG(uint64(k), uint64(m)))
			const n = 5
			data := randomBlocks(rng, info, n*k)
			w, x := make([]float32, n*k), randoms(rng, m*k, 1)
			info.Dequantize(w, data)
			a := &activation{k: k, m: m, width: tileRows, rows: x, panel: new([panelPart * panelRows]float32)}
			y := make([]float32, tileProducts)
			f(y, data, n, a)
			for i := range m {
				for j := range n {
					sum, bound := product(x[i*k:(i+1)*k], w[j*k:(j+1)*k], 4)
					if got := float64(y[i*tileRows+j]); !(math.Abs(got-sum) <= bound) {
						t.Fatalf("k=%d: product %d of row %d of %d is %v, expected %v ± %v", k, j, i, m, got, sum, bound)
					}
				}
				alone := make([]float32, tileProducts)
				f(alone, data, n, &activation{k: k, m: 1, width: tileRows, rows: x[i*k : (i+1)*k], panel: a.panel})
				if !slices.Equal(alone[:n], y[i*tileRows:][:n]) {
					t.Fatalf("k=%d: row %d of %d has other bits alone", k, i, m)
				}
			}
		}
	}
}
