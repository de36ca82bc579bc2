package kernel

import (
	"slices"

	"pesti/gguf/numfmt"
	"pesti/ops/ref"
)

// vectors has the inner loops of all kernels other than products, for one instruction set. Kernels are
// written once, on top of these. Results of the portable set may differ from those in assembly in their last bits, unless
// stated otherwise; sets in assembly agree. In no set does a result depend on the number of elements in a call.
type vectors struct {
	isa   string
	gates map[string]gate // by their names in plans

	// The parts of a norm, see norm.go, and numfmt.QuantizeQ8x2, numfmt.QuantizeQ8 and numfmt.EncodeBF16.
	// Every set gives the same bits.
	sumSquares   func(x []float32) float64
	normalize    func(y, x, w []float32, scale float64)
	normalizeAdd func(y, x, d, w []float32, scale float64)
	quantize     map[string]func(row []byte, x []float32) // by the formats of a planar
	round        func(row []byte, x []float32)

	// The sines of a position, correctly rounded except close to ties, and the rotation of a head, see
	// rope.go. Every set gives the same bits in rotations.
	sines        func(cos, sin []float32, speed []float64, pos, magnitude float64)
	rotateHalves func(x, y, cos, sin []float32)
	rotatePairs  func(x, cos, sin []float32)

	// The inner loops of attention over a page, see attention_loops.go.
	scores     func(scores, x, tile []float32, n int)
	weigh      func(scores, top, sum, shrink []float32, x, y int, scale float32)
	accumulate func(acc, weights, shrink, tile []float32, n, x, y int)

	// divide sets dst to src / by.
	divide func(dst, src []float32, by float32)

	// The same loops for float16 tiles and few queries, with the same bits; nil if they are not faster.
	scoresHalf     func(scores, x []float32, tile []uint16, n int)
	accumulateHalf func(acc, weights, shrink []float32, tile []uint16, n, x, y int)

	// prefetch prefetches data; nil if the set has no such instruction.
	prefetch func(data []byte)

	// Conversions: float16 to float32, E4M3 to float32, float32 to the nearest float16, and whole groups
	// of q8_0 keys and blocks of q8_0 values, see q8Cache, to float32.
	widen     func(dst []float32, src []uint16)
	widenE4M3 func(dst []float32, src []uint8)
	narrow    func(dst []uint16, src []float32)
	q8Keys    func(tile []float32, part []byte, groups int)
	q8Values  func(row []float32, blocks []byte, n int)
}

// A gate sets dst to act(x) ⊙ up; dst may be x.
type gate func(dst, x, up []float32)

// vectorSets are the sets of inner loops, the best one last.
var vectorSets = append([]*vectors{&portable}, assemblyVectors...)

var portable = vectors{
	isa: "portable",
	gates: map[string]gate{
		"silu":      actThenMul(ref.SiLU),
		"gelu_tanh": actThenMul(ref.GELUTanh),
		"gelu_erf":  actThenMul(ref.GELUErf),
	},
	sumSquares:   portableSumSquares,
	normalize:    portableNormalize,
	normalizeAdd: portableNormalizeAdd,
	quantize:     map[string]func(row []byte, x []float32){"q8x2": numfmt.QuantizeQ8x2, "q8": numfmt.QuantizeQ8},
	round:        numfmt.EncodeBF16,
	sines:        portableSines,
	rotateHalves: portableRotateHalves,
	rotatePairs:  portableRotatePairs,
	scores:       portableScores,
	weigh:        portableWeigh,
	accumulate:   portableAccumulate,
	divide:       portableDivide,
	widen:        portableWiden,
	widenE4M3:    portableWidenE4M3,
	narrow:       portableNarrow,
	q8Keys:       portableQ8Keys,
	q8Values:     portableQ8Values,
}

// vectors returns the best set of inner loops whose instruction set may be used.
func (b *binder) vectors() *vectors {
	best := &portable
	for _, v := range vectorSets {
		if slices.Contains(b.isas, v.isa) {
			best = v
		}
	}
	return best
}
