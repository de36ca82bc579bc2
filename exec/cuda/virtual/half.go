package virtual

import "math"

// A narrow is a float format of at most 16 bits: sign, exponent, mantissa.
type narrow struct {
	exponent, mantissa int
	infinite           bool   // the largest exponent is for infinity and NaN; otherwise only all ones is NaN
	nan                uint32 // the canonical NaN
}

var (
	half    = narrow{5, 10, true, 0x7fff}
	brain   = narrow{8, 7, true, 0x7fff}
	fp8e4m3 = narrow{4, 3, false, 0x7f} // OCP 8-bit Floating Point Specification, 1.0
	fp8e5m2 = narrow{5, 2, true, 0x7f}
)

func (n narrow) bits() int { return 1 + n.exponent + n.mantissa }
func (n narrow) bias() int { return 1<<(n.exponent-1) - 1 }

// largest returns the bits of the largest finite number.
func (n narrow) largest() uint32 {
	all := uint32(1)<<(n.exponent+n.mantissa) - 1
	if n.infinite {
		return all - 1<<n.mantissa
	}
	return all - 1
}

// encode rounds a number to nearest even, or toward zero. If finite is true, overflow gives the largest
// finite number.
func (n narrow) encode(x float64, r rounding, finite bool) uint32 {
	sign := uint32(b64(x)>>63) << (n.exponent + n.mantissa)
	if x != x {
		return n.nan
	}
	a := math.Abs(x)
	if a == 0 {
		return sign
	}
	tooLarge := n.largest() + 1
	if finite || !n.infinite && r == towardZero {
		tooLarge = n.largest()
	} else if !n.infinite {
		tooLarge = n.nan
	}
	if math.IsInf(a, 0) {
		return sign | tooLarge
	}
	_, e := math.Frexp(a) // a in [2^(e−1), 2^e)
	e = max(e-1, 1-n.bias())
	q := math.Ldexp(a, n.mantissa-e)
	if r == towardZero {
		q = math.Trunc(q)
	} else {
		q = math.RoundToEven(q)
	}
	// Subnormal numbers have the exponent of the smallest normal ones and no leading one. Adding the
	// mantissa including its leading one to the exponent minus one is correct for both kinds.
	code := int64(e+n.bias()-1)<<n.mantissa + int64(q)
	if code > int64(n.largest()) {
		if r == towardZero {
			return sign | n.largest()
		}
		return sign | tooLarge
	}
	return sign | uint32(code)
}

// decode returns the exact value.
func (n narrow) decode(b uint32) float64 {
	top := n.exponent + n.mantissa
	code := b & (1<<top - 1)
	if code > n.largest() {
		if n.infinite && code == n.largest()+1 {
			return math.Inf(1 - int(b>>top&1)*2)
		}
		return math.NaN()
	}
	e := int(code >> n.mantissa)
	m := float64(code & (1<<n.mantissa - 1))
	if e > 0 {
		m += float64(int(1) << n.mantissa)
		e--
	}
	x := math.Ldexp(m, e+1-n.bias()-n.mantissa)
	if b>>top&1 != 0 {
		x = -x
	}
	return x
}

// halfToF32 is a fast decode from half to the bits of a float32.
func halfToF32(h uint32) uint32 {
	u := h & 0x7fff << 13
	if u >= 0x7c00<<13 {
		u += 0x70000000 // infinity and NaN
		if u&0x7fffff != 0 {
			u |= 0x400000
		}
		return u | h&0x8000<<16
	}
	return b32(f32(u)*0x1p112) | h&0x8000<<16
}

func brainToF32(h uint32) uint32 { return h << 16 }

// f32ToHalf rounds to nearest even.
func f32ToHalf(b uint32) uint32 {
	sign, a := b>>16&0x8000, b&0x7fffffff
	switch {
	case a > 0x7f800000:
		return half.nan
	case a >= 0x47800000: // 2^16
		return sign | 0x7c00
	case a < 0x38800000: // 2^-14: adding 0.5 rounds the number to a multiple of 2^-24
		return sign | b32(f32(a)+0.5) - 0x3f000000
	}
	a += 0xfff + a>>13&1
	return sign | (a-0x38000000)>>13
}

