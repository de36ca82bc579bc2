package sample

import "math"

// expNeg returns e to the power of x for x ≤ 0 with a relative error below 1e-12; below e^-708 it returns 0.
//
// math.Exp is assembly on some platforms and differs between them in the last bit. Here every
// product is converted before it is added, and the language guarantees that such a product is not
// fused.
func expNeg(x float64) float64 {
	if x < -708 { // below, 2^k is subnormal
		return 0
	}
	// x = k ln 2 + r with |r| ≤ ln 2 / 2; ln 2 is in two parts, the first with enough zeros to make its product exact.
	const ln2High, ln2Low = 6.93147180369123816490e-01, 1.90821492927058770002e-10
	k := math.Floor(float64(x*math.Log2E) + 0.5)
	r := x - float64(k*ln2High) - float64(k*ln2Low)
	// The Taylor series up to r^10 / 10!.
	e := float64(r*(1./3628800)) + 1./362880
	e = float64(e*r) + 1./40320
	e = float64(e*r) + 1./5040
	e = float64(e*r) + 1./720
	e = float64(e*r) + 1./120
	e = float64(e*r) + 1./24
	e = float64(e*r) + 1./6
	e = float64(e*r) + 1./2
	e = float64(e*r) + 1
	e = float64(e*r) + 1
	return e * math.Float64frombits(uint64(1023+int(k))<<52)
}
