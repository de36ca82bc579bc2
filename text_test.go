package pesti_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pesti"
	"pesti/conformance/tiny"
	"pesti/frontend"
	"pesti/lower"
)

// TestUnfinishedText generates random bytes. Text is held back while it ends within a character, or
// with the beginning of a stop text. Text that is still held back at the end comes unchanged with
// the last piece.
func TestUnfinishedText(t *testing.T) {
	f := tiny.File(t, tiny.Config{})
	r := must(lower.Compile(must(frontend.Load(f)), lower.Options{Ctx: 64}))
	m := must(pesti.New(f, r.Plan, pesti.Options{}))
	defer m.Close()
	s := must(m.NewSession())
	// generate returns the bytes of the tokens, and the text of the last piece.
	generate := func(p pesti.Params) (raw, last string) {
		t.Helper()
		if err := s.Truncate(0); err != nil {
			t.Fatal(err)
		}
		var ids []int32
		text := ""
		for piece, err := range s.GenerateIDs(t.Context(), []int32{5}, p) {
			if err != nil {
				t.Fatal(err)
			}
			text += piece.Text
			if last = piece.Text; piece.Result != nil {
				break
			}
			ids = append(ids, piece.ID)
			raw = must(m.Detokenize(ids))
			if want := raw[:len(raw)-unfinished(raw)]; p.Stop == nil && text != want {
				t.Errorf("the text after %d tokens is %q, expected %q", len(ids), text, want)
			}
		}
		if text != raw || len(ids) != p.MaxTokens {
			t.Errorf("%d tokens with text %q, expected %d with %q", len(ids), text, p.MaxTokens, raw)
		}
		return raw, last
	}
	within, begun := 0, 0
	for n := 1; n <= 40; n++ {
		p := pesti.Params{Temp: 5, IgnoreEOG: true, MaxTokens: n}
		raw, last := generate(p)
		if want := raw[len(raw)-unfinished(raw):]; last != want {
			t.Errorf("%d tokens: the last piece has text %q, expected %q", n, last, want)
		}
		if last != "" {
			within++
		}
		p.Stop = []string{raw[len(raw)-1:] + "\x00 and what does not come"}
		if again, last := generate(p); again != raw || !strings.HasSuffix(last, raw[len(raw)-1:]) {
			t.Errorf("%d tokens: the last piece has text %q, expected the beginning of the stop text", n, last)
		} else {
			begun++
		}
	}
	if within < 3 || begun < 35 {
		t.Errorf("%d generations ended within a character and %d within a stop text, expected more", within, begun)
	}
}

// unfinished returns how many bytes at the end of a text are the beginning of a character and not all of it.
func unfinished(text string) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		for size := n + 1; size <= utf8.UTFMax; size++ {
			for _, second := range []string{"\x80", "\x90", "\xa0"} { // which of them may follow depends on the first byte
				rest := (second + "\x80\x80")[:size-n]
				if r, got := utf8.DecodeRuneInString(text[len(text)-n:] + rest); got == size && r != utf8.RuneError {
					return n
				}
			}
		}
	}
	return 0
}
