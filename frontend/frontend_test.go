package frontend

import (
	"os"
	"path/filepath"
	"testing"

	"pesti/gguf"
)

// modelsDir is where the real models are, see the Makefile.
func modelsDir(t *testing.T) string {
	dir := os.Getenv("PESTI_MODELS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(cache, "pesti", "models")
	}
	return dir
}

// openModel opens a real model, or skips where models are not required.
func openModel(t *testing.T, name string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(filepath.Join(modelsDir(t), name))
	if err != nil {
		if os.Getenv("PESTI_REQUIRE") == "models" {
			t.Fatal(err)
		}
		t.Skipf("no model: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestRealModels(t *testing.T) {
	for _, c := range []struct {
		file    string
		nodes   int
		weights int
		window  []int // layers that see everything
	}{
		{"smollm2-135m-instruct-q4_1.gguf", 1 + 30*20 + 8, 272, nil},
		{"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", 0, 291, nil},
		{"gemma-3-270m-q4_k_m.gguf", 0, 236, []int{5, 11, 17}},
	} {
		t.Run(c.file, func(t *testing.T) {
			m, err := Load(openModel(t, c.file))
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Warnings) > 0 {
				t.Errorf("warnings: %v", m.Warnings)
			}
			g, err := m.Graph(Bounds{Tokens: 512, Sequences: 1, Rows: 8, Context: 4096})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(len(g.Nodes), len(g.Weights))
			if len(g.Weights) != c.weights {
				t.Errorf("%d weights, want all %d tensors of the file", len(g.Weights), c.weights)
			}
			var global []int
			for i, l := range m.Params.Layers {
				if c.window != nil && l.Window == 0 {
					global = append(global, i)
				}
			}
			if len(global) != len(c.window) {
				t.Errorf("layers without a window: %v, want %v", global, c.window)
			}
		})
	}
}
