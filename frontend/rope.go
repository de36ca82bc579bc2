package frontend

import (
	"fmt"
	"math"
	"strings"
)

// A Rope holds a layer's parameters of rotary position embedding. The op rope defines the formula.
type Rope struct {
	Base float64 // θ base
	Step float64 // factor on positions; 1 without scaling
	// With YaRN, pairs below RampLow are not scaled, those above RampHigh are scaled by Step, and the
	// share of Step grows linearly between. Both are 0 if Step applies to all pairs.
	RampLow, RampHigh float64
	Magnitude         float64 // factor on the rotated elements; 1 for none
}

// A scaling is a method of extending RoPE to a longer context: a value of rope.scaling.type.
type scaling struct {
	name string
	read func(r *reader, p *Params, rope *Rope)
}

// scalings is the table of methods. That of Llama 3 is not here: GGUF files hold its frequency
// divisors in the tensor rope_freqs.weight.
var scalings = []scaling{
	{"none", func(*reader, *Params, *Rope) {}},
	{"linear", linear},
	{"yarn", yarn},
}

// readRope reads the model's RoPE parameters, which an architecture may change for some layers. A
// factor without a type means linear scaling.
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

// base reads a θ base. Below 1, later pairs would rotate faster than earlier ones.
func (r *reader) base(suffix string, absent float64) float64 {
	return r.within(suffix, 1, 1e18, absent)
}

// magnitude reads the factor on the rotated elements, a key of all scalings.
func (r *reader) magnitude() float64 { return r.within("rope.scaling.attn_factor", 0.01, 100, 1) }

// stretch reads the factor by which the context is extended.
func (r *reader) stretch(suffix string, absent float64) float64 {
	return r.within(suffix, 1e-6, 1e6, absent)
}

func linear(r *reader, _ *Params, rope *Rope) {
	key := "rope.scaling.factor"
	if !r.f.Has(r.key(key)) {
		key = "rope.scale_linear" // its older name
	}
	if !r.zero(key) { // 0 is none
		rope.Step = 1 / r.stretch(key, 1)
	}
}

// yarn is the method of Peng et al. 2023, arXiv:2309.00071. Pairs that rotate many times within the
// original context keep their frequency, and pairs that rotate less than once have it divided by
// the factor. Rotated elements are multiplied by 0.1·ln(factor) + 1 (section 3.4). For the pairs
// between, the share of the divided frequency grows linearly with the index of the pair, between
// integer indices, as in the authors' code, with which models were trained. The ramp in the paper
// (section 3.2) grows with the number of rotations instead.
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
	// pair returns the index of the pair that rotates the given number of times within the context.
	pair := func(turns float64) float64 {
		return float64(p.Rot) * math.Log(float64(context)/(2*math.Pi*turns)) / (2 * math.Log(rope.Base))
	}
	rope.Step = 1 / factor
	rope.RampLow = min(max(math.Floor(pair(fast)), 0), float64(p.Rot-1))
	rope.RampHigh = min(math.Ceil(pair(slow)), float64(p.Rot-1))
	rope.RampHigh = max(rope.RampHigh, rope.RampLow+0.001) // avoids a division by 0 where no pair is between
	rope.Magnitude *= max(0.1*math.Log(factor)+1, 1)
}

// checkDivisors reads the divisors of the pairs' frequencies, if the file has them. An infinite divisor
// stops the rotation of its pair. One near 0 is refused: angles would lose all precision.
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
