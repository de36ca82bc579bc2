package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"

	"pesti/exec/cpu/kernel/_asm/constant"
)

const mantissaBits = 23

// powerE has the coefficients of 1 + c[0]·r + c[1]·r² + …, which approximates e^r on [−ln 2 / 2, ln 2 / 2] with a
// relative error below 2^-28. They come from least squares on Chebyshev nodes, with weights adjusted until the largest
// relative error was least.
var powerE = []float32{1, 0.49999994, 0.16666432, 0.041668002, 0.008374161, 0.0013843647}

// ln2 is ln 2 rounded to float32. A second operation with the rest of ln 2 corrects products with it.
const ln2 = 0x1.62e43p-1

// polynomial sets p to the polynomial of r.
func polynomial(c []float32, r, p vec) {
	VMOVUPS(constant.Float32(c[len(c)-1]), p)
	for i := len(c) - 2; i >= 0; i-- {
		VFMADD213PS(constant.Float32(c[i]), r, p)
	}
	VFMADD213PS(constant.Float32(1), r, p)
}

// exp sets x to e^x for x ≤ 0. Below −86.6, where e^x is 2^-125, it sets x to 0. NaN stays NaN. n, p and keep
// are scratch registers. Powers of two would take two operations less, but the scores would have to be multiplied by
// log₂e: the rounding of that factor costs three bits of the weight of a score of a hundred.
func exp(x, n, p, keep vec) {
	VCMPPS(Imm(notLess), constant.Float32(-86.6), x, keep)
	avx2.power(x, n, p)
	VPADDD(n, p, x)
	VANDPS(keep, x, x)
}

// notLess is a comparison that is true for NaN.
const notLess = 5

// exp512 is exp for 16 elements, with the same operations.
func exp512(x, n, p vec) {
	keep := K()
	VCMPPS(Imm(notLess), constant.Float32(-86.6), x, keep)
	avx512.power(x, n, p)
	VPADDD_Z(n, p, keep, x)
}

// power computes e^x as 2^k · p. It sets n to k, shifted to the bits of an exponent.
func (w width) power(x, n, p vec) {
	VMULPS(constant.Float32(math.Log2E), x, n)
	w.round(n, n)
	VFNMADD231PS(constant.Float32(ln2), n, x)
	VFNMADD231PS(constant.Float32(math.Ln2-ln2), n, x)
	polynomial(powerE, x, p)
	VCVTPS2DQ(n, n)
	VPSLLD(Imm(mantissaBits), n, n)
}
