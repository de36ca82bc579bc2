package frontend

import (
	"slices"
	"testing"

	"pesti/conformance/testenv"
	"pesti/gguf"
	"pesti/graph"
)

// openModel opens a real model.
func openModel(t *testing.T, name string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(testenv.Model(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestRealModels(t *testing.T) {
	for _, c := range []struct {
		file    string
		weights int
		global  []int // layers without a window, if other layers have one
	}{
		{testenv.SmolLM2, 272, nil},
		{testenv.Qwen, 291, nil},
		{testenv.Gemma, 236, []int{5, 11, 17}},
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
			if err := graph.Verify(g); err != nil {
				t.Error(err)
			}
			if len(g.Weights) != c.weights {
				t.Errorf("%d weights, want all %d tensors of the file", len(g.Weights), c.weights)
			}
			var global []int
			for i, l := range m.Params.Layers {
				if c.global != nil && l.Window == 0 {
					global = append(global, i)
				}
			}
			if !slices.Equal(global, c.global) {
				t.Errorf("layers without a window: %v, want %v", global, c.global)
			}
		})
	}
}
