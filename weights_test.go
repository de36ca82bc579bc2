package pesti_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pesti"
	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/gguf/sidecar"
	"pesti/lower"
)

// writeWeights writes the matrices of a model in FP8.
func writeWeights(t *testing.T, path string, f *gguf.File) {
	t.Helper()
	out := must(os.Create(path))
	if err := errors.Join(must(sidecar.Writer(f)).Write(out), out.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestWeights opens models with matrices in FP8. The logits have the bits of an engine that packages lower and
// exec make of the same files.
func TestWeights(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	data := must(tiny.GGUF(tiny.Config{}))
	other := must(gguf.Parse("other", must(tiny.GGUF(tiny.Config{Seed: 7, Vocab: 301}))))
	if err := os.WriteFile(path("m.gguf"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	f := must(gguf.Open(path("m.gguf")))
	defer f.Close()
	writeWeights(t, path("m.safetensors"), f)
	writeWeights(t, path("other.safetensors"), other)
	ids := []int32{1, 2, 3, 4, 5}

	side := must(sidecar.Open(path("m.safetensors"), f))
	defer side.Close()
	own := lower.Options{Ctx: 64, Threads: 1, ISA: must(exec.BestISA("")), Sidecar: side}
	r := must(lower.Compile(must(frontend.Load(f)), own))
	e := must(exec.Open(r.Plan, f, exec.Options{Sidecar: side}))
	defer e.Close()
	want := slices.Clone(must(must(exec.NewSession(e)).Feed(t.Context(), ids)))

	logits := func(m *pesti.Model, err error) []float32 {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		return must(m.Logits(t.Context(), ids))
	}
	o := pesti.Options{Compile: lower.Options{Ctx: 64, Threads: 1}}
	if slices.Equal(logits(pesti.Open(path("m.gguf"), o)), want) {
		t.Fatal("without the weights in FP8: the same logits")
	}
	o.Weights = path("m.safetensors")
	if !slices.Equal(logits(pesti.Open(path("m.gguf"), o)), want) {
		t.Error("Open: other logits than those of lower and exec")
	}
	if !slices.Equal(logits(pesti.New(f, r.Plan, pesti.Options{Weights: o.Weights})), want) {
		t.Error("New: other logits than those of lower and exec")
	}
	if !slices.Equal(logits(pesti.Open(path("m.gguf"), pesti.Options{Compile: own, Engine: exec.Options{Sidecar: side}})), want) {
		t.Error("Open with a file that the caller opened: other logits than those of lower and exec")
	}
	o.Compile.File, o.Compile.SidecarFile = "m.gguf", "m.safetensors"
	c := must(pesti.Compile(path("m.gguf"), o))
	if c.Plan.Sidecar.Size == 0 {
		t.Error("Compile: the plan is without weights in FP8")
	}
	if err := os.WriteFile(path("m.plan"), plan.Print(c.Plan), 0o600); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(logits(pesti.OpenPlan(path("m.plan"), "", pesti.Options{})), want) {
		t.Error("OpenPlan: other logits than those of lower and exec")
	}
	if !slices.Equal(logits(pesti.OpenPlan(path("m.plan"), path("m.gguf"), pesti.Options{Weights: path("m.safetensors")})), want) {
		t.Error("OpenPlan with both files: other logits than those of lower and exec")
	}

	plain := must(pesti.Compile(path("m.gguf"), pesti.Options{Compile: lower.Options{Ctx: 64, Threads: 1}})).Plan
	_, err := pesti.New(f, plain, pesti.Options{Weights: path("m.safetensors")})
	var option *pesti.OptionError
	if !errors.As(err, &option) || option.Field != "Weights" {
		t.Errorf("weights for a plan that takes all from the model: error %v, expected an OptionError of Weights", err)
	}

	for name, call := range map[string]func(weights string) error{
		"Open": func(weights string) error {
			_, err := pesti.Open(path("m.gguf"), pesti.Options{Weights: weights})
			return err
		},
		"OpenPlan": func(weights string) error {
			_, err := pesti.OpenPlan(path("m.plan"), "", pesti.Options{Weights: weights})
			return err
		},
		"New": func(weights string) error {
			_, err := pesti.New(f, r.Plan, pesti.Options{Weights: weights})
			return err
		},
		"Compile": func(weights string) error {
			_, err := pesti.Compile(path("m.gguf"), pesti.Options{Weights: weights})
			return err
		},
	} {
		if err := call(path("none.safetensors")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s with weights that are not there: error %v, expected %v", name, err, os.ErrNotExist)
		}
		if err := call(path("other.safetensors")); err == nil {
			t.Errorf("%s with weights of another model: no error", name)
		}
	}
	if _, err := pesti.New(f, r.Plan, pesti.Options{}); err == nil {
		t.Error("New without the weights that the plan names: no error")
	}
}
