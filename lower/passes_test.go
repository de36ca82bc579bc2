package lower

import (
	"slices"
	"testing"

	"pesti/graph/pass"
	"pesti/graph/pass/passtest"
	"pesti/lower/cpu"
	"pesti/lower/cuda"
	"pesti/lower/target"
)

// fastPrefill is the target of the golden files.
var fastPrefill = deviceTargets{{target: cpu.Target(), program: cpu.Programs(target.Bounds{Ubatch: 512, Sequences: 1})[2], rounded: &cpu.Target().Integers[0]}}

// fastDecode is the target of the golden files of passes that only programs with a prologue run.
var fastDecode = deviceTargets{{target: cuda.Target(), program: cuda.Target().Programs(target.Bounds{Ubatch: 512, Sequences: 1})[0], rounded: &cuda.Target().Integers[0]}}

// q8x2Step is the largest rounding error of an activation relative to its block's largest value,
// and so the error that an inserted quantization may add. The matmuls of the golden files have rows
// of 64 elements, and two of them add up.
const q8x2Step = 1.0 / 32512

func TestGolden(t *testing.T) {
	passtest.Golden(t, append(loweringPasses(fastPrefill), prologuePasses()...), map[string]float64{"insert_quantize": 64 * q8x2Step})
}

func TestUnknownAttributes(t *testing.T) {
	passtest.UnknownAttributes(t, append(loweringPasses(fastPrefill), prologuePasses()...))
}

// prologuePasses are the lowering passes that only programs with a prologue have.
func prologuePasses() []pass.Pass {
	return slices.DeleteFunc(loweringPasses(fastDecode), func(p pass.Pass) bool { return p.Name != "fuse_prologue" })
}

func TestOrder(t *testing.T) {
	passtest.Order(t, loweringPasses(fastPrefill), LoweringOrder())
	passtest.Order(t, loweringPasses(fastDecode), PrologueOrder())
}

func TestOrderMatters(t *testing.T) {
	passtest.OrderMatters(t, loweringPasses(fastPrefill), LoweringOrder())
	passtest.OrderMatters(t, loweringPasses(fastDecode), PrologueOrder())
	passtest.OrderFiles(t, slices.Concat(LoweringOrder(), PrologueOrder()))
}
