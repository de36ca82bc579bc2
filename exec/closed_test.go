package exec_test

import (
	"errors"
	"testing"

	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/lower"
)

// After Close, methods that need memory or workers return an error, and other methods do nothing.
func TestEngineClosed(t *testing.T) {
	m := load(t, tiny.Config{})
	p := compile(t, m, lower.Options{Sequences: 2, Threads: 2}).Plan
	e, err := exec.Open(p, m.File, exec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, other := session(t, e), session(t, e)
	if _, err := s.Feed(t.Context(), prompt(20)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	other.Close() // so that the next session would take its sequence
	for name, call := range map[string]func() error{
		"Feed":        func() error { _, err := s.Feed(t.Context(), []int32{3}); return err },
		"FeedLogits":  func() error { return s.FeedLogits(t.Context(), []int32{3}) },
		"DecodeBatch": func() error { return exec.DecodeBatch(t.Context(), []*exec.Session{s}, []int32{3}) },
		"Truncate":    func() error { return s.Truncate(1) },
		"Forward": func() error {
			return e.Forward(t.Context(), &exec.Batch{Tokens: []int32{1}, Pos: []int32{0}, Seq: []int32{0}})
		},
		"NewSession": func() error { _, err := exec.NewSession(e); return err },
		"Prober":     func() error { _, err := e.Prober(1 << 20); return err },
	} {
		if err := call(); !errors.Is(err, exec.ErrEngineClosed) {
			t.Errorf("%s: error %v, expected %v", name, err, exec.ErrEngineClosed)
		}
	}
	if _, err := e.Value("logits"); err == nil {
		t.Error("Value: no error")
	}
	if row := e.Row(0); e.Logits(0) != nil || s.Logits(0) != nil || row.Logits != nil || row.IDs != nil {
		t.Error("there are logits")
	}
	s.Reset()
	s.Close()
}
