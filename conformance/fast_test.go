package conformance

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pesti/conformance/metrics"
	"pesti/conformance/testenv"
	"pesti/exec"
	"pesti/lower"
)

// logits evaluates ids in chunks of ubatch and returns the logits of every position, at most Rows
// at a time.
func (m *model) logits(t testing.TB, ids []int32, o lower.Options) [][]float32 {
	t.Helper()
	chunk := int(o.Ubatch)
	if o.Rows == 0 {
		o.Rows = min(o.Ubatch, 64)
	}
	e := m.engine(t, o, exec.Options{Poison: true}, nil)
	var all [][]float32
	for at := 0; at < len(ids); at += chunk {
		part := ids[at:min(at+chunk, len(ids))]
		// A large chunk has more rows than a step returns: it is repeated over the same positions.
		for first := 0; first < len(part); first += int(o.Rows) {
			var b exec.Batch
			for i, id := range part {
				b.Tokens, b.Pos, b.Seq = append(b.Tokens, id), append(b.Pos, int32(at+i)), append(b.Seq, 0)
			}
			for i := first; i < min(first+int(o.Rows), len(part)); i++ {
				b.Rows = append(b.Rows, int32(i))
			}
			if err := e.Forward(context.Background(), &b); err != nil {
				t.Fatal(err)
			}
			for i := range b.Rows {
				all = append(all, slices.Clone(e.Logits(i)))
			}
		}
	}
	return all
}

func (m *model) passage(t testing.TB) []int32 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "passage.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return m.encode(t, string(text))
}

// fastTokens are the models whose accuracy in fast is bounded, with the tokens of the passage.
var fastTokens = map[string]int{"demo": 256, testenv.SmolLM2: 200, testenv.Qwen: 200, testenv.Gemma: 200}

// against compares rows of logits with the exact ones, and logs the result.
func against(t *testing.T, what string, exact, rows [][]float32) (all metrics.Logits) {
	t.Helper()
	for i := range exact {
		all.Add(exact[i], rows[i])
	}
	t.Logf("%s: mean KL %.1e, worst %.1e, top-1 %.2f %% of %d tokens", what, all.MeanKL(), all.MaxKL, 100*all.Top1(), len(exact))
	return all
}

// exact returns logits in precision exact. fast returns the loss of precision fast with an activation format.
func (m *model) exact(t *testing.T, ids []int32) [][]float32 {
	t.Helper()
	return m.logits(t, ids, lower.Options{Precision: "exact", Ubatch: 64, Threads: 2})
}

func (m *model) fast(t *testing.T, ids []int32, activations string, exact [][]float32) metrics.Logits {
	t.Helper()
	return against(t, activations, exact, m.logits(t, ids, lower.Options{Precision: "fast", Ubatch: 64, Threads: 2, Activations: activations}))
}

// TestFastAgainstExact bounds what integer products of two int8 planes (q8x2) and the float16 cache
// cost.
func TestFastAgainstExact(t *testing.T) {
	for name, tokens := range fastTokens {
		t.Run(name, func(t *testing.T) {
			m := openModel(t, name)
			ids := m.passage(t)[:tokens]
			all := m.fast(t, ids, "q8x2", m.exact(t, ids))
			if !(all.MeanKL() <= 1e-4) || all.Top1() < 0.995 {
				t.Errorf("mean KL %.1e, top-1 %.2f %%, want at most 1e-4 and at least 99.5 %%", all.MeanKL(), 100*all.Top1())
			}
		})
	}
}

// TestProveFastAgainstLlamaCpp bounds what q8x2 and mixed each cost by half of what llama.cpp loses
// on the same file and text.
func TestProveFastAgainstLlamaCpp(t *testing.T) {
	testenv.Prove(t)
	for name, tokens := range fastTokens {
		t.Run(name, func(t *testing.T) {
			m := openModel(t, name)
			ids := m.passage(t)[:tokens]
			exact := m.exact(t, ids)
			theirs := against(t, "llama.cpp", exact, askLlamaCpp(t, m.path, ids))
			for _, activations := range []string{"q8x2", "mixed"} {
				all := m.fast(t, ids, activations, exact)
				if !(all.MeanKL() <= theirs.MeanKL()/2) || all.Top1() < theirs.Top1() {
					t.Errorf("%s: mean KL %.1e, top-1 %.2f %%, want at most half of llama.cpp's %.1e and at least its %.2f %%",
						activations, all.MeanKL(), 100*all.Top1(), theirs.MeanKL(), 100*theirs.Top1())
				}
			}
		})
	}
}

// TestSameBytes checks that the logits of every position have the same bits for any number of
// workers and any chunking.
func TestSameBytes(t *testing.T) {
	for _, c := range []struct {
		model   string
		tokens  int
		ubatch  []int64
		threads []int
	}{
		{"demo", 120, []int64{1, 7, 64, 120}, []int{1, 2, 3}},
		{testenv.SmolLM2, 40, []int64{7, 40}, []int{1, 3}},
		{testenv.Gemma, 40, []int64{7, 40}, []int{1, 3}},
	} {
		for _, o := range []lower.Options{{Precision: "fast", Activations: "q8x2"}, {Precision: "exact"}, {Precision: "fast", Activations: "q8"}, {Precision: "fast", Activations: "mixed"}} {
			t.Run(c.model+"/"+o.Precision+o.Activations, func(t *testing.T) {
				m := openModel(t, c.model)
				ids := m.passage(t)[:c.tokens]
				o.Ubatch, o.Threads = 64, 2
				want := m.logits(t, ids, o)
				for _, ubatch := range c.ubatch {
					for _, threads := range c.threads {
						o.Ubatch, o.Threads = ubatch, threads
						got := m.logits(t, ids, o)
						for i := range want {
							if !slices.Equal(got[i], want[i]) {
								t.Fatalf("ubatch %d, %d threads: the logits of position %d differ from those of ubatch 64, 2 threads", ubatch, threads, i)
							}
						}
					}
				}
			})
		}
	}
}

// TestPasses compares plans that lack passes with the plan that has all of them.
func TestPasses(t *testing.T) {
	m := openModel(t, "demo")
	ids := m.prompt(t, "fox")
	want := m.logits(t, ids, lower.Options{Precision: "exact", Ubatch: 32, Threads: 2})
	for _, passes := range append([]string{"none"}, off()...) {
		t.Run(passes, func(t *testing.T) {
			got := m.logits(t, ids, lower.Options{Precision: "exact", Ubatch: 32, Threads: 2, Passes: passes})
			for i := range want {
				largest := 0.0
				for _, x := range want[i] {
					largest = max(largest, math.Abs(float64(x)))
				}
				for j := range want[i] {
					if d := math.Abs(float64(got[i][j]) - float64(want[i][j])); !(d <= 1e-5*largest) {
						t.Fatalf("position %d logit %d is %g, expected %g within 1e-5 of the row's %g", i, j, got[i][j], want[i][j], largest)
					}
				}
			}
		})
	}
}

// off lists every pass as a --passes value that switches it off.
func off() []string {
	var lists []string
	for _, p := range lower.Passes() {
		if l := "-" + p.Name; !slices.Contains(lists, l) {
			lists = append(lists, l)
		}
	}
	return lists
}
