// Package sample draws the next token from a row of logits.
//
// The stages run in a fixed order, each on the candidates that the stage before kept:
//
//	repeat penalty → top-k → top-p → min-p → temperature → draw
//
// The package contains the filters, the generator of random numbers and the window of recent
// tokens. It imports no package of this module, and works on logits and token ids alone.
//
// A seed gives the same tokens for the same logits on every platform: the generator is PCG-DXSM,
// all arithmetic is float64 without fused operations, the exponential is this package's own, and
// candidates stay sorted by id, so that a sum does not depend on how a filter found them. Filters
// select in expected linear time, without sorting.
package sample

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Params are the settings of a Sampler.
type Params struct {
	Temp          float64 // divides the logits; 0: take the most likely token, the lowest id among equals
	TopK          int     // keep the K most likely tokens; 0: all
	TopP          float64 // keep the smallest set of most likely tokens with at least this total probability (Holtzman et al., 2020); 1: all
	MinP          float64 // keep tokens with at least this fraction of the highest probability (Nguyen et al., 2024); 0: all
	RepeatPenalty float64 // divides positive and multiplies negative logits of recent tokens (Keskar et al., 2019); 0.01 to 100; 1: off
	RepeatLast    int     // number of recent tokens
	Seed          int64   // RandomSeed: a new seed in each run
}

// RandomSeed, as a seed, requests a new seed in each run.
const RandomSeed = -1

// Default returns the default settings.
func Default() Params {
	return Params{Temp: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1, RepeatLast: 64, Seed: RandomSeed}
}

// maxRepeatLast bounds the window, which is allocated at once.
const maxRepeatLast = 1 << 20

// maxPenalty bounds the repeat penalty in both directions. Logits are below a few tens, so a larger
// penalty would exclude or force tokens, or make logits infinite, which then looks like a fault of
// the model.
const maxPenalty = 100

func (p Params) validate() error {
	for _, f := range []struct {
		field string
		value any
		ok    bool
		want  string
	}{
		{"Temp", p.Temp, 0 <= p.Temp && finite(p.Temp), "0 or more"},
		{"TopK", p.TopK, 0 <= p.TopK, "0 or more"},
		{"TopP", p.TopP, 0 <= p.TopP && p.TopP <= 1, "0 to 1"},
		{"MinP", p.MinP, 0 <= p.MinP && p.MinP <= 1, "0 to 1"},
		{"RepeatPenalty", p.RepeatPenalty, 1.0/maxPenalty <= p.RepeatPenalty && p.RepeatPenalty <= maxPenalty, fmt.Sprintf("%v to %v; 1 switches it off", 1.0/maxPenalty, maxPenalty)},
		{"RepeatLast", p.RepeatLast, 0 <= p.RepeatLast && p.RepeatLast <= maxRepeatLast, fmt.Sprintf("0 to %d", maxRepeatLast)},
	} {
		if !f.ok {
			return &ParamError{f.field, f.value, f.want}
		}
	}
	return nil
}

// A ParamError reports a field of Params with an invalid value.
type ParamError struct {
	Field string
	Value any
	Want  string
}

func (e *ParamError) Error() string { return e.Field + " " + e.Text() }

// Text returns the error without the field's name.
func (e *ParamError) Text() string { return fmt.Sprintf("%v: expected %s", e.Value, e.Want) }

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Sampler draws tokens for one sequence. It is not safe for concurrent use.
type Sampler struct {
	temp, topP, minP, penalty float64
	topK                      int // 1 to vocab
	vocab                     int

	rng    *rand.PCG
	recent window

	penalized  []float32   // logits after the repeat penalty
	candidates []candidate // remaining candidates, sorted by id
	selection  []candidate // copy that a filter permutes to find its cut
}

// New returns a sampler for rows of vocab logits. An error about a parameter is a *ParamError.
func New(p Params, vocab int) (*Sampler, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	if vocab < 1 || vocab > math.MaxInt32 {
		return nil, fmt.Errorf("vocabulary of %d tokens, expected 1 to %d", vocab, math.MaxInt32)
	}
	s := &Sampler{temp: p.Temp, topP: p.TopP, minP: p.MinP, penalty: p.RepeatPenalty, topK: p.TopK, vocab: vocab}
	if s.topK == 0 || s.topK > vocab {
		s.topK = vocab
	}
	if s.temp == 0 { // keep only the most likely token
		s.temp, s.topK = 1, 1
	}
	seed := uint64(p.Seed)
	if p.Seed == RandomSeed {
		seed = rand.Uint64()
	}
	s.rng = rand.NewPCG(seed, 0)
	if s.penalty != 1 && p.RepeatLast > 0 {
		s.recent = newWindow(p.RepeatLast)
		s.penalized = make([]float32, vocab)
	}
	// Collect up to twice as many candidates as top-k keeps before each cut, so that a cut is worth
	// its cost.
	room := min(s.topK+max(s.topK, 64), vocab)
	s.candidates = make([]candidate, 0, room)
	s.selection = make([]candidate, 0, room)
	return s, nil
}

