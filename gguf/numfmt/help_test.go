package numfmt

import (
	"math"
	"math/rand/v2"
	"testing"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

// random returns n numbers of a normal distribution.
func random(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// near fails unless got and want agree to about one unit in the last place of float32.
func near(t *testing.T, what string, got float32, want float64) {
	t.Helper()
	if math.Abs(float64(got)-want) > 1.2e-7*math.Abs(want)+1e-37 || (got != got) != (want != want) {
		t.Errorf("%s: %v, expected %v", what, got, want)
	}
}
