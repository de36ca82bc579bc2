package conformance

import (
	"path/filepath"
	"slices"
	"testing"

	"pesti/conformance/metrics"
	"pesti/conformance/testenv"
	"pesti/gguf"
	"pesti/gguf/quant"
	"pesti/lower"
)

var llamaCpp = program{"llamacpp", "logits.py", "requirements-peer.txt", testenv.LlamaCpp}

// askLlamaCpp returns llama.cpp's logits of every position.
func askLlamaCpp(t testing.TB, model string, ids []int32, args ...string) [][]float32 {
	t.Helper()
	dir, _ := llamaCpp.run(t, model, slices.Concat([]string{"--ids", joinIDs(ids)}, args)...)
	logits := readRows[float32](t, filepath.Join(dir, "logits.npy"))
	if len(logits) != len(ids) {
		t.Fatalf("llama.cpp wrote %d rows of logits for %d ids", len(logits), len(ids))
	}
	return logits
}

// inFloat32 returns the model with all weights stored in float32 by our writer.
func (m *model) inFloat32(t testing.TB) *model {
	t.Helper()
	w := gguf.NewWriter()
	w.SetAll(m.file)
	tensors := m.file.Tensors()
	for i := range tensors {
		if err := w.AddConverted(m.file, &tensors[i], quant.F32); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "f32.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return openFile(t, m.name+" in F32", path)
}

// The bounds of squareError against llama.cpp. llama.cpp takes GELU from a float16 table, which
// explains gemma's difference: the oracle with that table differs from itself by as much.
const (
	witnessTolerance     = 1e-6
	witnessSiLUTolerance = 1e-10
)

// squareError is Σ(a−b)² / Σb² over the logits of all positions.
func squareError[A, B metrics.Float](a [][]A, b [][]B) float64 {
	diff, size := 0.0, 0.0
	for t := range b {
		for i, y := range b[t] {
			d := float64(a[t][i]) - float64(y)
			diff += d * d
			size += float64(y) * float64(y)
		}
	}
	return diff / size
}

// TestProveThirdWitness stores the weights in float32 and compares all logits with llama.cpp. Each
// program has its own way of rounding weights and activations; with float32 weights both compute
// with the same numbers.
func TestProveThirdWitness(t *testing.T) {
	testenv.Prove(t)
	for _, c := range []struct {
		model  string
		tokens int
		most   float64
	}{
		{"demo", 64, witnessSiLUTolerance},
		{testenv.SmolLM2, 64, witnessSiLUTolerance},
		{testenv.Qwen, 32, witnessSiLUTolerance},
		{testenv.Gemma, 64, witnessTolerance},
	} {
		t.Run(c.model, func(t *testing.T) {
			m := openModel(t, c.model)
			ids := m.passage(t)[:c.tokens]
			plain := m.inFloat32(t)
			exact := lower.Options{Precision: "exact", Ubatch: 64, Threads: 2}
			ours := m.logits(t, ids, exact)
			for i, row := range plain.logits(t, ids, exact) {
				if !slices.Equal(row, ours[i]) {
					t.Fatalf("position %d: the logits of the F32 file differ from those of the original file", i)
				}
			}
			e := squareError(ours, askLlamaCpp(t, plain.path, ids, "--cache", "f32"))
			t.Logf("%d tokens: normalized mean square error %.1e", c.tokens, e)
			if !(e <= c.most) {
				t.Errorf("normalized mean square error %.1e, want at most %.0e", e, c.most)
			}
		})
	}
}
