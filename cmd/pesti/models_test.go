package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"pesti/conformance/testenv"
)

// The three real models, from the file to the text.
func TestModels(t *testing.T) {
	for _, c := range []struct {
		file, ids string // of the fox sentence
		layers    int
		capital   string // continuation of "The capital of France is"
	}{
		{"smollm2-135m-instruct-q4_1.gguf", "[504, 2365, 6354, 16438, 27003, 690, 260, 23790, 2767, 30]", 30, " Paris"},
		{"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "[785, 3974, 13876, 38835, 34208, 916, 279, 15678, 5562, 13]", 24, " Paris"},
		{"gemma-3-270m-q4_k_m.gguf", "[2, 818, 3823, 8864, 37423, 38167, 1024, 506, 31770, 4799, 236761]", 18, " the"},
	} {
		t.Run(c.file, func(t *testing.T) {
			file := testenv.Model(t, c.file)
			r := call{stdin: fox, args: []string{"tokenize", file, "--ids"}}.run()
			if r.code != 0 || r.out != c.ids+"\n" || r.err != "" {
				t.Errorf("tokenize --ids: %+v, want %s", r, c.ids)
			}
			r = call{stdin: c.ids, args: []string{"tokenize", file, "--detokenize"}}.run()
			if r.out != fox {
				t.Errorf("tokenize --detokenize: %+v", r)
			}
			if out := ok(t, "inspect", "--check", file); out != file+": ok\n" {
				t.Errorf("inspect --check prints %q", out)
			}

			plan := filepath.Join(t.TempDir(), "m.plan")
			ok(t, "compile", file, "-o", plan, "--verify")
			ok(t, "plan", "verify", plan, "--model", file)
			var s struct {
				Fusions struct {
					QKV       int
					GatedMLP  int `json:"gated_mlp"`
					Attention int
				}
				Fallbacks int
			}
			if err := json.Unmarshal([]byte(ok(t, "plan", "show", plan, "--json")), &s); err != nil {
				t.Fatal(err)
			}
			if f := s.Fusions; s.Fallbacks != 0 || f.QKV != c.layers || f.GatedMLP != c.layers || f.Attention != c.layers {
				t.Errorf("%+v, want no fallbacks and every one of %d layers fused", s, c.layers)
			}
			text, stats := runs(t, plan, "-p", "The capital of France is", "--temp", "0", "-n", "2")
			if !strings.HasPrefix(text, c.capital) || stats.GeneratedTokens != 2 || stats.Fallbacks != 0 {
				t.Errorf("run continues %q, %+v, want%s", text, stats, c.capital)
			}
			if other, _ := runs(t, file, "-t", "1", "-p", "The capital of France is", "--temp", "0", "-n", "2"); other != text {
				t.Errorf("in memory it continues %q, want %q", other, text)
			}
			again := strings.Repeat("one two three four five, ", 4)
			text, stats = runs(t, plan, "-p", again, "-n", "12", "--seed", "3")
			if other, s := runs(t, plan, "-p", again, "-n", "12", "--seed", "3", "--speculate", "5"); other != text || s.Proposed == 0 {
				t.Errorf("with drafts it continues %q, %+v, want %q, %+v", other, s, text, stats)
			}
			for _, stage := range []string{"graph", "fused", "plan"} {
				svg := filepath.Join(t.TempDir(), stage+".svg")
				ok(t, "dot", file, "--stage", stage, "-o", svg)
				if !strings.Contains(readFile(t, svg), "<svg") {
					t.Errorf("dot --stage %s writes no picture", stage)
				}
			}
		})
	}
}
