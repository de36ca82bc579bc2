package conformance

import (
	"math/rand/v2"
	"strings"
	"testing"

	"pesti/conformance/testenv"
)

// TestProveLongAgainstOracle checks long prompts, in chunks, with the bounds of short ones, because
// pages, RoPE angles and sums grow with the position: 600 tokens at every position, and the last 16
// positions of 4,096, which is eight times gemma's window.
func TestProveLongAgainstOracle(t *testing.T) {
	testenv.Prove(t)
	for _, c := range []struct {
		model        string
		tokens, rows int // rows: how many of the last positions are compared
	}{
		{testenv.SmolLM2, 600, 600},
		{testenv.Qwen, 600, 600},
		{testenv.SmolLM2, 4096, 16},
		{testenv.Gemma, 4096, 16},
	} {
		t.Run(c.model+"/"+itoa(c.tokens), func(t *testing.T) {
			m := openModel(t, c.model)
			ids := m.encode(t, longText())
			if len(ids) < c.tokens {
				t.Fatalf("the text has %d tokens, want %d", len(ids), c.tokens)
			}
			ids = ids[:c.tokens]
			logits := min(c.rows, 16)
			oracle := askOracleLast(t, m.path, ids, c.rows, logits)
			ours := m.last(t, ids, 64, logits)
			for l := range ours.layers {
				ours.layers[l] = ours.layers[l][c.tokens-c.rows:]
			}
			v := compare(ours, oracle)
			t.Log(v)
			if !v.passes() {
				t.Errorf("the last %d of %d tokens: %v", c.rows, c.tokens, v)
			}
		})
	}
}

// longText returns sentences that hardly repeat. The text is the same on every call.
func longText() string {
	parts := [...][]string{
		{"Before dawn", "At noon", "After the storm", "In the first week of May", "While the tide was out", "Years later", "Without a word", "As every winter", "On the third day", "Against all advice", "To her surprise", "When the bells had stopped"},
		{"the keeper", "an old surveyor", "the schoolmaster's sister", "one of the fishermen", "a boy of eleven", "the clockmaker", "nobody but the doctor", "a stranger in a grey coat", "the last of the pilots", "her neighbor", "the mayor", "somebody from the village"},
		{"counted 47 broken panes", "drew a map of the shoals", "wound up the great clock", "asked what a metre was", "carried oil up the stairs", "read the table of errors aloud", "found a letter from 1687", "forgot to close the gallery door", "set a watch by the beam", "mended nets and said nothing", "argued about the moon", "wrote it all down"},
		{"behind the chapel", "on both sides of the paper", "with brass polish and patience", "for twelve seconds", "under a lamp that smoked", "at the foot of the tower", "among crates of instruments", "as if it were music", "in a language from the north", "below the waterline", "until the fog lifted", "and went to bed"},
	}
	r := rand.New(rand.NewPCG(4096, 16))
	var b strings.Builder
	for range 260 {
		b.WriteString(parts[0][r.IntN(12)] + " ")
		b.WriteString(parts[1][r.IntN(12)] + " ")
		b.WriteString(parts[2][r.IntN(12)] + " ")
		b.WriteString(parts[3][r.IntN(12)] + ". ")
	}
	return b.String()
}
