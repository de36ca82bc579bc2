package exec_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/frontend"
	"pesti/lower"
)

// A moment is a token of a history of steps, with its logits.
type moment struct {
	ids    []int32 // of its sequence, with the token last
	logits []float32
}

// TestHistories feeds sequences in arbitrary chunks, several in one batch, and truncates them to
// prefixes. A token's logits depend only on the tokens before it: they have the same bits when its
// sequence is fed alone, at once, on a plan with other bounds.
func TestHistories(t *testing.T) {
	sets := usableISAs(t)
	rapid.Check(t, func(t *rapid.T) {
		m := drawTiny(t)
		o := lower.Options{
			ISA:       rapid.SampledFrom(sets).Draw(t, "instruction set"),
			Precision: rapid.SampledFrom([]string{"exact", "fast"}).Draw(t, "precision"),
			Passes:    rapid.SampledFrom([]string{"", "", "-fuse_attention", "none"}).Draw(t, "passes"),
			Ubatch:    rapid.SampledFrom([]int64{1, 7, 64, 512}).Draw(t, "ubatch"),
			Threads:   rapid.IntRange(1, 3).Draw(t, "threads"),
		}
		o.Sequences = min(o.Ubatch, int64(rapid.IntRange(1, 3).Draw(t, "sequences")))
		moments := history(t, m, o)

		o.Sequences, o.Threads = 1, 2
		o.Ubatch = rapid.SampledFrom([]int64{1, 7, 64, 512}).Draw(t, "ubatch alone")
		e := openDrawn(t, m, o)
		defer e.Close()
		s, err := exec.NewSession(e)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range moments {
			s.Reset()
			alone, err := s.Feed(t.Context(), at.ids)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(alone, at.logits) {
				t.Fatalf("the logits after %d tokens differ from those of the same tokens alone", len(at.ids))
			}
		}
	})
}

// history runs drawn steps and records some tokens with their logits.
func history(t *rapid.T, m *frontend.Model, o lower.Options) []moment {
	e := openDrawn(t, m, o)
	defer e.Close()
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "ids"), 0))
	ids := make([][]int32, o.Sequences)
	var moments []moment
	most := 8
	if o.Ubatch < 64 {
		most = 40 // enough to wrap around a ring
	}
	for range rapid.IntRange(most/2, most).Draw(t, "steps") {
		var b exec.Batch
		before := slices.Clone(ids)
		room := int(min(o.Ubatch, 100))
		for seq := range ids {
			if len(ids[seq]) > 0 && rapid.IntRange(0, 3).Draw(t, "go back") == 3 {
				ids[seq] = slices.Clone(ids[seq][:rapid.IntRange(0, len(ids[seq])).Draw(t, "to")])
			}
			n := min(room, 150-len(ids[seq]))
			if rapid.Bool().Draw(t, "fewer") {
				n = rapid.IntRange(0, n).Draw(t, "tokens")
			}
			for range n {
				b.Tokens = append(b.Tokens, int32(rng.IntN(250)))
				b.Pos = append(b.Pos, int32(len(ids[seq])))
				b.Seq = append(b.Seq, int32(seq))
				ids[seq] = append(ids[seq], b.Tokens[len(b.Tokens)-1])
			}
			if n == 0 { // without a token, the engine does not know that the sequence was truncated
				ids[seq] = before[seq]
			} else if rapid.IntRange(0, 2).Draw(t, "wanted") == 0 {
				b.Rows = append(b.Rows, int32(len(b.Tokens)-1-rng.IntN(n)))
			}
			room -= n
		}
		if len(b.Tokens) == 0 {
			continue
		}
		if err := e.Forward(t.Context(), &b); err != nil {
			if !strings.Contains(err.Error(), "cannot go back") {
				t.Fatal(err)
			}
			ids = before // refused before anything was computed
			continue
		}
		for r, row := range b.Rows {
			history := ids[b.Seq[row]][:b.Pos[row]+1]
			moments = append(moments, moment{slices.Clone(history), slices.Clone(e.Logits(r))})
		}
	}
	return moments
}

// drawTiny draws a model with a context for the histories.
func drawTiny(t *rapid.T) *frontend.Model {
	c := tiny.Config{
		Arch:   rapid.SampledFrom(frontend.Architectures()).Draw(t, "arch"),
		Layers: rapid.IntRange(1, 2).Draw(t, "layers"), Embd: 32, HeadDim: 16, FF: 32, Vocab: 258, Context: 160,
		KVHeads: rapid.IntRange(1, 2).Draw(t, "kv heads"), Types: mixed,
	}
	c.Heads = 2 * c.KVHeads
	if c.Arch == "gemma3" {
		c.Window = rapid.SampledFrom([]int{5, 5, 0, 33}).Draw(t, "window")
	}
	return load(t, c)
}

func openDrawn(t *rapid.T, m *frontend.Model, o lower.Options) *exec.Engine {
	r, err := lower.Compile(m, o)
	if err != nil {
		t.Fatal(err)
	}
	e, err := exec.Open(r.Plan, m.File, exec.Options{Poison: true})
	if err != nil {
		t.Fatal(err)
	}
	return e
}