func f32ToBrain(b uint32) uint32 {
	if b&0x7fffffff > 0x7f800000 {
		return brain.nan
	}
	return (b + 0x7fff + b>>16&1) >> 16
}

// A short has the conversions for arithmetic on half or brain. Sums and products may be computed in
// float32 and rounded again, since float32 has at least twice their bits plus two (Figueroa, "When is
// double rounding innocuous?", 1995).
type short struct {
	from, to func(uint32) uint32
	format   narrow
}

var shorts = map[string]short{"f16": {halfToF32, f32ToHalf, half}, "bf16": {brainToF32, f32ToBrain, brain}}

// fused returns a·b+c rounded once.
func (s short) fused(a, b, c uint32) uint32 {
	p := float64(f32(s.from(a))) * float64(f32(s.from(b)))
	return s.format.encode(sumOdd(p, float64(f32(s.from(c)))), nearest, false)
}

// relu replaces a negative result or NaN by zero.
func relu(sign uint32, f func(a, b, c uint32) uint32) func(a, b, c uint32) uint32 {
	return func(a, b, c uint32) uint32 {
		if v := f(a, b, c); v <= sign-1 && v != 0x7fff {
			return v
		}
		return 0
	}
}

// pairs1, pairs2 and pairs3 apply an operation to both halves of a register.
func pairs1(f func(a uint32) uint32) func(a uint32) uint32 {
	return func(a uint32) uint32 { return f(a&0xffff) | f(a>>16)<<16 }
}

func pairs2(f func(a, b uint32) uint32) func(a, b uint32) uint32 {
	return func(a, b uint32) uint32 { return f(a&0xffff, b&0xffff) | f(a>>16, b>>16)<<16 }
}

func pairs3(f func(a, b, c uint32) uint32) func(a, b, c uint32) uint32 {
	return func(a, b, c uint32) uint32 { return f(a&0xffff, b&0xffff, c&0xffff) | f(a>>16, b>>16, c>>16)<<16 }
}

// halfOperations is the arithmetic on half and brain, in scalar and packed form.
var halfOperations = func() map[string]any {
	t := map[string]any{}
	for kind, s := range shorts {
		lane := func(f func(d, a, b *lanes)) func(a, b uint32) uint32 {
			return func(a, b uint32) uint32 {
				var d, x, y lanes
				x[0], y[0] = s.from(a), s.from(b)
				f(&d, &x, &y)
				return s.to(d[0])
			}
		}
		two := map[string]func(a, b uint32) uint32{
			"add": func(a, b uint32) uint32 { return s.to(b32(f32(s.from(a)) + f32(s.from(b)))) },
			"sub": func(a, b uint32) uint32 { return s.to(b32(f32(s.from(a)) - f32(s.from(b)))) },
			"mul": func(a, b uint32) uint32 { return s.to(b32(f32(s.from(a)) * f32(s.from(b)))) },
			"min": lane(minF32), "max": lane(maxF32), "min.NaN": lane(orNaN(minF32)), "max.NaN": lane(orNaN(maxF32)),
		}
		for op, f := range two {
			t[op+"."+kind] = of2(f)
			t[op+"."+kind+"x2"] = of2(pairs2(f))
		}
		one := map[string]func(a uint32) uint32{
			"neg": func(a uint32) uint32 { return a ^ 0x8000 },
			"abs": func(a uint32) uint32 { return a & 0x7fff },
			"ex2.approx": func(a uint32) uint32 {
				return s.format.encode(math.Exp2(float64(f32(s.from(a)))), nearest, false)
			},
			"tanh.approx": func(a uint32) uint32 {
				return s.format.encode(math.Tanh(float64(f32(s.from(a)))), nearest, false)
			},
		}
		for op, f := range one {
			t[op+"."+kind] = of1(f)
			t[op+"."+kind+"x2"] = of1(pairs1(f))
		}
		t["fma."+kind] = of3(s.fused)
		t["fma."+kind+"x2"] = of3(pairs3(s.fused))
		t["fma.relu."+kind] = of3(relu(0x8000, s.fused))
		t["fma.relu."+kind+"x2"] = of3(pairs3(relu(0x8000, s.fused)))
	}
	return t
}()
