package tokenizer

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestStreamHoldsRunes(t *testing.T) {
	tests := []struct {
		pieces, shown []string
		flushed       string
	}{
		{[]string{""}, []string{""}, ""},
		{[]string{"a", "é"}, []string{"a", "é"}, ""},
		{[]string{"\xf0", "\x9f", "\x98", "\x80"}, []string{"", "", "", "😀"}, ""},
		{[]string{"a\xf0\x9f", "\x98\x80b"}, []string{"a", "😀b"}, ""},
		{[]string{"世\xe7", "\x95", "\x8c"}, []string{"世", "", "界"}, ""},
		{[]string{"a\xf0\x9f"}, []string{"a"}, "\xf0\x9f"},
		{[]string{"\xff", "a"}, []string{"\xff", "a"}, ""},         // cannot become a rune
		{[]string{"\x80"}, []string{"\x80"}, ""},                   // does not begin a rune
		{[]string{"\xe4\xb8", "x"}, []string{"", "\xe4\xb8x"}, ""}, // incomplete rune
		{[]string{"\xed\xa0"}, []string{"\xed\xa0"}, ""},           // a surrogate
		{[]string{"\xc3\xc3", "\xa9"}, []string{"\xc3", "é"}, ""},  // incomplete rune, then a complete one
	}
	for _, c := range tests {
		var s Stream
		for i, p := range c.pieces {
			if got := s.Write([]byte(p)); string(got) != c.shown[i] {
				t.Errorf("%q: piece %d shows %q; want %q", c.pieces, i, got, c.shown[i])
			}
		}
		if got := s.Flush(); string(got) != c.flushed {
			t.Errorf("%q: flushed %q; want %q", c.pieces, got, c.flushed)
		}
		if got := s.Flush(); len(got) != 0 {
			t.Errorf("%q: flushed again %q", c.pieces, got)
		}
	}
}

// cut cuts text at random places.
func cut(rng *rand.Rand, text []byte) (pieces [][]byte) {
	for len(text) > 0 {
		n := min(rng.IntN(4), len(text))
		pieces = append(pieces, text[:n])
		text = text[n:]
	}
	return pieces
}

func TestStreamKeepsAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	texts := []string{"a😀é世界 z", "\xff\xfe😀\xf0\x9f", "\xe4\xb8\xe4\xb8\x96\xc3"}
	for range 1000 {
		text := []byte(strings.Repeat(texts[rng.IntN(len(texts))], 3))
		var s Stream
		var shown []byte
		for _, p := range cut(rng, text) {
			got := s.Write(p)
			if utf8.Valid(text) && !utf8.Valid(got) {
				t.Fatalf("%q: showed %q, half a rune", text, got)
			}
			shown = append(shown, got...)
		}
		if shown = append(shown, s.Flush()...); !bytes.Equal(shown, text) {
			t.Fatalf("showed %q; want %q", shown, text)
		}
	}
}

func TestStopMatcher(t *testing.T) {
	tests := []struct {
		stops, pieces, shown []string
		stopped              bool
		flushed              string
	}{
		{nil, []string{"a", "b"}, []string{"a", "b"}, false, ""},
		{[]string{""}, []string{"a"}, []string{"a"}, false, ""},
		{[]string{"END"}, []string{"xE", "N", "Dy", "z"}, []string{"x", "", "", ""}, true, ""},
		{[]string{"END"}, []string{"xEN", "x"}, []string{"x", "ENx"}, false, ""},
		{[]string{"END"}, []string{"xEN"}, []string{"x"}, false, "EN"},
		{[]string{"END"}, []string{"EEND"}, []string{"E"}, true, ""},
		{[]string{"aab"}, []string{"aa", "a", "b"}, []string{"", "a", ""}, true, ""},
		{[]string{"abc", "b"}, []string{"ab"}, []string{"a"}, true, ""},            // the one that is complete first
		{[]string{"b", "ab"}, []string{"ab"}, []string{""}, true, ""},              // the longest one
		{[]string{"bcd", "abc"}, []string{"ab", "cd"}, []string{"", ""}, true, ""}, //
		{[]string{"\n\n"}, []string{"a\n", "b\n", "\nc"}, []string{"a", "\nb", ""}, true, ""},
		{[]string{"x"}, []string{"x", "y"}, []string{"", ""}, true, ""},
	}
	for _, c := range tests {
		m := NewStopMatcher(c.stops)
		var stopped bool
		for i, p := range c.pieces {
			var got []byte
			if got, stopped = m.Write([]byte(p)); string(got) != c.shown[i] {
				t.Errorf("%q in %q: piece %d shows %q; want %q", c.stops, c.pieces, i, got, c.shown[i])
			}
		}
		if stopped != c.stopped {
			t.Errorf("%q in %q: stopped %v; want %v", c.stops, c.pieces, stopped, c.stopped)
		}
		if got := m.Flush(); string(got) != c.flushed {
			t.Errorf("%q in %q: flushed %q; want %q", c.stops, c.pieces, got, c.flushed)
		}
	}
}

// TestStopMatcherAgainstWhole compares the matcher with a search in the whole
// text.
func TestStopMatcherAgainstWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	random := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "ab"[rng.IntN(2)]
		}
		return string(b)
	}
	for range 5000 {
		text := random(rng.IntN(20))
		stops := []string{random(1 + rng.IntN(6)), random(1 + rng.IntN(6))}
		want := text
		for end := range len(text) + 1 {
			for _, s := range stops {
				if strings.HasSuffix(text[:end], s) && end-len(s) < len(want) {
					want = text[:end-len(s)]
				}
			}
			if want != text {
				break
			}
		}
		m := NewStopMatcher(stops)
		var shown []byte
		for _, p := range cut(rng, []byte(text)) {
			got, _ := m.Write(p)
			shown = append(shown, got...)
			if !strings.HasPrefix(want, string(shown)) {
				t.Fatalf("%q, stops %q: leaked %q; want %q", text, stops, shown, want)
			}
		}
		if shown = append(shown, m.Flush()...); string(shown) != want {
			t.Fatalf("%q, stops %q: showed %q; want %q", text, stops, shown, want)
		}
	}
}
