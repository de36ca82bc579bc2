package sample

import "math"

// expNeg returns e to the power of x for x ≤ 0, within 2 units in the last place; below 2^-1022 it returns 0.
//
// math.Exp is assembly on some platforms and differs between them in the last bit. Here every product is rounded
// by a conversion before it is added, which the language guarantees to keep it from being fused.
func expNeg(x float64) float64 {
	if x < -708 { // e^-708 is about 2^-1021.4
		return 0
	}
	// x = k ln 2 + r with |r| ≤ ln 2 / 2; ln 2 is in two parts, the first with enough zeros to make its product exact.
	const ln2High, ln2Low = 6.93147180369123816490e-01, 1.90821492927058770002e-10
	k := math.Floor(float64(x*math.Log2E) + 0.5)
	r := x - float64(k*ln2High) - float64(k*ln2Low)
	sum := taylor[0]
	for _, t := range taylor[1:] {
		sum = float64(sum*r) + t
	}
	return sum * math.Float64frombits(uint64(1023+int(k))<<52)
}

// taylor holds 1/n! from n = 13 down to 0.
var taylor = [...]float64{
	1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040,
	1. / 720, 1. / 120, 1. / 24, 1. / 6, 1. / 2, 1, 1,
}
