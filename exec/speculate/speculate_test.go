package speculate_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/sample"
	"pesti/exec/speculate"
	"pesti/frontend"
	"pesti/gguf/quant"
	"pesti/lower"
)

const vocab = 258

// engine compiles a tiny model. If it has a window, its ring has only as many positions as the largest pass
// needs.
func engine(t rapid.TB, arch string, o lower.Options) *exec.Engine {
	t.Helper()
	c := tiny.Config{
		Arch: arch, Layers: 2, Embd: 32, HeadDim: 16, FF: 32, Vocab: vocab, Context: 72, Heads: 2, KVHeads: 1,
		Types: []quant.Type{quant.Q4_0, quant.Q8_0, quant.Q4_1},
	}
	if arch == "gemma3" {
		c.Window = 5
	}
	m, err := frontend.Load(tiny.File(t, c))
	if err != nil {
		t.Fatal(err)
	}
	o.Threads = 2
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

func session(t rapid.TB, e *exec.Engine) *exec.Session {
	t.Helper()
	s, err := exec.NewSession(e)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// decode continues a prompt by a sampler until the context is full, and returns the new tokens and
// the logits that each was taken from.
func decode(t rapid.TB, s *exec.Session, prompt []int32, p sample.Params, feed func(ctx context.Context, id int32) ([]float32, error)) (ids []int32, logits [][]float32) {
	t.Helper()
	sampler, err := sample.New(p, vocab)
	if err != nil {
		t.Fatal(err)
	}
	s.Reset()
	row, err := s.Feed(context.Background(), prompt)
	for room := s.Remaining(); ; room-- {
		if err != nil {
			t.Fatal(err)
		}
		id, err := sampler.Sample(0, row)
		if err != nil {
			t.Fatal(err)
		}
		sampler.Accept(id)
		ids, logits = append(ids, id), append(logits, slices.Clone(row))
		if room == 0 {
			return ids, logits
		}
		if row, err = feed(context.Background(), id); err != nil {
			t.Fatal(err)
		}
	}
}

func plainly(s *exec.Session) func(context.Context, int32) ([]float32, error) {
	return func(ctx context.Context, id int32) ([]float32, error) { return s.Feed(ctx, []int32{id}) }
}

// A prophet drafts the text that will be generated, with errors at chosen places.
type prophet struct {
	text  []int32 // the text after the accepted tokens
	wrong func() bool
}

func (p *prophet) Accept(int32) { p.text = p.text[1:] }

func (p *prophet) Draft(dst []int32, n int) []int32 {
	after := p.text[min(len(dst), len(p.text)):]
	for i := range n {
		id := int32(i)
		if i < len(after) {
			id = after[i]
		}
		if p.wrong() {
			id = (id + 1) % vocab
		}
		dst = append(dst, id)
	}
	return dst
}

// TestSameTokens checks that with any drafts, useful or not, the tokens and the bits of their
// logits are the same as without, also with ring caches.
func TestSameTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := lower.Options{
			Precision: rapid.SampledFrom([]string{"exact", "fast"}).Draw(t, "precision"),
			Rows:      rapid.SampledFrom([]int64{2, 3, 8, 31}).Draw(t, "rows"),
		}
		o.Ubatch = rapid.SampledFrom([]int64{o.Rows, o.Rows + 1, 64}).Draw(t, "ubatch")
		e := engine(t, rapid.SampledFrom([]string{"llama", "gemma3"}).Draw(t, "arch"), o)
		defer e.Close()
		s := session(t, e)
		params := sample.Default()
		params.Seed = 7
		params.Temp = rapid.SampledFrom([]float64{0, 0.8}).Draw(t, "temp")
		params.RepeatPenalty = rapid.SampledFrom([]float64{1, 1.5}).Draw(t, "repeat penalty")
		prompt := rapid.SliceOfN(rapid.Int32Range(0, vocab-1), 1, 40).Draw(t, "prompt")
		ids, logits := decode(t, s, prompt, params, plainly(s))

		most := rapid.IntRange(1, int(o.Rows)-1).Draw(t, "most")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "wrong guesses"), 0))
		for _, c := range []struct {
			name    string
			drafter speculate.Drafter
		}{
			{"lookup", speculate.NewLookup(prompt, 96)},
			{"always right", &prophet{ids, func() bool { return false }}},
			{"always wrong", &prophet{ids, func() bool { return true }}},
			{"any", &prophet{ids, func() bool { return rng.IntN(3) == 0 }}},
		} {
			d, err := speculate.New(s, c.drafter, most)
			if err != nil {
				t.Fatal(err)
			}
			d.Always = rapid.Bool().Draw(t, "always")
			got, rows := decode(t, s, prompt, params, d.Feed)
			if !slices.Equal(got, ids) {
				t.Fatalf("%s: tokens %v, want %v", c.name, got, ids)
			}
			for i := range rows {
				if !sameBits(rows[i], logits[i]) {
					t.Fatalf("%s: the logits after %d tokens differ from those without guesses", c.name, i)
				}
			}
			if err := d.DropDraft(); err != nil || s.Remaining() != 0 {
				t.Fatalf("%s: %d positions are left of the context, expected none; error %v", c.name, s.Remaining(), err)
			}
		}
	})
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// TestCounts compares the counts of verified and accepted draft tokens with the known behavior of a
// drafter.
func TestCounts(t *testing.T) {
	e := engine(t, "llama", lower.Options{})
	defer e.Close()
	s := session(t, e)
	prompt := []int32{1, 2, 3}
	params := sample.Default()
	params.Temp = 0
	ids, _ := decode(t, s, prompt, params, plainly(s))
	fed := len(ids) - 1 // the last one is not

	for _, c := range []struct {
		wrong              bool
		proposed, accepted int
	}{
		{false, fed - (fed+7)/8, fed - (fed+7)/8}, // passes of 8 tokens, of which 7 are draft tokens
		{true, -1, 0},
	} {
		d, err := speculate.New(s, &prophet{ids, func() bool { return c.wrong }}, 7)
		if err != nil {
			t.Fatal(err)
		}
		d.Always = true
		decode(t, s, prompt, params, d.Feed)
		if d.Accepted() != c.accepted || c.proposed >= 0 && d.Proposed() != c.proposed || d.Proposed() == 0 {
			t.Errorf("always wrong is %t: %d of %d guesses accepted, expected %d of %d", c.wrong, d.Accepted(), d.Proposed(), c.accepted, c.proposed)
		}
	}
}

