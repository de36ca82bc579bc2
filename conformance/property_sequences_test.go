package conformance

import (
	"fmt"
	"slices"
	"testing"

	"pesti/conformance/testenv"
	"pesti/exec"
	"pesti/lower"
)

// TestTogetherAndAlone runs two sequences in the same steps, in chunks of every size, truncates
// each to a prefix and feeds the rest again. Their last logits must have the same bits as those of
// each sequence alone in one chunk. Package exec tests the same with random models and histories.
func TestTogetherAndAlone(t *testing.T) {
	for _, c := range []struct {
		model      string
		tokens     int // of the longer sequence
		ubatch     []int64
		precisions []string
	}{
		{"demo", 90, []int64{2, 7, 64, 512}, []string{"exact", "fast"}}, // two sequences need steps of two tokens
		{testenv.SmolLM2, 24, []int64{7}, []string{"fast"}},
		{testenv.Gemma, 12, []int64{7}, []string{"fast"}},
	} {
		for _, precision := range c.precisions {
			t.Run(c.model+"/"+precision, func(t *testing.T) {
				if testing.Short() && c.model != "demo" {
					t.Skip("real models take long")
				}
				m := openModel(t, c.model)
				text := m.passage(t)
				ids := [2][]int32{text[:c.tokens], text[7 : 7+c.tokens*2/3]}
				var want [2][]float32
				for i := range ids {
					s := m.session(t, lower.Options{Precision: precision, Threads: 2, Ctx: 128})
					want[i] = fed(t, s, ids[i])
				}
				for _, ubatch := range c.ubatch {
					t.Run(fmt.Sprint(ubatch), func(t *testing.T) {
						e := m.engine(t, lower.Options{Precision: precision, Threads: 2, Ctx: 128, Ubatch: ubatch, Sequences: 2}, exec.Options{Poison: true}, nil)
						got := sideBySide(t, e, ids, [2]int{0, 0})
						for i := range ids {
							if !slices.Equal(got[i], want[i]) {
								t.Errorf("sequence %d: the logits in a batch differ from the logits alone", i)
							}
						}
						got = sideBySide(t, e, ids, [2]int{len(ids[0]) / 2, len(ids[1]) - 1})
						for i := range ids {
							if !slices.Equal(got[i], want[i]) {
								t.Errorf("sequence %d: the logits after truncation to a prefix differ from the logits alone", i)
							}
						}
					})
				}
			})
		}
	}
}

func fed(t *testing.T, s *exec.Session, ids []int32) []float32 {
	t.Helper()
	logits, err := s.Feed(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(logits)
}

// sideBySide feeds both sequences from the given positions on and returns the logits of the last
// tokens. A third of each step is for the first sequence, while it has tokens, and the rest for the
// second.
func sideBySide(t *testing.T, e *exec.Engine, ids [2][]int32, at [2]int) (last [2][]float32) {
	t.Helper()
	ubatch := int(e.Plan().Target.Ubatch)
	for at[0] < len(ids[0]) || at[1] < len(ids[1]) {
		var b exec.Batch
		for seq, share := range [2]int{max(ubatch/3, 1), ubatch} {
			n := min(share, ubatch-len(b.Tokens), len(ids[seq])-at[seq])
			for range n {
				b.Tokens = append(b.Tokens, ids[seq][at[seq]])
				b.Pos, b.Seq = append(b.Pos, int32(at[seq])), append(b.Seq, int32(seq))
				at[seq]++
			}
			if n > 0 && at[seq] == len(ids[seq]) {
				b.Rows = append(b.Rows, int32(len(b.Tokens)-1))
			}
		}
		if err := e.Forward(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		for r, row := range b.Rows {
			last[b.Seq[row]] = slices.Clone(e.Logits(r))
		}
	}
	return last
}
