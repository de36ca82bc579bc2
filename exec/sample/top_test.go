package sample

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSampleTop checks that the greatest logits give the same tokens as all logits, step after
// step, also with equal logits and −Inf.
func TestSampleTop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vocab := rapid.SampledFrom([]int{1, 2, 7, 100, 1000}).Draw(t, "vocab")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "logits"), 0))
		coarse := rapid.Bool().Draw(t, "coarse") // many equal logits
		p := Params{
			Temp:          rapid.SampledFrom([]float64{0, .1, .8, 1.5}).Draw(t, "temp"),
			TopK:          rapid.SampledFrom([]int{0, 1, 2, 40, 64, 500}).Draw(t, "top-k"),
			TopP:          rapid.SampledFrom([]float64{0, .3, .95, 1}).Draw(t, "top-p"),
			MinP:          rapid.SampledFrom([]float64{0, .05, .5, 1}).Draw(t, "min-p"),
			RepeatPenalty: rapid.SampledFrom([]float64{1, 1.3}).Draw(t, "repeat-penalty"),
			RepeatLast:    rapid.IntRange(0, 2).Draw(t, "repeat-last"),
			Seed:          7,
		}
		all, few := mustNew(t, p, vocab), mustNew(t, p, vocab)
		k := few.TopKNeeded()
		if penalized := p.RepeatPenalty != 1 && p.RepeatLast > 0; (k == 0) != (penalized || all.topK == vocab) {
			t.Fatalf("%d logits are enough", k)
		}
		if k == 0 {
			return
		}
		k = min(vocab, k+rapid.IntRange(0, 3).Draw(t, "more"))
		for step := range 8 {
			logits := make([]float32, vocab)
			for i := range logits {
				logits[i] = float32(rng.NormFloat64() * 5)
				if coarse {
					logits[i] = float32(math.Round(float64(logits[i])))
				}
				if rng.IntN(3) == 0 {
					logits[i] = float32(math.Inf(-1))
				}
			}
			for _, i := range rng.Perm(vocab)[:k] {
				logits[i] = 1 + float32(rng.IntN(3))
			}
			var ids []int32
			for i, l := range logits {
				if !math.IsInf(float64(l), -1) {
					ids = append(ids, int32(i))
				}
			}
			slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
			ids = ids[:min(k, len(ids))]
			greatest := make([]float32, len(ids))
			for i, id := range ids {
				greatest[i] = logits[id]
			}
			if len(ids) == 1 {
				greatest = greatest[:rng.IntN(2)]
			}
			want, err := all.Sample(step, logits)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := few.SampleTop(step, ids, greatest); err != nil || got != want {
				t.Fatalf("step %d: token %d (%v) from the %d greatest, %d from all", step, got, err, len(ids), want)
			}
		}
	})
}

func mustNew(t rapid.TB, p Params, vocab int) *Sampler {
	s, err := New(p, vocab)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSampleTopRefuses(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	with := func(set func(*Params)) *Sampler { p := Default(); p.TopK = 2; set(&p); return newSampler(t, p, 100) }
	two, one := with(func(*Params) {}), with(func(p *Params) { p.TopK = 1 })
	for _, c := range []struct {
		s      *Sampler
		ids    []int32
		logits []float32
		want   string // nothing: it is taken
	}{
		{two, []int32{2, 1}, []float32{4, 3}, ""},
		{two, []int32{1, 2, 3}, []float32{4, 4, 3}, ""},
		{one, []int32{99}, nil, ""},
		{two, nil, nil, "at least one"},
		{two, []int32{1, 2}, nil, "2 tokens and 0 logits"},
		{two, []int32{1, 2}, []float32{3}, "2 tokens and 1 logits"},
		{two, []int32{1}, []float32{3, 4}, "1 tokens and 2 logits"},
		{two, []int32{1}, []float32{3}, "1 greatest logits, expected 2"},
		{two, []int32{2, 1}, []float32{3, 3}, "lowest id"},
		{two, []int32{1, 1}, []float32{3, 3}, "lowest id"},
		{two, []int32{1, 2}, []float32{3, 4}, "greatest first"},
		{two, []int32{1, 2}, []float32{nan, 4}, "finite"},
		{two, []int32{1, 2}, []float32{4, nan}, "finite"},
		{two, []int32{1, 2}, []float32{inf, 4}, "finite"},
		{two, []int32{1, 2}, []float32{4, -inf}, "finite"},
		{two, []int32{1, 100}, []float32{4, 3}, "token id 100"},
		{one, []int32{700}, nil, "token id 700"},
		{one, []int32{-1}, nil, "token id -1"},
		{with(func(p *Params) { p.RepeatPenalty = 1.5 }), []int32{1, 2}, []float32{4, 3}, "expected 100 of 100"},
		{with(func(p *Params) { p.TopK = 0 }), []int32{1, 2}, []float32{4, 3}, "expected 100 of 100"},
	} {
		_, err := c.s.SampleTop(3, c.ids, c.logits)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), "step 3") || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, %v: error %v, expected %q", c.ids, c.logits, err, c.want)
		}
	}
}
