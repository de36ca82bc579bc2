package frontend

import (
	"fmt"
	"math"
	"strings"
)

// A Rope says how RoPE turns the heads of a layer; the op rope has the formula.
type Rope struct {
	Base float64 // θ base
	Step float64 // factor on positions, 1 for none
	// With YaRN, Step sets in between these pairs; both are 0 where it is for all alike.
	RampLow, RampHigh float64
	Magnitude         float64 // factor on what is turned, 1 for none
}

// A scaling is one way to stretch RoPE over a longer context: a value of rope.scaling.type.
type scaling struct {
	name string
	read func(r *reader, p *Params, rope *Rope)
}

// scalings is the table of them. The frequencies of Llama 3 are not here: GGUF files hold them as
// the tensor rope_freqs.weight.
var scalings = []scaling{
	{"none", func(*reader, *Params, *Rope) {}},
	{"linear", linear},
	{"yarn", yarn},
}

// readRope reads how RoPE turns where a layer does not say otherwise. A factor without a type
// means linear scaling.
func readRope(r *reader, p *Params) Rope {
	rope := Rope{
		Base:      r.base("rope.freq_base", 10000),
		Step:      1,
		Magnitude: r.magnitude(),
	}
	kind := "linear"
	if r.f.Has(r.key("rope.scaling.type")) {
		var err error
		kind, err = r.f.Str(r.key("rope.scaling.type"))
		r.keep(err)
	}
	var names []string
	for _, s := range scalings {
		if s.name == kind {
			s.read(r, p, &rope)
			return rope
		}
		names = append(names, s.name)
	}
	r.fail("rope.scaling.type", "is %q, expected one of %s", kind, strings.Join(names, ", "))
	return rope
}

// base reads a θ base. Below 1 pairs would turn the faster the later they come.
func (r *reader) base(suffix string, absent float64) float64 {
	return r.within(suffix, 1, 1e18, absent)
}

// magnitude reads the factor on what is turned, of all scalings.
func (r *reader) magnitude() float64 { return r.within("rope.scaling.attn_factor", 0.01, 100, 1) }

// stretch reads the factor on the context.
func (r *reader) stretch(suffix string, absent float64) float64 {
	return r.within(suffix, 1e-6, 1e6, absent)
}

func linear(r *reader, _ *Params, rope *Rope) {
	older := r.stretch("rope.scale_linear", 1)
	rope.Step = 1 / r.stretch("rope.scaling.factor", older)
}

// yarn is Peng et al. 2023, arXiv:2309.00071: pairs that turn often within the original context
// keep their speed, those that turn less than once are slowed by the factor, and heads grow by
// 0.1·ln(factor) + 1 (section 3.4). Between the two, the share of the slow speed grows with the
// pair and starts and ends at whole pairs, as in the authors' program, which models were
// trained with; the paper's own ramp (section 3.2) grows with the number of turns.
func yarn(r *reader, p *Params, rope *Rope) {
	factor := r.stretch("rope.scaling.factor", 0)
	context := r.optUint("rope.scaling.original_context_length", 1<<31, p.Context)
	fast := r.float("rope.scaling.yarn_beta_fast", 32)
	slow := r.float("rope.scaling.yarn_beta_slow", 1)
	if fast < slow {
		r.fail("rope.scaling.yarn_beta_fast", "is %v, expected at least the yarn_beta_slow of %v", fast, slow)
	}
	if rope.Base <= 1 {
		r.fail("rope.freq_base", "is %v, expected a number above 1 with the scaling yarn", rope.Base)
	}
	// The pair that turns so many times within the context.
	pair := func(turns float64) float64 {
		return float64(p.Rot) * math.Log(float64(context)/(2*math.Pi*turns)) / (2 * math.Log(rope.Base))
	}
	rope.Step = 1 / factor
	rope.RampLow = min(max(math.Floor(pair(fast)), 0), float64(p.Rot-1))
	rope.RampHigh = min(math.Ceil(pair(slow)), float64(p.Rot-1))
	rope.RampHigh = max(rope.RampHigh, rope.RampLow+0.001) // a step where nothing is between
	rope.Magnitude *= max(0.1*math.Log(factor)+1, 1)
}

// checkDivisors reads the divisors of the pairs' speeds, where the file has them. One that is
// infinite lets its pair stand still; one near 0 turns it so fast that no angle is left.
func (m *Model) checkDivisors() error {
	const least = 1e-6
	t, ok := m.File.Tensor(ropeFreqs)
	if !ok {
		return nil
	}
	divisors, err := m.File.Values(t, 0, t.Rows())
	if err != nil {
		return err
	}
	for i, d := range divisors {
		if !(d >= least) {
			return fmt.Errorf("%s: tensor %s: element %d is %v, expected at least %v", m.File.Path, ropeFreqs, i, d, float32(least))
		}
	}
	return nil
}
