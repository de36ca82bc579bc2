package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pesti/exec/cpu/kernel/_asm/constant"
)

// sines writes a kernel that computes in float64, four angles at a time. An angle is k·π/2 + r with integer k and
// |r| ≤ π/4; sine and cosine of r are Taylor series. π/2 is the sum of two constants. Subtracting k times the first is
// exact, so that only the subtraction of k times the second rounds.
func sines() {
	function("sinesAVX2", "func(cos, sin *float32, speed *float64, pos, magnitude float64, n int)")
	Doc("sinesAVX2 sets n elements of cos and sin, a multiple of 4, to magnitude times the cosine and sine of pos·speed, which must be below 2^50.")
	cos, sin, speed := Load(Param("cos"), GP64()), Load(Param("sin"), GP64()), Load(Param("speed"), GP64())
	pos, magnitude := broadcast64("pos"), broadcast64("magnitude")
	n, at := Load(Param("n"), GP64()), GP64()
	XORQ(at, at)
	Label("next")
	CMPQ(at, n)
	JGE(LabelRef("done"))

	// At 3·2^51 the last bit of a float64 is worth 1. So adding 3·2^51 rounds a number to an integer, which the last
	// bits of the sum hold.
	const integer = 0x1.8p52
	r, k, quarter := YMM(), YMM(), YMM()
	VMULPD(Mem{Base: speed, Index: at, Scale: 8}, pos, r)
	VMULPD(constant.Float64(2/math.Pi), r, quarter)
	VADDPD(constant.Float64(integer), quarter, quarter)
	VSUBPD(constant.Float64(integer), quarter, k)
	const piHalf, rest = math.Pi / 2, 0x1.1a62633145c07p-54
	VFNMADD231PD(constant.Float64(piHalf), k, r)
	VFNMADD231PD(constant.Float64(rest), k, r)

	square, s, c := YMM(), YMM(), YMM()
	VMULPD(r, r, square)
	taylor(15, square, s)
	taylor(16, square, c)
	VMULPD(r, s, s)

	// An odd k swaps sine and cosine. The second-lowest bit of k is the sign of the sine, that of k+1 the sign of the
	// cosine.
	odd, sign := YMM(), YMM()
	VPSLLQ(Imm(63), quarter, odd)
	cosine, sine := YMM(), YMM()
	VBLENDVPD(odd, s, c, cosine)
	VBLENDVPD(odd, c, s, sine)
	VPSRLQ(Imm(1), quarter, sign)
	VPSLLQ(Imm(63), sign, sign)
	VXORPD(sign, sine, sine)
	VXORPD(odd, sign, sign)
	VXORPD(sign, cosine, cosine)
	for _, out := range []struct {
		to reg.Register
		v  vec
	}{{cos, cosine}, {sin, sine}} {
		VMULPD(magnitude, out.v, out.v)
		VCVTPD2PSY(out.v, out.v.AsX())
		VMOVUPS(out.v.AsX(), Mem{Base: out.to, Index: at, Scale: 4})
	}
	ADDQ(Imm(4), at)
	JMP(LabelRef("next"))
	Label("done")
	VZEROUPPER()
	RET()
}

// taylor sets p to the series 1/d! − square/(d+2)! + … up to degree. d is 1 if degree is odd, otherwise 0.
func taylor(degree int, square, p vec) {
	term := func(d int) Mem {
		f := 1.0
		for i := 2; i <= d; i++ {
			f *= float64(i)
		}
		if d/2%2 == 1 {
			f = -f
		}
		return constant.Float64(1 / f)
	}
	VMOVUPD(term(degree), p)
	for d := degree - 2; d >= 0; d -= 2 {
		VFMADD213PD(term(d), square, p)
	}
}

// broadcast64 returns a vector that repeats a float64 parameter.
func broadcast64(name string) vec {
	value, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	v := YMM()
	VBROADCASTSD(value.Addr, v)
	return v
}

// rotateHalves and rotatePairs write kernels that round as the portable loops do.
func rotateHalves() {
	function("rotateHalvesAVX2", "func(x, y, cos, sin *float32, n int)")
	Doc("rotateHalvesAVX2 rotates n pairs (x[i], y[i]), a multiple of 8.")
	x, y := Load(Param("x"), GP64()), Load(Param("y"), GP64())
	cos, sin := Load(Param("cos"), GP64()), Load(Param("sin"), GP64())
	n, at := Load(Param("n"), GP64()), GP64()
	XORQ(at, at)
	Label("next")
	CMPQ(at, n)
	JGE(LabelRef("done"))
	c, s, v := YMM(), YMM(), vectors(4)
	here := func(base reg.Register) Mem { return Mem{Base: base, Index: at, Scale: 4} }
	VMOVUPS(here(cos), c)
	VMOVUPS(here(sin), s)
	VMOVUPS(here(x), v[0])
	VMOVUPS(here(y), v[1])
	VMULPS(s, v[1], v[2])
	VMULPS(s, v[0], v[3])
	VMULPS(c, v[0], v[0])
	VMULPS(c, v[1], v[1])
	VSUBPS(v[2], v[0], v[0])
	VADDPS(v[1], v[3], v[1])
	VMOVUPS(v[0], here(x))
	VMOVUPS(v[1], here(y))
	ADDQ(Imm(8), at)
	JMP(LabelRef("next"))
	Label("done")
	VZEROUPPER()
	RET()
}

func rotatePairs() {
	twice := GLOBL("twice", RODATA|NOPTR)
	for i := range 8 {
		DATA(4*i, U32(uint32(i/2)))
	}
	function("rotatePairsAVX2", "func(x, cos, sin *float32, n int)")
	Doc("rotatePairsAVX2 rotates n pairs (x[2i], x[2i+1]), a multiple of 4.")
	x, cos, sin := Load(Param("x"), GP64()), Load(Param("cos"), GP64()), Load(Param("sin"), GP64())
	n, at, order := Load(Param("n"), GP64()), GP64(), YMM()
	VMOVDQU(twice, order)
	XORQ(at, at)
	Label("next")
	CMPQ(at, n)
	JGE(LabelRef("done"))
	c, s, v, other := YMM(), YMM(), YMM(), YMM()
	VMOVUPS(Mem{Base: cos, Index: at, Scale: 4}, c.AsX())
	VMOVUPS(Mem{Base: sin, Index: at, Scale: 4}, s.AsX())
	VPERMPS(c, order, c)
	VPERMPS(s, order, s)
	VMOVUPS(Mem{Base: x, Index: at, Scale: 8}, v)
	VPERMILPS(Imm(0xb1), v, other)
	VMULPS(c, v, v)
	VMULPS(s, other, other)
	VADDSUBPS(other, v, v)
	VMOVUPS(v, Mem{Base: x, Index: at, Scale: 8})
	ADDQ(Imm(4), at)
	JMP(LabelRef("next"))
	Label("done")
	VZEROUPPER()
	RET()
}
