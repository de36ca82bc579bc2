package sample

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// exactExp sums the series of e^x in 300 bits.
func exactExp(x float64) float64 {
	const prec = 300
	// e^x = (e^(x/1024))^1024, so that the series converges fast and nothing cancels.
	small := new(big.Float).SetPrec(prec).Quo(big.NewFloat(x), big.NewFloat(1024))
	sum := new(big.Float).SetPrec(prec).SetInt64(1)
	term := new(big.Float).SetPrec(prec).SetInt64(1)
	for n := int64(1); n < 80; n++ {
		term.Mul(term, small)
		term.Quo(term, new(big.Float).SetInt64(n))
		sum.Add(sum, term)
	}
	for range 10 {
		sum.Mul(sum, sum)
	}
	f, _ := sum.Float64()
	return f
}

func TestExpNeg(t *testing.T) {
	check := func(t rapid.TB, x float64) {
		got, want := expNeg(x), exactExp(x)
		if rel := math.Abs(got-want) / want; rel > 1e-12 {
			t.Errorf("e^%v = %v, want %v: relative error %g", x, got, want, rel)
		}
	}
	for _, x := range []float64{0, math.Copysign(0, -1), -math.SmallestNonzeroFloat64, -1e-300, -1e-17, -1e-8, -.1,
		-math.Ln2 / 2, -math.Ln2, -1, -10, -87.4, -500, -707.999, -708} {
		check(t, x)
	}
	rapid.Check(t, func(t *rapid.T) { check(t, rapid.Float64Range(-708, 0).Draw(t, "x")) })
	if got := expNeg(0); got != 1 {
		t.Errorf("e^0 = %v, want 1 exactly: the likeliest candidate must weigh 1", got)
	}
	for _, x := range []float64{math.Nextafter(-708, -709), -709, -1e300, math.Inf(-1)} {
		if got := expNeg(x); got != 0 {
			t.Errorf("e^%v = %v, want 0", x, got)
		}
	}
}
