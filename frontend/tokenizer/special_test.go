package tokenizer

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pesti/conformance/testenv"
)

// TestSpecials compares the automaton with a search that tries all tokens at every position.
func TestSpecials(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	draw := func(most int) string {
		b := make([]byte, rng.IntN(most+1))
		for i := range b {
			b[i] = "ab\xff"[rng.IntN(3)]
		}
		return string(b)
	}
	found := 0
	for n := range 3000 {
		ids := map[string]int32{}
		for range rng.IntN(8) {
			ids[draw(6)] = rng.Int32N(100)
		}
		text := draw(30)
		if n%100 == 0 { // several blocks, and tokens at the ends of blocks
			most := 10
			if n%200 == 0 {
				most = block / 4 // so that blocks are longer
			}
			var b strings.Builder
			for b.Len() < 5*block {
				b.WriteString(draw(100))
			}
			text = b.String()
			for _, at := range []int{block, 2 * block, len(text)} {
				from := at - rng.IntN(most)
				ids[text[from:min(from+rng.IntN(most), len(text))]] = rng.Int32N(100)
			}
		}
		type place struct{ at, length, id int }
		var want, got []place
		for i := 0; i < len(text); {
			longest := 0
			for token := range ids {
				if strings.HasPrefix(text[i:], token) {
					longest = max(longest, len(token))
				}
			}
			if longest > 0 {
				want = append(want, place{i, longest, int(ids[text[i:i+longest]])})
			}
			i += max(longest, 1)
		}
		for at, token := range newSpecials(ids).in(&poll{ctx: t.Context()}, []byte(text)) {
			got = append(got, place{at, token.length, int(token.id)})
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q in %q: %v, want %v", ids, text, got, want)
		}
		found += len(got)
	}
	if found < 3000 {
		t.Errorf("%d tokens found", found)
	}
}

// TestHostileSpecials uses control tokens for which a search that starts again at each position takes quadratic time, by
// length or by byte.
func TestHostileSpecials(t *testing.T) {
	const tokens, length = 1498, 200_000
	text := bytes.Repeat([]byte("a"), length)
	for _, c := range []struct {
		name  string
		token func(n int) string
		want  int // ids of the text
	}{
		{"the end differs", func(n int) string { return strings.Repeat("a", n) + "b" }, length},
		{"the start differs", func(n int) string { return "b" + strings.Repeat("a", n) }, length},
		{"the middle differs", func(n int) string { return strings.Repeat("a", n) + "b" + strings.Repeat("a", tokens-n) }, length},
		{"all are there", func(n int) string { return strings.Repeat("a", n) }, (length + tokens - 1) / tokens},
	} {
		config := spm(map[string]float32{"a": 0})
		config.AddSpacePrefix = new(bool)
		for n := range tokens {
			config.Tokens = append(config.Tokens, c.token(n+1))
			config.Scores, config.Types = append(config.Scores, 0), append(config.Types, typeControl)
		}
		best := time.Hour
		for range 3 { // take the best, since the time includes garbage collection
			start := testenv.ProcessorTime()
			ids, err := make1(t, config).Encode(t.Context(), text, Options{ParseSpecial: true})
			if err != nil || len(ids) != c.want {
				t.Errorf("%s: %d ids, %v; want %d", c.name, len(ids), err, c.want)
			}
			if best = min(best, testenv.ProcessorTime()-start); best < time.Second {
				break
			}
		}
		if best > time.Second {
			t.Errorf("%s: took %v; want < 1s", c.name, best)
		}
	}
}
