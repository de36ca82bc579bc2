package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const mantissaBits = 23

// Polynomials 1 + c[0]·r + c[1]·r² + …, within 2^-28: least squares on Chebyshev nodes, weighted until
// the largest relative error was least.
var (
	// 2^r on [−½, ½]
	power2 = []float32{0x1.62e43p-1, 0x1.ebfbdcp-3, 0x1.c6aee8p-5, 0x1.3b2d4cp-7, 0x1.5f3e54p-10, 0x1.41fbbcp-13}
	// e^r on [−ln 2 / 2, ln 2 / 2]
	powerE = []float32{1, 0.49999994, 0.16666432, 0.041668002, 0.008374161, 0.0013843647}
)

// polynomial sets p to the polynomial of r.
func polynomial(c []float32, r, p reg.VecVirtual) {
	VMOVUPS(constant(c[len(c)-1]), p)
	for i := len(c) - 2; i >= 0; i-- {
		VFMADD213PS(constant(c[i]), r, p)
	}
	VFMADD213PS(constant(1), r, p)
}

// exp2 sets x to 2^x for x ≤ 0, and to 0 below 2^-125; NaN stays. n, p and keep are for its use.
func exp2(x, n, p, keep reg.VecVirtual) {
	const notLess = 5 // true of NaN
	VCMPPS(Imm(notLess), constant(-125), x, keep)
	VROUNDPS(Imm(0), x, n)
	VSUBPS(n, x, x)
	polynomial(power2, x, p)
	VCVTPS2DQ(n, n)
	VPSLLD(Imm(mantissaBits), n, n)
	VPADDD(n, p, x)
	VANDPS(keep, x, x)
}