// Sample returns the id of the next token. It allocates nothing. It does not change the logits, one
// per token of the vocabulary; −Inf excludes a token. NaN, +Inf, a row of only −Inf and a row of
// another length are errors that name the step.
func (s *Sampler) Sample(step int, logits []float32) (int32, error) {
	left, err := s.filter(logits)
	if err != nil {
		return 0, fmt.Errorf("step %d: %w", step, err)
	}
	return s.draw(left), nil
}

// draw draws one of the candidates.
func (s *Sampler) draw(left []candidate) int32 {
	point := float64(s.rng.Uint64()>>11) / (1 << 53) * total(left)
	var sum float64
	var id int32
	for _, c := range left {
		if c.weight > 0 { // otherwise rounding in point could select a last candidate of weight 0
			id = c.id
		}
		sum += c.weight
		if point < sum {
			break
		}
	}
	return id
}

// TopKNeeded returns how many of the greatest logits of a row SampleTop needs, or 0 if Sample needs
// all: with a repeat penalty, or without top-k.
func (s *Sampler) TopKNeeded() int {
	if cap(s.recent.ids) > 0 || s.topK == s.vocab {
		return 0
	}
	return s.topK
}

// SampleTop returns the same token as Sample, with the same state afterwards, from only the
// greatest logits and their ids: at least TopKNeeded of them, all finite, by descending logit, then
// ascending id. For a single token the logit may be left out. It is an error if TopKNeeded returns
// 0.
func (s *Sampler) SampleTop(step int, ids []int32, logits []float32) (int32, error) {
	if len(ids) == 0 || len(logits) != len(ids) && (len(ids) > 1 || len(logits) > 0) {
		return 0, fmt.Errorf("step %d: %d tokens and %d logits, expected as many of each, at least one", step, len(ids), len(logits))
	}
	if enough := s.TopKNeeded(); enough == 0 || len(ids) < enough {
		return 0, fmt.Errorf("step %d: the %d greatest logits, expected %d of %d", step, len(ids), cmp.Or(enough, s.vocab), s.vocab)
	}
	for i, id := range ids {
		if id < 0 || int(id) >= s.vocab {
			return 0, fmt.Errorf("step %d: token id %d, expected 0 to %d, the end of the vocabulary", step, id, s.vocab-1)
		}
		if len(logits) == 0 {
			break
		}
		l := logits[i]
		if !finite(float64(l)) || i > 0 && (l > logits[i-1] || l == logits[i-1] && id <= ids[i-1]) {
			return 0, fmt.Errorf("step %d: logit %v of token %d, expected finite ones, the greatest first, of equal ones the lowest id", step, l, id)
		}
	}
	left := s.candidates[:0]
	for i, id := range ids[:s.topK] {
		c := candidate{id: id, weight: 1}
		if len(logits) > 0 {
			c.logit = logits[i]
		}
		left = append(left, c)
	}
	slices.SortFunc(left, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	return s.draw(s.weighed(left)), nil
}

// Accept adds a token of the prompt or of Sample to the window of the repeat penalty. Ids outside
// the vocabulary are ignored.
func (s *Sampler) Accept(id int32) {
	if 0 <= id && int(id) < s.vocab {
		s.recent.add(id)
	}
}

// Probs returns the ids that Sample could draw from these logits, by descending probability, then
// ascending id, and the probability of each. It does not change the sampler. Its errors are
// Sample's, without the step.
func (s *Sampler) Probs(logits []float32) ([]int32, []float32, error) {
	left, err := s.filter(logits)
	if err != nil {
		return nil, nil, err
	}
	sum := total(left)
	sortByRank(left)
	ids := make([]int32, len(left))
	probs := make([]float32, len(left))
	for i, c := range left {
		ids[i] = c.id
		probs[i] = float32(c.weight / sum)
	}
	return ids, probs, nil
}
