package sample

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// ErrNotFinite reports a logit that is NaN or infinite.
var ErrNotFinite = errors.New("expected a finite number: the weights or a kernel are broken")

// candidate is a token that no filter has dropped. Weights are relative: a probability is a weight over the sum.
type candidate struct {
	logit  float32
	id     int32
	weight float64
}

// before orders candidates: by descending weight, then by ascending id.
func (c candidate) before(d candidate) bool {
	return c.logit > d.logit || c.logit == d.logit && c.id < d.id
}

func sortByRank(cs []candidate) {
	slices.SortFunc(cs, func(a, b candidate) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
}

func total(cs []candidate) float64 {
	var sum float64
	for _, c := range cs {
		sum += c.weight
	}
	return sum
}

// filter runs all stages before the draw. Its result is never empty, sorted by id, and valid until
// the next call.
func (s *Sampler) filter(logits []float32) ([]candidate, error) {
	if len(logits) != s.vocab {
		return nil, fmt.Errorf("%d logits, expected one for each of the vocabulary's %d tokens", len(logits), s.vocab)
	}
	left, err := s.top(s.penalize(logits))
	if err != nil {
		return nil, err
	}
	return s.weighed(left), nil
}

// weighed runs the stages after top-k.
func (s *Sampler) weighed(left []candidate) []candidate {
	most := left[0].logit
	for _, c := range left {
		most = max(most, c.logit)
	}
	weigh(left, most, 1)
	if s.topP < 1 {
		left = s.cut(left, float64(s.topP*total(left)))
	}
	if s.minP > 0 { // the most likely candidate has weight 1 and always stays
		left = slices.DeleteFunc(left, func(c candidate) bool { return c.weight < s.minP })
	}
	if s.temp != 1 {
		weigh(left, most, s.temp)
	}
	return left
}

// penalize returns the logits with the penalty applied once to each recent token. A finite logit
// stays finite, so any other comes from the model.
func (s *Sampler) penalize(logits []float32) []float32 {
	if len(s.recent.ids) == 0 {
		return logits
	}
	copy(s.penalized, logits)
	for _, id := range s.recent.ids {
		l := float64(logits[id])
		if !finite(l) {
			continue
		}
		if l > 0 {
			l /= s.penalty
		} else {
			l *= s.penalty
		}
		s.penalized[id] = float32(min(max(l, -math.MaxFloat32), math.MaxFloat32))
	}
	return s.penalized
}

// top returns the topK candidates of highest rank, each of weight 1.
func (s *Sampler) top(logits []float32) ([]candidate, error) {
	left := s.candidates[:0]
	// A logit that is not above the bar is dropped. The bar is −Inf at first, then the lowest logit
	// of topK candidates, which also precedes an equal logit with a higher id. NaN passes every
	// bar, so only the passing logits are checked.
	bar := float32(math.Inf(-1))
	for id := 0; id < len(logits); id++ {
		if id+8 <= len(logits) && noneAbove(bar, (*[8]float32)(logits[id:])) {
			id += 8 - 1
			continue
		}
		l := logits[id]
		if l <= bar {
			continue
		}
		if !(l <= math.MaxFloat32) {
			return nil, fmt.Errorf("the logit of token %d is %v, %w", id, l, ErrNotFinite)
		}
		if len(left) == cap(left) {
			left = s.cut(left, float64(s.topK))
			bar = lowest(left)
		}
		left = append(left, candidate{l, int32(id), 1})
	}
	if len(left) == 0 {
		return nil, fmt.Errorf("the logits of all %d tokens are -Inf, expected a finite number for at least one", len(logits))
	}
	if len(left) > s.topK {
		left = s.cut(left, float64(s.topK))
	}
	return left, nil
}

// noneAbove reports whether all of eight logits are at most bar; it is false if one is NaN. It
// skips nearly all of a vocabulary, in a third of the time of a loop over single logits.
func noneAbove(bar float32, l *[8]float32) bool {
	return l[0] <= bar && l[1] <= bar && l[2] <= bar && l[3] <= bar &&
		l[4] <= bar && l[5] <= bar && l[6] <= bar && l[7] <= bar
}

func lowest(cs []candidate) float32 {
	l := cs[0].logit
	for _, c := range cs {
		l = min(l, c.logit)
	}
	return l
}

// weigh sets the weight of each candidate to exp((logit − most) / temp).
func weigh(cs []candidate, most float32, temp float64) {
	for i := range cs {
		cs[i].weight = expNeg((float64(cs[i].logit) - float64(most)) / temp)
	}
}

// cut keeps the smallest number of first-ranked candidates whose weights sum to at least the
// target, and at least one. They stay sorted by id. The largest weight must be 1.
func (s *Sampler) cut(cs []candidate, target float64) []candidate {
	// Let light be (total − target) / n. The candidates lighter than that weigh less than total −
	// target together, so the others reach the target. This drops most of a large vocabulary before
	// the selection. The heaviest always stays, since light is at most 1.
	light := (total(cs) - target) / float64(len(cs))
	selection := s.selection[:0]
	for _, c := range cs {
		if c.weight >= light {
			selection = append(selection, c)
		}
	}
	last := lastNeeded(selection, target)
	return slices.DeleteFunc(cs, func(c candidate) bool { return last.before(c) })
}

// lastNeeded returns the candidate at which the sum of weights in order of rank reaches the target,
// or the last one. It permutes cs. It is quickselect (Hoare, 1961) by weight instead of by number
// of elements: linear on average, with pseudo-random pivots that are the same in every call.
func lastNeeded(cs []candidate, target float64) candidate {
	var pivots rand.PCG
	for {
		at := partition(cs, int(pivots.Uint64()%uint64(len(cs))))
		above := total(cs[:at])
		switch through := above + cs[at].weight; {
		case at > 0 && above >= target:
			cs = cs[:at]
		case through >= target || at == len(cs)-1:
			return cs[at]
		default:
			target -= through
			cs = cs[at+1:]
		}
	}
}

// partition moves the candidates that rank before cs[pivot] to its left, the others to its right,
// and returns its new index.
func partition(cs []candidate, pivot int) int {
	end := len(cs) - 1
	p := cs[pivot]
	cs[pivot] = cs[end]
	at := 0
	for i, c := range cs[:end] {
		if c.before(p) {
			cs[i], cs[at] = cs[at], c
			at++
		}
	}
	cs[end], cs[at] = cs[at], p
	return at
}
