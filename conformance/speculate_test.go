package conformance

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pesti/conformance/metrics"
	"pesti/conformance/testenv"
	"pesti/exec/speculate"
	"pesti/lower"
)

// TestGuessesAtRepetition generates an edited file and a summary, texts that repeat their prompt.
// The text must be the same as without speculative decoding, with at least a given number of tokens
// per step. Steps are counted, not timed. To measure their time:
//
//	pesti bench MODEL -p 0 -n 160 --speculate 7 --file conformance/testdata/edit.txt
func TestGuessesAtRepetition(t *testing.T) {
	const tokens, draftTokens = 64, 7
	for _, c := range []struct {
		model, text string
		least       float64 // tokens per step
	}{
		{testenv.Qwen, "edit.txt", 3.2},
		{testenv.SmolLM2, "summarize.txt", 6},
	} {
		t.Run(c.model, func(t *testing.T) {
			m := openModel(t, c.model)
			text, err := os.ReadFile(filepath.Join("testdata", c.text))
			if err != nil {
				t.Fatal(err)
			}
			prompt := m.encode(t, string(text))
			s := m.session(t, lower.Options{Rows: int64(draftTokens + 1)})
			logits, err := s.Feed(t.Context(), prompt)
			if err != nil {
				t.Fatal(err)
			}
			d, err := speculate.New(s, speculate.NewLookup(prompt, 0), draftTokens)
			if err != nil {
				t.Fatal(err)
			}
			d.Always = true
			out := slices.Clone(prompt)
			for len(out) < len(prompt)+tokens {
				best, _ := metrics.Top(logits)
				out = append(out, int32(best))
				if logits, err = d.Feed(t.Context(), int32(best)); err != nil {
					t.Fatal(err)
				}
			}
			if want := m.greedy(t, prompt, tokens, lower.Options{}); !slices.Equal(out, want) {
				t.Errorf("with drafts the tokens are %v, without %v", out[len(prompt):], want[len(prompt):])
			}
			each := tokens / float64(tokens-d.Accepted())
			t.Logf("%s with drafts of %d: %d of %d tokens accepted, %.2f tokens per step", c.text, draftTokens, d.Accepted(), d.Proposed(), each)
			if each < c.least {
				t.Errorf("%.2f tokens per step, expected at least %.2f", each, c.least)
			}
		})
	}
}
