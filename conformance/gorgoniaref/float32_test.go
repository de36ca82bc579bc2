package gorgoniaref

import (
	"context"
	"testing"

	"pesti/conformance/metrics"
	"pesti/conformance/tiny"
	"pesti/frontend"
)

// TestFloat32 checks that every layer of every architecture is close in float32 to its values in
// float64, and different from them.
func TestFloat32(t *testing.T) {
	for _, arch := range frontend.Architectures() {
		f := tiny.File(t, tiny.Config{Arch: arch, Tied: true})
		g, ids := unfused(t, f, 9), tokens(9, 256)
		names := []string{"blk.0.out", "blk.1.out", "logits"}
		wide, err := compute(g, FromFile(f), ids, names)
		if err != nil {
			t.Fatal(err)
		}
		narrow := map[string]Value{}
		// Also with the vocabulary in slices.
		for _, most := range []int{sliceElements, 32 * 100} {
			r := run{narrow: true, weights: FromFile(f), most: most, tokens: len(ids), ids: ids}
			if err := r.graph(context.Background(), g, names, keep(func(v Value) error { narrow[v.Name] = v; return nil })); err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				d := metrics.Layer(narrow[name].Data, wide[name].Data, wide[name].Cols).D
				if d < 1e-8 || d > 1e-4 {
					t.Errorf("%s: d of %s between float32 and float64 is %.1e, expected rounding", arch, name, d)
				}
			}
		}
	}
}
