package kernel

import (
	"slices"

	"pesti/ops/ref"
)

// A vectors is the inner loops that kernels other than products are made of, for one instruction
// set. Kernels are written once, on top of these. Sets may differ in the last bits of what they
// give, but none lets a result depend on how many elements are computed with it.
type vectors struct {
	isa   string
	gates map[string]gate // by the plan's names
}

// A gate sets dst to act(x) ⊙ up; dst may be x.
type gate func(dst, x, up []float32)

// vectorSets are the sets of inner loops; later ones are better.
var vectorSets = []*vectors{&portable}

var portable = vectors{
	isa: "portable",
	gates: map[string]gate{
		"silu":      multiplied(ref.SiLU),
		"gelu_tanh": multiplied(ref.GELUTanh),
		"gelu_erf":  multiplied(ref.GELUErf),
	},
}

// vectors returns the best inner loops that may be used.
func (b *binder) vectors() *vectors {
	best := &portable
	for _, v := range vectorSets {
		if slices.Contains(b.isas, v.isa) {
			best = v
		}
	}
	return best
}
