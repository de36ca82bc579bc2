// Package sample draws the next token from a row of logits.
//
// The stages run in a fixed order, each over what the one before left:
//
//	repeat penalty → top-k → top-p → min-p → temperature → draw
//
// The package owns the filters, the generator of random numbers and the window of recent tokens. It imports
// nothing of ours: it knows logits and token ids, no model and no text.
//
// A seed gives the same tokens for the same logits on every platform: the generator is PCG-DXSM, all arithmetic is
// float64 without fused operations, the exponential is our own, and candidates keep the order of their ids, so
// that a sum does not depend on how a filter found them. Nothing is ever sorted on the way to a token; filters
// select in expected linear time.
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
	Temp          float64 // divides the logits; 0 or less takes the most likely token, of equal ones the lowest id
	TopK          int     // keep the K most likely tokens; 0 or less: all
	TopP          float64 // keep the fewest most likely tokens that have at least this probability together (Holtzman et al., 2020); at least one; 1: all
	MinP          float64 // keep tokens at least this times as likely as the most likely one (Nguyen et al., 2024); at least one; 0: all
	RepeatPenalty float64 // divides positive and multiplies negative logits of recent tokens (Keskar et al., 2019); 0.01 to 100; 1: off
	RepeatLast    int     // how many tokens count as recent
	Seed          int64   // RandomSeed: another one in each run
}

// RandomSeed as a seed asks for a new one in each run.
const RandomSeed = -1

// Default returns the settings that hold where the user gives none.
func Default() Params {
	return Params{Temp: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1, RepeatLast: 64, Seed: RandomSeed}
}

// maxRepeatLast bounds the window, which is allocated whole.
const maxRepeatLast = 1 << 20

// maxPenalty bounds the repeat penalty in both directions. Logits are some tens, so that beyond it a token never
// comes, or always, and what does not come out of a division is the flag's doing and not the model's.
const maxPenalty = 100

func (p Params) validate() error {
	for _, f := range []struct {
		field string
		value any
		ok    bool
		want  string
	}{
		{"Temp", p.Temp, finite(p.Temp), "a finite number"},
		{"TopP", p.TopP, 0 <= p.TopP && p.TopP <= 1, "0 to 1"},
		{"MinP", p.MinP, 0 <= p.MinP && finite(p.MinP), "0 or more"},
		{"RepeatPenalty", p.RepeatPenalty, 1.0/maxPenalty <= p.RepeatPenalty && p.RepeatPenalty <= maxPenalty, fmt.Sprintf("%v to %v; 1 switches it off", 1.0/maxPenalty, maxPenalty)},
		{"RepeatLast", p.RepeatLast, 0 <= p.RepeatLast && p.RepeatLast <= maxRepeatLast, fmt.Sprintf("0 to %d", maxRepeatLast)},
	} {
		if !f.ok {
			return &ParamError{f.field, f.value, f.want}
		}
	}
	return nil
}

// A ParamError is about a field of Params that has a value which makes no sense.
type ParamError struct {
	Field string
	Value any
	Want  string
}

func (e *ParamError) Error() string { return e.Field + " " + e.Text() }

// Text is the error without the field.
func (e *ParamError) Text() string { return fmt.Sprintf("%v: expected %s", e.Value, e.Want) }

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Sampler draws tokens for one sequence. It is not safe for concurrent use.
type Sampler struct {
	temp, topP, minP, penalty float64
	topK                      int // 1 to vocab
	vocab                     int

	rng    *rand.PCG
	recent window

	penalised  []float32   // logits after the repeat penalty
	candidates []candidate // what is left, in order of ids
	selection  []candidate // what a filter permutes to find its cut
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
	if s.topK <= 0 || s.topK > vocab {
		s.topK = vocab
	}
	if s.temp <= 0 || s.minP > 1 { // both leave the most likely token alone
		s.temp, s.topK = 1, 1
	}
	seed := uint64(p.Seed)
	if p.Seed == RandomSeed {
		seed = rand.Uint64()
	}
	s.rng = rand.NewPCG(seed, 0)
	if s.penalty != 1 && p.RepeatLast > 0 {
		s.recent = newWindow(p.RepeatLast)
		s.penalised = make([]float32, vocab)
	}
	// Room to gather twice as many as top-k keeps, so that a cut pays for itself.
	room := min(s.topK+max(s.topK, 64), vocab)
	s.candidates = make([]candidate, 0, room)
	s.selection = make([]candidate, 0, room)
	return s, nil
}

// Sample returns the id of the next token. It allocates nothing. The logits, one per token of the vocabulary, are
// not changed; −Inf means that a token cannot come. NaN, +Inf, a row of nothing but −Inf and a row of another
// length are errors that name the step.
func (s *Sampler) Sample(step int, logits []float32) (int32, error) {
	left, err := s.filter(logits)
	if err != nil {
		return 0, fmt.Errorf("step %d: %w", step, err)
	}
	return s.draw(left), nil
}

// draw takes one of the candidates.
func (s *Sampler) draw(left []candidate) int32 {
	point := float64(s.rng.Uint64()>>11) / (1 << 53) * total(left)
	var sum float64
	var id int32
	for _, c := range left {
		if c.weight > 0 { // else rounding in point could let the last candidate come though it cannot
			id = c.id
		}
		sum += c.weight
		if point < sum {
			break
		}
	}
	return id
}

// TopKNeeded returns how many of the greatest logits of a row SampleTop needs, 0 where it needs all of them: with a repeat penalty, or without top-k.
func (s *Sampler) TopKNeeded() int {
	if cap(s.recent.ids) > 0 || s.topK == s.vocab {
		return 0
	}
	return s.topK
}

// SampleTop is Sample, of which it has the token and the state after it, but of the greatest logits alone and
// the ids of their tokens, the greatest first, of equal ones the lowest id: at least as many as TopKNeeded says,
// all finite. Of one token the logit may be left out. Where TopKNeeded says 0 it is an error.
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

// Accept tells the sampler that a token was taken, from the prompt or from Sample, for the repeat penalty. Ids
// outside the vocabulary are ignored.
func (s *Sampler) Accept(id int32) {
	if 0 <= id && int(id) < s.vocab {
		s.recent.add(id)
	}
}

// Probs returns the ids that Sample could draw from these logits, the most likely first, of equal ones the lowest
// id, and the probability of each. It leaves the sampler as it was. Errors are those of Sample, without the step.
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
