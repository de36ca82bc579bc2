package conformance

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pesti/conformance/metrics"
	"pesti/conformance/testenv"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/lower"
)

// TestTilesAgainstExact bounds the error of bf16 products, on whole chunks of prose and code: eight
// chunks at a time on the demo, for the whole text, and four chunks on a real model, because
// emulated tiles are slow.
func TestTilesAgainstExact(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "mixed.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for name, chunks := range map[string]int{"demo": 8, testenv.SmolLM2: 4} {
		t.Run(name, func(t *testing.T) {
			m := openModel(t, name)
			ids := m.encode(t, string(text))
			parts := slices.Collect(slices.Chunk(ids[:len(ids)/64*64], 64*chunks))
			if name != "demo" {
				parts = parts[:1]
			}
			o := lower.Options{Precision: "fast", Activations: "q8x2", Tiles: "on", Ubatch: 64, Rows: 32, Threads: 2}
			p := m.engine(t, o, exec.Options{}, nil).Plan()
			if g := p.ProgramFor(plan.Workload{T: 64, R: 32, Seqs: 1}); g.Name != "tiles" {
				t.Fatalf("a chunk runs %s", g.Name)
			}
			var all metrics.Logits
			tokens := 0
			for _, ids := range parts {
				tokens += len(ids)
				o.Tiles = "on"
				tiles := m.logits(t, ids, o)
				o.Tiles = "off"
				fast := m.logits(t, ids, o)
				exact := m.logits(t, ids, lower.Options{Precision: "exact", Ubatch: 64, Threads: 2})
				for i := range exact {
					all.Add(exact[i], tiles[i])
					if slices.Equal(tiles[i], fast[i]) {
						t.Errorf("position %d has the same logits with and without tiles", i)
					}
				}
			}
			mean, top1 := all.MeanKL(), all.Top1()
			t.Logf("%d tokens: mean KL %.1e, worst %.1e, top-1 %.2f %%", tokens, mean, all.MaxKL, 100*top1)
			if !(mean <= 1e-4) || top1 < 0.995 {
				t.Errorf("mean KL %.1e, top-1 %.2f %%, want at most 1e-4 and at least 99.5 %%", mean, 100*top1)
			}
		})
	}
}
