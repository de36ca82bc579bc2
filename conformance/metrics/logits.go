package metrics

import (
	"math"
	"slices"
)

// KL returns the Kullback-Leibler divergence KL(p‖q), in nats, of the token distributions of two
// rows of logits of the same length. It is NaN if a row has NaN or +Inf, or only −Inf. It is
// infinite if q excludes a token that p does not.
func KL[A, B Float](p []A, q []B) float64 {
	lp, lq := logSum(p), logSum(q)
	if math.IsNaN(lp) || math.IsNaN(lq) {
		return math.NaN()
	}
	kl := 0.0
	for i := range p {
		x := float64(p[i]) - lp
		if w := math.Exp(x); w > 0 { // avoids 0 · ∞
			kl += w * (x - (float64(q[i]) - lq))
		}
	}
	return max(kl, 0) // rounding may give −1e-17
}

// logSum returns ln Σ exp x.
func logSum[T Float](x []T) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	top, sum := float64(slices.Max(x)), 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	return top + math.Log(sum)
}

// Top returns the index of the largest logit, the first among equals, and its margin over the
// second. With a single logit the margin is infinite.
func Top[T Float](logits []T) (best int, margin float64) {
	for i, x := range logits {
		if x > logits[best] {
			best = i
		}
	}
	second := math.Inf(-1)
	for i, x := range logits {
		if i != best {
			second = max(second, float64(x))
		}
	}
	return best, float64(logits[best]) - second
}

// Logits summarizes how the logits of some positions agree.
type Logits struct {
	Positions int
	SumKL     float64 // nats
	MaxKL     float64
	Worst     int // the position of MaxKL
	SameTop   int // positions with the same best token
}

// Add compares the logits of the next position. p are the reference. A divergence of NaN counts as
// infinite.
func (l *Logits) Add(p, q []float32) {
	kl := KL(p, q)
	if math.IsNaN(kl) {
		kl = math.Inf(1)
	}
	if kl > l.MaxKL {
		l.MaxKL, l.Worst = kl, l.Positions
	}
	l.SumKL += kl
	a, _ := Top(p)
	b, _ := Top(q)
	if a == b {
		l.SameTop++
	}
	l.Positions++
}

// MeanKL returns the mean divergence in nats per position, or 0 without positions.
func (l *Logits) MeanKL() float64 { return l.SumKL / float64(max(l.Positions, 1)) }

// Top1 returns the fraction of positions with the same best token, or 1 without positions.
func (l *Logits) Top1() float64 {
	if l.Positions == 0 {
		return 1
	}
	return float64(l.SameTop) / float64(l.Positions)
}