// TestSettle checks that wrong draft tokens are removed from the session.
func TestSettle(t *testing.T) {
	e := engine(t, "gemma3", lower.Options{})
	defer e.Close()
	s := session(t, e)
	d, err := speculate.New(s, &prophet{make([]int32, 9), func() bool { return true }}, 7)
	if err != nil {
		t.Fatal(err)
	}
	d.Always = true
	if err := d.DropDraft(); err != nil {
		t.Error(err)
	}
	for n := 1; n <= 3; n++ {
		if _, err := d.Feed(context.Background(), 200); err != nil {
			t.Fatal(err)
		}
		if s.Pos() != n+7 {
			t.Errorf("%d positions after %d tokens and 7 guesses", s.Pos(), n)
		}
		for range 2 {
			if err := d.DropDraft(); err != nil || s.Pos() != n {
				t.Errorf("%d positions after %d tokens, error %v", s.Pos(), n, err)
			}
		}
	}
}

// TestOthersBetween runs passes of another sequence between a draft and the tokens that it predicted.
func TestOthersBetween(t *testing.T) {
	e := engine(t, "llama", lower.Options{Sequences: 2})
	defer e.Close()
	s, other := session(t, e), session(t, e)
	params := sample.Default()
	params.Temp = 0
	ids, logits := decode(t, s, []int32{1, 2, 3}, params, plainly(s))
	d, err := speculate.New(s, &prophet{ids, func() bool { return false }}, 7)
	if err != nil {
		t.Fatal(err)
	}
	d.Always = true
	n := 0
	got, rows := decode(t, s, []int32{1, 2, 3}, params, func(ctx context.Context, id int32) ([]float32, error) {
		if n++; n%3 == 0 {
			other.Reset()
			if err := other.FeedLogits(context.Background(), []int32{9, 9, 9, 9, 9, 9, 9, 9}); err != nil {
				return nil, err
			}
		}
		return d.Feed(context.Background(), id)
	})
	if !slices.Equal(got, ids) || !slices.EqualFunc(rows, logits, sameBits) {
		t.Errorf("tokens %v, want %v", got, ids)
	}
	if d.Accepted() == 0 {
		t.Error("no draft token was accepted")
	}
}

// A listener counts the tokens that it accepts.
type listener struct {
	*speculate.Lookup
	told int
}

func (l *listener) Accept(id int32) {
	l.told++
	l.Lookup.Accept(id)
}

func TestErrors(t *testing.T) {
	e := engine(t, "llama", lower.Options{Rows: 4})
	defer e.Close()
	s := session(t, e)
	drafter := &listener{Lookup: speculate.NewLookup(nil, 0)}
	for _, most := range []int{-1, 0, 4, 1 << 40} {
		if _, err := speculate.New(s, drafter, most); err == nil || !strings.Contains(err.Error(), "expected 1 to 3") {
			t.Errorf("%d guesses: error %v", most, err)
		}
	}
	d, err := speculate.New(s, drafter, 3)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Feed(context.Background(), vocab); err == nil || !strings.Contains(err.Error(), "token id 258") {
		t.Errorf("a token that is none: error %v", err)
	}
	s.Close()
	if _, err := d.Feed(context.Background(), 1); !errors.Is(err, exec.ErrClosed) {
		t.Errorf("a closed session: error %v", err)
	}
	if drafter.told != 0 {
		t.Errorf("the drafter was told of %d tokens, none of which the session has", drafter.told)
	}
	single := engine(t, "llama", lower.Options{Ubatch: 1})
	defer single.Close()
	if _, err := speculate.New(session(t, single), drafter, 1); err == nil || !strings.Contains(err.Error(), "a draft of 1 tokens") {
		t.Errorf("a plan of one token a step: error %v", err)
	}
}

// TestNoAllocations checks that neither drafts nor their verification allocate.
func TestNoAllocations(t *testing.T) {
	e := engine(t, "llama", lower.Options{})
	defer e.Close()
	s := session(t, e)
	lookup := speculate.NewLookup(nil, 1000)
	d, err := speculate.New(s, lookup, 7)
	if err != nil {
		t.Fatal(err)
	}
	d.Always = true
	count := math.Inf(1)
	for range 4 { // the Go scheduler may start a thread once in a while, which counts
		if err := d.DropDraft(); err != nil {
			t.Fatal(err)
		}
		s.Reset()
		i := int32(0)
		count = min(count, testing.AllocsPerRun(20, func() {
			if _, err := d.Feed(context.Background(), i%4*(1+i%3)); err != nil {
				t.Fatal(err)
			}
			i++
		}))
	}
	if count != 0 {
		t.Errorf("a token takes %v allocations", count)
	}
	if d.Proposed() == 0 || d.Accepted() == 0 {
		t.Errorf("%d of %d guesses accepted: nothing was tested", d.Accepted(), d.Proposed())
	}
}
