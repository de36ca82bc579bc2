package pesti_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"pesti"
	"pesti/conformance/demo"
	"pesti/lower"
)

// TestClosedMeanwhile closes a model while generations of several goroutines run, and in the body of one. Each
// has the tokens that it has alone, up to ErrClosed.
func TestClosedMeanwhile(t *testing.T) {
	before := runtime.NumGoroutine()
	o := pesti.Options{Compile: lower.Options{Sequences: 3, Ctx: 256, Rows: 8}}
	whole := must(pesti.Open(pesti.Demo, o))
	_, want, _ := collect(t, whole, once, pesti.Params{IgnoreEOG: true, MaxTokens: 200})
	if err := whole.Close(); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{1, 2, 10} {
		m := must(pesti.Open(pesti.Demo, o))
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				var got []int32
				var last error
				for last == nil { // try again if a text is complete before the others begin
					got = got[:0]
					for piece, err := range m.Generate(t.Context(), once, pesti.Params{IgnoreEOG: true, Speculate: 7 * (i % 2)}) {
						if last = err; err != nil || piece.Result != nil {
							break
						}
						if got = append(got, piece.ID); i == 0 && len(got) == at {
							for range 2 {
								if err := m.Close(); err != nil {
									t.Error(err)
								}
							}
						}
					}
				}
				n := min(len(got), len(want))
				if !errors.Is(last, pesti.ErrClosed) || !slices.Equal(got[:n], want[:n]) || i == 0 && len(got) != at {
					t.Errorf("error %v after %d tokens, expected %v", last, len(got), pesti.ErrClosed)
				}
			})
		}
		all.Wait()
	}
	settled(t, before)
}

// TestClosed checks that methods which do not need the model file's memory work after Close with
// the same results.
func TestClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, demo.GGUF(), 0o600); err != nil {
		t.Fatal(err)
	}
	m := must(pesti.Open(path, pesti.Options{Compile: lower.Options{Ctx: 64}}))
	s := must(m.NewSession())
	ids := must(m.Tokenize(once))
	if err := s.Feed(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	text, logits := must(m.Detokenize(ids)), s.Logits()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if again := must(m.Tokenize(once)); !slices.Equal(again, ids) {
		t.Errorf("ids %v after Close, expected %v", again, ids)
	}
	if again := must(m.Detokenize(ids)); again != text {
		t.Errorf("text %q after Close, expected %q", again, text)
	}
	if s.Pos() != len(ids) || !slices.Equal(s.Logits(), logits) || m.Plan().Target.Ctx != 64 {
		t.Errorf("at %d after Close, expected %d with the same logits and plan", s.Pos(), len(ids))
	}
}

// A model and a session that were never open are like closed ones.
func TestZeroValues(t *testing.T) {
	var m pesti.Model
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := m.NewSession(); !errors.Is(err, pesti.ErrClosed) {
		t.Errorf("a session of a zero model: %v", err)
	}
	yielded := 0
	for _, err := range m.Generate(t.Context(), once, pesti.Params{}) {
		if yielded++; !errors.Is(err, pesti.ErrClosed) {
			t.Errorf("a generation of a zero model: %v", err)
		}
	}
	var s pesti.Session
	if err := s.Feed(t.Context(), []int32{1}); !errors.Is(err, pesti.ErrClosed) {
		t.Errorf("a zero session: %v", err)
	}
	for _, err := range s.GenerateIDs(t.Context(), []int32{1}, pesti.Params{}) {
		if yielded++; !errors.Is(err, pesti.ErrClosed) {
			t.Errorf("a generation of a zero session: %v", err)
		}
	}
	if yielded != 2 {
		t.Errorf("%d errors of generations, expected 2", yielded)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
