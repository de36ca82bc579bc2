package lower

import (
	"testing"

	"pesti/graph/pass/passtest"
	"pesti/lower/cpu"
)

// fastPrefill is what the golden files are lowered for.
var fastPrefill = lowering{program: cpu.Programs(512, 1, false)[2], integers: true}

// q8x2Step is the largest rounding of an activation, relative to its block's largest value: what
// inserting a quantisation may cost. The matmuls of the golden files have rows of 64 and two of
// them add up.
const q8x2Step = 1.0 / 32512

func TestGolden(t *testing.T) {
	passtest.Golden(t, loweringPasses(fastPrefill), map[string]float64{"insert_quantise": 64 * q8x2Step})
}

func TestOrder(t *testing.T) { passtest.Order(t, loweringPasses(fastPrefill), LoweringOrder()) }
