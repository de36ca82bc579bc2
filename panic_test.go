package pesti_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pesti"
	"pesti/conformance/demo"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/gguf"
	"pesti/lower"
)

var errPanic = errors.New("a panic of the caller")

// recovered calls f, which may panic with errPanic, and reports whether it did.
func recovered(f func()) (did bool) {
	defer func() {
		switch err := recover(); err {
		case nil:
		case errPanic:
			did = true
		default:
			panic(err)
		}
	}()
	f()
	return false
}

// TestDrafts: a generation that ends by a break, an error or a panic of the loop's body leaves the session with
// the tokens of its text, without drafts.
func TestDrafts(t *testing.T) {
	m := open(t, pesti.Options{Compile: lower.Options{Ctx: 128, Rows: 8, Sequences: 2}})
	ids := must(m.Tokenize("the cat sat on the mat. the cat sat on the mat. the cat sat on"))
	s := must(m.NewSession())
	defer s.Close()
	proposed := 0
	for _, how := range []string{"break", "cancel", "panic"} {
		for at := 1; at < 12; at++ {
			var got []int32
			ctx, cancel := context.WithCancel(t.Context())
			panicked := recovered(func() {
				for piece, err := range s.GenerateIDs(ctx, ids, pesti.Params{MaxTokens: 20, Speculate: 7}) {
					if err != nil {
						if how != "cancel" {
							t.Fatal(err)
						}
						break
					}
					if got = append(got, piece.ID); len(got) < at {
						continue
					}
					switch how {
					case "break":
					case "cancel":
						cancel()
						continue
					case "panic":
						panic(errPanic)
					}
					break
				}
			})
			cancel()
			if panicked != (how == "panic") {
				t.Fatalf("%s: panicked %t", how, panicked)
			}
			proposed += s.Result().Proposed
			if want := len(ids) + at - 1; s.Pos() != want {
				t.Errorf("%s: at %d after %d tokens, expected %d", how, s.Pos(), at, want)
			}
			if err := s.Feed(t.Context(), got[at-1:]); err != nil {
				t.Fatal(err)
			}
			if want := must(m.Logits(t.Context(), slices.Concat(ids, got))); !slices.Equal(s.Logits(), want) {
				t.Errorf("%s after %d tokens: other logits than those of the text", how, at)
			}
			if err := s.Truncate(0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if proposed == 0 {
		t.Error("nothing was drafted")
	}
}

// TestPanics checks that after a panic of any of the caller's functions in a generation, the
// sequence is free and the next generation has the same tokens.
func TestPanics(t *testing.T) {
	where := ""
	at := func(place string) {
		if where == place {
			panic(errPanic)
		}
	}
	passes := 0
	m := open(t, pesti.Options{
		Compile:  lower.Options{Ctx: 128, Rows: 8},
		Progress: func(p pesti.Progress) { at(p.Stage) },
		Engine:   exec.Options{Observe: func(o exec.Observation) { passes++; at("observe " + o.Program.Name) }},
	})
	prompt := "the cat sat on the mat. the cat sat on the mat. the cat sat on"
	_, want, _ := collect(t, m, prompt, pesti.Params{MaxTokens: 12})
	places := []string{"body", "prompt"}
	for i := range m.Plan().Programs {
		places = append(places, "observe "+m.Plan().Programs[i].Name)
	}
	panics := 0
	for _, place := range places {
		for _, p := range []pesti.Params{{MaxTokens: 12}, {MaxTokens: 12, Speculate: 7}} {
			where = place
			if recovered(func() {
				for range m.Generate(t.Context(), prompt, p) {
					at("body")
				}
			}) {
				panics++
			}
			where = ""
			if _, got, _ := collect(t, m, prompt, p); !slices.Equal(got, want) {
				t.Errorf("after a panic in %s: tokens %v, expected %v", place, got, want)
			}
		}
	}
	if panics < 6 || passes == 0 {
		t.Errorf("%d panics, expected one in each place", panics)
	}
}

// TestPanicsOfOpen: a panic of the caller's code while a model is opened leaves no file open and no goroutine.
func TestPanicsOfOpen(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("open files and mappings are counted in /proc")
	}
	folder := t.TempDir()
	path, planned := filepath.Join(folder, "m.gguf"), filepath.Join(folder, "m.plan")
	f := must(gguf.Parse(pesti.Demo, demo.GGUF()))
	defer f.Close()
	w := gguf.NewWriter()
	w.SetAll(f)
	for i := range f.Tensors() {
		x := &f.Tensors()[i]
		w.AddTensor(x.Name, x.Type, x.Dims, f.Bytes(x))
	}
	w.AddTensor("unused.weight", f.Tensors()[0].Type, f.Tensors()[0].Dims, f.Bytes(&f.Tensors()[0]))
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	c := must(pesti.Compile(path, pesti.Options{Compile: lower.Options{Ctx: 64}}))
	if err := os.WriteFile(planned, plan.Print(c.Plan), 0o600); err != nil {
		t.Fatal(err)
	}
	mapped := func() bool {
		maps := must(os.ReadFile("/proc/self/maps"))
		return strings.Contains(string(maps), path)
	}
	goroutines := runtime.NumGoroutine()
	for _, place := range []string{"load", "compile", "pack", "log"} {
		o := pesti.Options{Compile: lower.Options{Ctx: 64}, Progress: func(p pesti.Progress) {
			if p.Stage == place {
				panic(errPanic)
			}
		}}
		if place == "log" {
			o.Log = slog.New(panicking{slog.DiscardHandler})
		}
		for name, call := range map[string]func() error{
			"Open":     func() error { return must(pesti.Open(path, o)).Close() },
			"OpenPlan": func() error { return must(pesti.OpenPlan(planned, path, o)).Close() },
			"Compile":  func() error { _, err := pesti.Compile(path, o); return err },
		} {
			panicked := recovered(func() {
				if err := call(); err != nil {
					t.Error(err)
				}
			})
			expected := !(name == "Compile" && place == "pack" || name == "OpenPlan" && (place == "compile" || place == "log"))
			if panicked != expected {
				t.Errorf("%s at %s: panicked %t, expected %t", name, place, panicked, expected)
			}
			if mapped() {
				t.Fatalf("%s: after a panic at %s the file is still mapped", name, place)
			}
		}
	}
	settled(t, goroutines)
}

// panicking is a log that panics.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool  { return true }
func (panicking) Handle(context.Context, slog.Record) error { panic(errPanic) }

// settled fails if there are more goroutines than before, even after some time for them to end.
func settled(t *testing.T, before int) {
	t.Helper()
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	stacks := make([]byte, 1<<16)
	t.Errorf("%d goroutines, expected at most the %d of before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
}

// TestGoroutines: Close ends all goroutines, also after generations that the caller's loop left.
func TestGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 3 {
		m := must(pesti.Open(pesti.Demo, pesti.Options{Compile: lower.Options{Ctx: 64, Rows: 8, Threads: 3}}))
		open := runtime.NumGoroutine()
		for _, p := range []pesti.Params{{}, {Speculate: 7}} {
			ctx, cancel := context.WithCancel(t.Context())
			for range m.Generate(ctx, once, p) {
				break
			}
			for range m.Generate(ctx, once, p) {
				cancel()
			}
			recovered(func() {
				for range m.Generate(t.Context(), once, p) {
					panic(errPanic)
				}
			})
			cancel()
		}
		settled(t, open)
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		settled(t, before)
	}
}
