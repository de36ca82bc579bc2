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

	// The parts of a norm, see norm.go, and ref.QuantiseQ8x2, ref.QuantiseQ8Row and ref.RoundBF16,
	// whose bits each set gives.
	sumSquares   func(x []float32) float64
	normalize    func(y, x, w []float32, scale float64)
	normalizeAdd func(y, x, d, w []float32, scale float64)
	quantize     map[string]func(row []byte, x []float32) // by the formats of a planar
	round        func(row []byte, x []float32)

	// The sines of a position, the nearest float32 but for close calls, and the rotation of a head by
	// them, see rope.go, whose bits each set gives.
	sines        func(cos, sin []float32, speed []float64, pos, magnitude float64)
	rotateHalves func(x, y, cos, sin []float32)
	rotatePairs  func(x, cos, sin []float32)

	// The numbers of a page of attention, see attention_loops.go.
	scores     func(scores, x, tile []float32, n int)
	weigh      func(scores, top, sum, shrink []float32, x, y int, scale float32)
	accumulate func(acc, weights, shrink, tile []float32, n, x, y int)

	// divide sets dst to src divided by a number.
	divide func(dst, src []float32, by float32)

	// The same bits from float16 tiles, for few queries; nil where that is not faster.
	scoresHalf     func(scores, x []float32, tile []uint16, n int)
	accumulateHalf func(acc, weights, shrink []float32, tile []uint16, n, x, y int)

	// fetch asks for memory that will soon be read; nil where that cannot be.
	fetch func(data []byte)

	// widen sets dst to the values of float16 numbers, widenE4M3 to those of E4M3, narrow to the nearest
	// of float16; q8Keys and q8Values to those of whole groups of keys and of blocks of values, as q8Parts
	// tells.
	widen     func(dst []float32, src []uint16)
	widenE4M3 func(dst []float32, src []uint8)
	narrow    func(dst []uint16, src []float32)
	q8Keys    func(tile []float32, part []byte, groups int)
	q8Values  func(row []float32, blocks []byte, n int)
}

// A gate sets dst to act(x) ⊙ up; dst may be x.
type gate func(dst, x, up []float32)

// vectorSets are the sets of inner loops; later ones are better.
var vectorSets = append([]*vectors{&portable}, assemblyVectors...)

var portable = vectors{
	isa: "portable",
	gates: map[string]gate{
		"silu":      multiplied(ref.SiLU),
		"gelu_tanh": multiplied(ref.GELUTanh),
		"gelu_erf":  multiplied(ref.GELUErf),
	},
	sumSquares:   portableSumSquares,
	normalize:    portableNormalize,
	normalizeAdd: portableNormalizeAdd,
	quantize:     map[string]func(row []byte, x []float32){"q8x2": ref.QuantiseQ8x2, "q8": ref.QuantiseQ8Row},
	round:        ref.RoundBF16,
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
