package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"

	"pesti/exec/cpu/kernel/_asm/constant"
)

const sign = 1 << 31

// gate writes a kernel of x·σ(z(x)) ⊙ up for an odd, increasing function z. argument computes −|z(x)| from a = |x|, as
// the sum of z and low. It limits a, so that |z| ≤ 150.
//
// With e = exp(−|z|), x·σ(z) is x/(1+e) for x above 0, and x·e/(1+e) below. There e may underflow although the
// result does not. So the power of two in e is multiplied in last, in two halves.
func gate(w width, name, what string, argument func(w width, a, z, low vec)) {
	name += "Gate" + w.set
	function(name, "func(dst, x, up *float32, n int)")
	Doc(fmt.Sprintf("%s sets n elements of dst, a multiple of %d, to %s times up.", name, w.lanes(), what))
	dst, x, up, n := Load(Param("dst"), GP64()), Load(Param("x"), GP64()), Load(Param("up"), GP64()), Load(Param("n"), GP64())
	at := GP64()
	XORQ(at, at)
	Label("next")
	CMPQ(at, n)
	JGE(LabelRef("done"))

	v, a, z, low := w.vec(), w.vec(), w.vec(), w.vec()
	VMOVUPS(Mem{Base: x, Index: at, Scale: 4}, v)
	w.and(constant.Bits32(sign-1), v, a)
	argument(w, a, z, low)

	// exp(z) = 2^k · p, where p = exp(z − k·ln 2).
	k, p := w.vec(), w.vec()
	VMULPS(constant.Float32(math.Log2E), z, k)
	w.round(k, k)
	VFNMADD231PS(constant.Float32(ln2), k, z)
	VADDPS(low, z, z)
	VFNMADD231PS(constant.Float32(math.Ln2-ln2), k, z)
	polynomial(powerE, z, p)

	// e becomes 1 + exp(z). Below 2^-126 exp(z) does not change the sum, so k is bounded.
	e, bounded := w.vec(), w.vec()
	VCVTPS2DQ(k, k)
	VPMAXSD(constant.Bits32(uint32(0x100000000-126)), k, bounded)
	VPSLLD(Imm(mantissaBits), bounded, e)
	VPADDD(e, p, e)
	VADDPS(constant.Float32(1), e, e)

	// The numerator, to be multiplied by 2^k if x is negative.
	numerator, half := w.vec(), w.vec()
	w.or(constant.Bits32(sign), a, a)
	VMULPS(p, a, numerator)
	w.choose(v, numerator, v, numerator)
	VDIVPS(e, numerator, numerator)
	VPSRAD(Imm(31), v, v)
	w.mask(v, k, k)
	VPSRAD(Imm(1), k, half)
	VPSUBD(half, k, k)
	for _, power := range []vec{half, k} {
		VPADDD(constant.Bits32(127), power, power)
		VPSLLD(Imm(mantissaBits), power, power)
		VMULPS(power, numerator, numerator)
	}
	VMULPS(Mem{Base: up, Index: at, Scale: 4}, numerator, numerator)
	VMOVUPS(numerator, Mem{Base: dst, Index: at, Scale: 4})
	ADDQ(Imm(uint64(w.lanes())), at)
	JMP(LabelRef("next"))
	Label("done")
	VZEROUPPER()
	RET()
}

// bound limits a to limit; NaN stays NaN.
func bound(w width, a vec, limit float32) {
	most := w.vec()
	VMOVUPS(constant.Float32(limit), most)
	VMINPS(a, most, a) // if an operand is NaN, the result is the first operand
}

// siluArgument: z is x.
func siluArgument(w width, a, z, low vec) {
	bound(w, a, 150)
	w.or(constant.Bits32(sign), a, z)
	w.clear(low)
}

// geluTanhArgument: (1 + tanh u)/2 is σ(2u), so z is 2u = a·(c + d·a²). It is computed in twice the precision, because
// a relative error of z becomes |z| times as large in the result.
func geluTanhArgument(w width, a, z, low vec) {
	c := 2 * math.Sqrt(2/math.Pi)
	d := 0.044715 * c
	ch, dh := float32(c), float32(d)
	cl, dl := float32(c-float64(ch)), float32(d-float64(dh))
	bound(w, a, 12)

	square, rest := w.vec(), w.vec()
	VMULPS(a, a, square)
	VMOVAPS(square, rest)
	VFMSUB231PS(a, a, rest) // a² − square, exactly

	cubic, cubicRest, t := w.vec(), w.vec(), w.vec()
	VMOVUPS(constant.Float32(dh), t)
	VMULPS(square, t, cubic)
	VMOVAPS(cubic, cubicRest)
	VFMSUB231PS(square, t, cubicRest)
	VFMADD231PS(rest, t, cubicRest)
	VMOVUPS(constant.Float32(dl), t)
	VFMADD231PS(square, t, cubicRest)

	// factor = c + cubic; cubic becomes the rounding error (Knuth's two-sum).
	factor, back := w.vec(), w.vec()
	VADDPS(constant.Float32(ch), cubic, factor)
	VSUBPS(cubic, factor, back)
	VSUBPS(back, factor, t)
	VSUBPS(t, cubic, cubic)
	VMOVUPS(constant.Float32(ch), t)
	VSUBPS(back, t, t)
	VADDPS(t, cubic, cubic)
	VADDPS(cubicRest, cubic, cubic)
	VADDPS(constant.Float32(cl), cubic, cubic)

	VMULPS(factor, a, z)
	VMOVAPS(z, low)
	VFMSUB231PS(factor, a, low)
	VFMADD231PS(cubic, a, low)
	w.xor(constant.Bits32(sign), z, z)
	w.xor(constant.Bits32(sign), low, low)
}
