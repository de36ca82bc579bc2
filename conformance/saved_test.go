package conformance

import (
	"path/filepath"
	"reflect"
	"testing"

	"pesti/conformance/testenv"
	"pesti/conformance/tiny"
	"pesti/frontend"
	"pesti/frontend/tokenizer"
	"pesti/gguf"
	"pesti/lower"
)

// TestProveSavedByLlamaCpp saves models with llama.cpp, which writes every key that it knows, and compares
// the saved files with the originals: hyper-parameters, tokens, and the bits of the logits.
func TestProveSavedByLlamaCpp(t *testing.T) {
	testenv.Prove(t)
	var models []*model
	for _, name := range []string{testenv.SmolLM2, testenv.Qwen, testenv.Gemma} {
		models = append(models, openModel(t, name))
	}
	for _, c := range []tiny.Config{{Arch: "llama"}, {Arch: "qwen2"}, {Arch: "qwen3"}, {Arch: "gemma3", Layers: 7, Window: 16}} {
		f := tiny.Mapped(t, c)
		models = append(models, openFile(t, "tiny "+c.Arch, f.Path))
	}
	for _, m := range models {
		path := filepath.Join(t.TempDir(), "saved.gguf")
		if out, err := testenv.LlamaCpp(t, "llamacpp/save.py", m.path, path).Output(); err != nil {
			t.Fatalf("%s: %v: %s", m.name, err, out)
		}
		s := openFile(t, m.name+" saved", path)
		want, got := describeModel(t, m.file), describeModel(t, s.file)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: saved %+v, want %+v", m.name, got, want)
		}
		ids := []int32{40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59}
		o := lower.Options{Precision: "exact", Ubatch: 20, Threads: 2}
		if a, b := m.logits(t, ids, o), s.logits(t, ids, o); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: the saved file has other logits", m.name)
		}
	}
}

// A modelDescription is what a file says about a model's computation and tokens.
type modelDescription struct {
	layers   []frontend.Layer
	scale    float64
	warnings []string
	ids      []int32
	ends     []int32
}

func describeModel(t *testing.T, f *gguf.File) modelDescription {
	t.Helper()
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.EncodePrompt(t.Context(), []byte(" The fox's 12 naïve jumps\n\n  end."))
	if err != nil {
		t.Fatal(err)
	}
	return modelDescription{m.Params.Layers, m.Params.Scale, m.Warnings, ids, tok.EndOfGeneration()}
}
