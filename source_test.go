package pesti_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti"
	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/gguf"
	"pesti/lower"
)

// TestSource opens a model and its plan step by step. The logits are those of Open.
func TestSource(t *testing.T) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	f := must(gguf.Parse("m.gguf", must(tiny.GGUF(tiny.Config{}))))
	if err := os.WriteFile(path("m.gguf"), must(tiny.GGUF(tiny.Config{})), 0o600); err != nil {
		t.Fatal(err)
	}
	writeWeights(t, path("m.safetensors"), f)
	ids := []int32{1, 2, 3, 4, 5}
	o := pesti.Options{Compile: lower.Options{Ctx: 64, Threads: 1}}
	for _, weights := range []string{"", path("m.safetensors")} {
		o.Weights = weights
		m := must(pesti.Open(path("m.gguf"), o))
		want := must(m.Logits(t.Context(), ids))
		m.Close()

		s := must(pesti.OpenSource(path("m.gguf"), pesti.Options{Weights: weights}))
		if _, err := s.StartEngine(); err == nil {
			t.Error("an engine without a plan: no error")
		}
		if _, err := s.Start(); err == nil {
			t.Error("a model without a plan: no error")
		}
		s.Options.Compile = lower.Options{Ctx: 32, Threads: 1}
		small := must(s.Compile()).Plan
		s.Options.Compile.Ctx = 64
		large := must(s.Compile()).Plan
		if small.Target.Ctx != 32 || large.Target.Ctx != 64 || s.Plan != large {
			t.Errorf("contexts %d and %d, expected 32 and 64", small.Target.Ctx, large.Target.Ctx)
		}
		e := must(s.StartEngine())
		if got := must(must(exec.NewSession(e)).Feed(t.Context(), ids)); !slices.Equal(got, want) {
			t.Error("StartEngine: other logits than those of Open")
		}
		m = must(s.Start())
		if !slices.Equal(must(m.Logits(t.Context(), ids)), want) {
			t.Error("Start: other logits than those of Open")
		}
		files := []string{path("m.gguf")}
		if weights != "" {
			files = append(files, weights)
		}
		if got := s.Paths(); !slices.Equal(got, files) {
			t.Errorf("files %q, expected %q", got, files)
		}
		if err := errors.Join(m.Close(), e.Close(), s.Close(), s.Close()); err != nil {
			t.Error(err)
		}

		s = must(pesti.OpenPlanSource(large, path("m.plan"), "", pesti.Options{}))
		if got := s.Paths(); !slices.Equal(got, append([]string{path("m.plan")}, files...)) {
			t.Errorf("files of a plan %q, expected the plan and %q", got, files)
		}
		if _, err := s.Compile(); err == nil || !strings.Contains(err.Error(), "is a plan") {
			t.Errorf("compiling a plan: error %v", err)
		}
		m = must(s.Start())
		if !slices.Equal(must(m.Logits(t.Context(), ids)), want) {
			t.Error("a plan: other logits than those of Open")
		}
		if err := errors.Join(m.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A source that is closed, or was never open, returns ErrClosed.
func TestClosedSource(t *testing.T) {
	closed := must(pesti.OpenSource(pesti.Demo, pesti.Options{}))
	must(closed.Compile())
	closed.LoadTokenizer()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*pesti.Source{"closed": closed, "zero": {}} {
		s.LoadTokenizer()
		for method, call := range map[string]func() error{
			"Load":        func() error { _, err := s.Load(); return err },
			"Tokenizer":   func() error { _, err := s.Tokenizer(); return err },
			"Compile":     func() error { _, err := s.Compile(); return err },
			"StartEngine": func() error { _, err := s.StartEngine(); return err },
			"Start":       func() error { _, err := s.Start(); return err },
		} {
			if err := call(); !errors.Is(err, pesti.ErrClosed) {
				t.Errorf("%s of a %s source: error %v, expected ErrClosed", method, name, err)
			}
		}
		if got := s.Paths(); got != nil {
			t.Errorf("files of a %s source: %q, expected none", name, got)
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close of a %s source: error %v", name, err)
		}
	}
}

// TestInputError opens plans whose files cannot be used. The error names the plan and the file, and has its cause.
func TestInputError(t *testing.T) {
	o := pesti.Options{Compile: lower.Options{Ctx: 64, Threads: 1, File: "none.gguf"}}
	lost := must(pesti.Compile(pesti.Demo, o)).Plan
	f := must(gguf.Parse("m.gguf", must(tiny.GGUF(tiny.Config{}))))
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, must(tiny.GGUF(tiny.Config{})), 0o600); err != nil {
		t.Fatal(err)
	}
	side := filepath.Join(t.TempDir(), "m.safetensors")
	writeWeights(t, side, f)
	o.Compile.File = path
	o.Weights, o.Compile.SidecarFile = side, "none.safetensors"
	half := must(pesti.Compile(path, o)).Plan
	o = pesti.Options{Compile: lower.Options{Ctx: 64, Threads: 1}}
	unnamed := must(pesti.Compile(path, o)).Plan
	unnamed.Model.File = ""
	for _, c := range []struct {
		plan  *plan.Plan
		input string
		cause error
	}{{lost, "model", os.ErrNotExist}, {half, "weights", os.ErrNotExist}, {unnamed, "model", pesti.ErrWrongModel}} {
		_, err := pesti.OpenPlanSource(c.plan, "x.plan", "", pesti.Options{})
		var wrong *pesti.InputError
		if !errors.As(err, &wrong) || wrong.Plan != "x.plan" || wrong.Input != c.input || !errors.Is(err, c.cause) || !strings.HasPrefix(err.Error(), "x.plan: its "+c.input+": ") {
			t.Errorf("error %v, expected one about the %s of x.plan that is %v", err, c.input, c.cause)
		}
	}
}
