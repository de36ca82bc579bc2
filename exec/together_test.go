package exec_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pesti/exec"
	"pesti/lower"
)

// TestTogether checks that sessions of different lengths that are fed in one batch or several
// tokens at once have the bits of each fed alone, token by token.
func TestTogether(t *testing.T) {
	for name, c := range configs {
		m := load(t, c)
		e := open(t, m, compile(t, m, lower.Options{Sequences: 3, Ubatch: 64}).Plan, 2)
		sessions := []*exec.Session{session(t, e), session(t, e), session(t, e)}
		texts := [][]int32{prompt(30), prompt(44)[7:], prompt(60)[20:]}
		for i, n := range []int{1, 17, 8} {
			feed(t, sessions[i], texts[i][:n])
		}
		var rows [3][][]float32
		for range 12 {
			var ids []int32
			for i, s := range sessions {
				ids = append(ids, texts[i][s.Pos()])
			}
			if err := exec.DecodeBatch(t.Context(), sessions, ids); err != nil {
				t.Fatal(err)
			}
			for i, s := range sessions {
				rows[i] = append(rows[i], slices.Clone(s.Logits(0)))
				if s.Logits(1) != nil || s.Logits(-1) != nil {
					t.Errorf("%s: session %d has the logits of others", name, i)
				}
			}
		}
		for i, s := range sessions {
			end := s.Pos()
			s.Reset()
			logits := feed(t, s, texts[i][:end-len(rows[i])+1])
			for r, row := range rows[i] {
				if r > 0 {
					logits = feed(t, s, texts[i][s.Pos():s.Pos()+1])
				}
				if !slices.Equal(row, logits) {
					t.Fatalf("%s: session %d: the logits of token %d differ from those alone", name, i, s.Pos())
				}
			}
			if err := s.Truncate(end - len(rows[i])); err != nil {
				s.Reset() // the window layers no longer hold the positions before
				feed(t, s, texts[i][:end-len(rows[i])])
			}
			at := s.Pos()
			if err := s.FeedLogits(t.Context(), texts[i][at:at+8]); err != nil {
				t.Fatal(err)
			}
			for r := range 8 {
				if !slices.Equal(s.Logits(r), rows[i][r]) {
					t.Fatalf("%s: session %d: of 8 tokens at once, the logits of the one at %d differ from those alone", name, i, at+r)
				}
			}
		}
	}
}

func TestTogetherErrors(t *testing.T) {
	m := load(t, configs["llama"])
	p := compile(t, m, lower.Options{Sequences: 3, Rows: 2, Ctx: 8}).Plan
	e := open(t, m, p, 1)
	a, b, c := session(t, e), session(t, e), session(t, e)
	other := session(t, open(t, m, p, 1))
	closed := session(t, open(t, m, p, 1))
	closed.Close()
	if err := exec.DecodeBatch(t.Context(), []*exec.Session{a, b}, []int32{1, 2}); err != nil {
		t.Fatal(err)
	}
	if a.Logits(0) == nil || b.Logits(0) == nil {
		t.Error("no logits after a step of both")
	}
	for _, s := range []*exec.Session{b, c} {
		feed(t, s, prompt(8-s.Pos()))
	}
	for _, x := range []struct {
		sessions []*exec.Session
		ids      []int32
		words    string
	}{
		{nil, nil, "0 tokens for 0 sessions"},
		{[]*exec.Session{a}, []int32{1, 2}, "2 tokens for 1 sessions"},
		{[]*exec.Session{a, b, c}, []int32{1, 2, 3}, "at most the 2"},
		{[]*exec.Session{a, other}, []int32{1, 2}, "session 1 is of another engine"},
		{[]*exec.Session{a, b}, []int32{1, 2}, "session 1: 1 tokens at position 8"},
		{[]*exec.Session{a, a}, []int32{1, 2}, "expected consecutive positions"},
		{[]*exec.Session{a}, []int32{-1}, "session 0: token id -1"},
	} {
		if err := exec.DecodeBatch(t.Context(), x.sessions, x.ids); err == nil || !strings.Contains(err.Error(), x.words) {
			t.Errorf("%v: error %v, expected %q", x.ids, err, x.words)
		}
		if a.Pos() != 1 || a.Logits(0) != nil {
			t.Errorf("%v: the session has %d positions, expected the one before and no logits", x.ids, a.Pos())
		}
	}
	if err := exec.DecodeBatch(t.Context(), []*exec.Session{closed}, []int32{1}); !errors.Is(err, exec.ErrClosed) {
		t.Errorf("a closed session: error %v", err)
	}
	if err := a.FeedLogits(t.Context(), prompt(3)); err == nil || !strings.Contains(err.Error(), "the logits of 3 tokens, expected at most the 2 of one forward pass") {
		t.Errorf("three tokens: error %v", err)
	}
	if err := a.FeedLogits(t.Context(), nil); err == nil || a.Pos() != 1 {
		t.Errorf("no tokens: error %v, %d positions", err, a.Pos())
	}
}

// TestRowsOfChunks checks that FeedLogits never takes a whole chunk, whose program may round
// differently.
func TestRowsOfChunks(t *testing.T) {
	m := load(t, configs["llama"])
	p := compile(t, m, lower.Options{Ubatch: 64}).Plan
	if s := session(t, open(t, m, p, 1)); s.MaxLogitRows() != 8 {
		t.Errorf("%d rows, expected the 8 of a plan", s.MaxLogitRows())
	}
	tiles := p.Programs[len(p.Programs)-1]
	tiles.Name, tiles.Chunk, tiles.MinT = "tiles", 4, 4
	p.Programs = append(p.Programs, tiles)
	s := session(t, open(t, m, p, 1))
	if s.MaxLogitRows() != 3 {
		t.Errorf("%d rows, expected one less than the chunk of 4", s.MaxLogitRows())
	}
	if err := s.FeedLogits(t.Context(), prompt(4)); err == nil || s.Pos() != 0 {
		t.Errorf("a whole chunk: error %v, %d positions", err, s.Pos())
	}
}

// A refused batch computes nothing and keeps the logits of all sessions.
func TestRefusedBatchLeavesLogits(t *testing.T) {
	m := load(t, configs["qwen2"])
	e := open(t, m, compile(t, m, lower.Options{Sequences: 2}).Plan, 1)
	s := session(t, e)
	if err := s.FeedLogits(t.Context(), []int32{1, 2}); err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(s.Logits(1))
	for _, b := range []exec.Batch{
		{Tokens: []int32{-5}, Pos: []int32{0}, Seq: []int32{1}},
		{Tokens: []int32{1, 2, 3}, Pos: []int32{0, 2, 1}, Seq: []int32{1, 0, 1}},
		{Tokens: []int32{1}, Pos: []int32{0}, Seq: []int32{1}, Rows: make([]int32, 1000)},
	} {
		if err := e.Forward(t.Context(), &b); err == nil {
			t.Fatalf("%+v: no error", b)
		}
		if got := s.Logits(1); got == nil || !slices.Equal(got, want) {
			t.Errorf("%+v: the logits of a session are %d numbers, expected those before", b, len(got))
		}
	}
	if err := e.Forward(t.Context(), &exec.Batch{Tokens: []int32{1}, Pos: []int32{0}, Seq: []int32{1}}); err != nil || s.Logits(1) != nil {
		t.Errorf("after a step there are still logits, or an error: %v", err)
	}
}
