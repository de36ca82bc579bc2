package virtual

import (
	"math"
)

func f32(b uint32) float32 { return math.Float32frombits(b) }
func b32(f float32) uint32 { return math.Float32bits(f) }
func f64(b uint64) float64 { return math.Float64frombits(b) }
func b64(f float64) uint64 { return math.Float64bits(f) }

func addF32(d, a, b *lanes) {
	for i := 0; i < 32; i += 4 {
		d[i] = b32(f32(a[i]) + f32(b[i]))
		d[i+1] = b32(f32(a[i+1]) + f32(b[i+1]))
		d[i+2] = b32(f32(a[i+2]) + f32(b[i+2]))
		d[i+3] = b32(f32(a[i+3]) + f32(b[i+3]))
	}
}

func subF32(d, a, b *lanes) {
	for i := 0; i < 32; i += 4 {
		d[i] = b32(f32(a[i]) - f32(b[i]))
		d[i+1] = b32(f32(a[i+1]) - f32(b[i+1]))
		d[i+2] = b32(f32(a[i+2]) - f32(b[i+2]))
		d[i+3] = b32(f32(a[i+3]) - f32(b[i+3]))
	}
}

func mulF32(d, a, b *lanes) {
	for i := 0; i < 32; i += 4 {
		d[i] = b32(f32(a[i]) * f32(b[i]))
		d[i+1] = b32(f32(a[i+1]) * f32(b[i+1]))
		d[i+2] = b32(f32(a[i+2]) * f32(b[i+2]))
		d[i+3] = b32(f32(a[i+3]) * f32(b[i+3]))
	}
}

func divF32(d, a, b *lanes) {
	for i := range d {
		d[i] = b32(f32(a[i]) / f32(b[i]))
	}
}

// fmaF32 rounds once. The product of two float32 is exact in float64, so only the float64 sum is rounded.
// Rounding it again to float32 is correct, unless the rounded sum is exactly halfway between two float32
// or the result is subnormal. These cases take the slow path.
func fmaF32(d, a, b, c *lanes) {
	for i := range d {
		s := float64(f32(a[i]))*float64(f32(b[i])) + float64(f32(c[i]))
		u := b64(s)
		if u&0x1fffffff == 0x10000000 || u>>52&0x7ff < 1023-125 {
			d[i] = b32(float32(sumOdd(float64(f32(a[i]))*float64(f32(b[i])), float64(f32(c[i])))))
			continue
		}
		d[i] = b32(float32(s))
	}
}

// sumOdd returns a+b rounded to odd: if the sum is not exact, the adjacent number whose last bit is 1.
// Rounding the result to fewer bits gives the correctly rounded sum (Boldo and Melquiond, "Emulation of
// FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
func sumOdd(a, b float64) float64 {
	s := a + b
	if math.IsInf(s, 0) || s != s {
		return s
	}
	t := s - a
	rest := (a - (s - t)) + (b - t) // the exact error of the sum (Knuth)
	u := b64(s)
	if rest == 0 || u&1 != 0 {
		return s
	}
	if (rest > 0) == (s > 0) {
		return f64(u + 1)
	}
	return f64(u - 1)
}

// A rounding is a rounding mode.
type rounding uint8

const (
	nearest rounding = iota
	towardZero
	down
	up
)

var roundings = map[string]rounding{"rn": nearest, "rz": towardZero, "rm": down, "rp": up}

// toF32 rounds a result of sumOdd, or an exact number, to float32.
func toF32(x float64, r rounding) float32 {
	y := float32(x)
	if r == nearest || float64(y) == x || x != x {
		return y
	}
	away := math.Abs(float64(y)) > math.Abs(x)
	switch {
	case r == towardZero && away, r == down && float64(y) > x && x > 0, r == up && float64(y) < x && x < 0:
		return f32(b32(y) - 1) // toward zero
	case r == down && float64(y) > x, r == up && float64(y) < x:
		return f32(b32(y) + 1)
	}
	return y
}

// directed returns add, sub, mul and fma with a rounding mode.
func directed(r rounding) map[string]any {
	one := func(a, b, c float64) uint32 {
		s := sumOdd(a*b, c)
		if s == 0 && r == down && (math.Signbit(a*b) || math.Signbit(c)) {
			return 1 << 31
		}
		return b32(toF32(s, r))
	}
	x := func(u uint32) float64 { return float64(f32(u)) }
	return map[string]any{
		"add": of2(func(a, b uint32) uint32 { return one(x(a), 1, x(b)) }),
		"sub": of2(func(a, b uint32) uint32 { return one(x(a), 1, -x(b)) }),
		"mul": of2(func(a, b uint32) uint32 { return b32(toF32(x(a)*x(b), r)) }),
		"fma": of3(func(a, b, c uint32) uint32 { return one(x(a), x(b), x(c)) }),
	}
}

// minF32 and maxF32 return the other operand if one is NaN, and order −0 below +0.
func minF32(d, a, b *lanes) {
	for i := range d {
		x, y := f32(a[i]), f32(b[i])
		switch {
		case x < y || y != y:
			d[i] = a[i]
		case x == y:
			d[i] = a[i] | b[i]
		default:
			d[i] = b[i]
		}
	}
}

func maxF32(d, a, b *lanes) {
	for i := range d {
		x, y := f32(a[i]), f32(b[i])
		switch {
		case x > y || y != y:
			d[i] = a[i]
		case x == y:
			d[i] = a[i] & b[i]
		default:
			d[i] = b[i]
		}
	}
}

// orNaN returns the .NaN form of min or max, which gives NaN if an operand is NaN.
func orNaN(f func(d, a, b *lanes)) func(d, a, b *lanes) {
	return func(d, a, b *lanes) {
		x, y := *a, *b
		f(d, a, b)
		for i := range d {
			if f32(x[i]) != f32(x[i]) || f32(y[i]) != f32(y[i]) {
				d[i] = 0x7fffffff
			}
		}
	}
}

func negF32(d, a *lanes) {
	for i := range d {
		d[i] = a[i] ^ 1<<31
	}
}

func absF32(d, a *lanes) {
	for i := range d {
		d[i] = a[i] &^ (1 << 31)
	}
}

func sqrtF32(d, a *lanes) {
	for i := range d {
		d[i] = b32(float32(math.Sqrt(float64(f32(a[i])))))
	}
}

func rcpF32(d, a *lanes) {
	for i := range d {
		d[i] = b32(1 / f32(a[i]))
	}
}

// flush flushes a subnormal number to zero.
func flush(a uint32) uint32 {
	if a&0x7f800000 == 0 {
		return a & (1 << 31)
	}
	return a
}

func flushed(d, a *lanes) {
	for i := range d {
		d[i] = flush(a[i])
	}
}

// by returns an operation that computes a function in float64 and rounds to float32.
func by(f func(float64) float64) func(d, a *lanes) {
	return func(d, a *lanes) {
		for i := range d {
			d[i] = b32(float32(f(float64(f32(a[i])))))
		}
	}
}

// ftz returns an operation that flushes subnormal operands and results to zero.
func ftz(f any) any {
	switch f := f.(type) {
	case func(d, a *lanes):
		return func(d, a *lanes) {
			var x lanes
			flushed(&x, a)
			f(d, &x)
			flushed(d, d)
		}
	case func(d, a, b *lanes):
		return func(d, a, b *lanes) {
			var x, y lanes
			flushed(&x, a)
			flushed(&y, b)
			f(d, &x, &y)
			flushed(d, d)
		}
	case func(d, a, b, c *lanes):
		return func(d, a, b, c *lanes) {
			var x, y, z lanes
			flushed(&x, a)
			flushed(&y, b)
			flushed(&z, c)
			f(d, &x, &y, &z)
			flushed(d, d)
		}
	}
	return nil
}

// saturated returns an operation that clamps its result to 0…1, and NaN to 0.
func saturated(f any) any {
	clamp := func(d *lanes) {
		for i := range d {
			switch x := f32(d[i]); {
			case x >= 1:
				d[i] = b32(1)
			case !(x > 0):
				d[i] = 0
			}
		}
	}
	switch f := f.(type) {
	case func(d, a *lanes):
		return func(d, a *lanes) { f(d, a); clamp(d) }
	case func(d, a, b *lanes):
		return func(d, a, b *lanes) { f(d, a, b); clamp(d) }
	case func(d, a, b, c *lanes):
		return func(d, a, b, c *lanes) { f(d, a, b, c); clamp(d) }
	}
	return nil
}

func double1(f func(a float64) float64) func(d, a *longs) {
	return of1(func(a uint64) uint64 { return b64(f(f64(a))) })
}

func double2(f func(a, b float64) float64) func(d, a, b *longs) {
	return of2(func(a, b uint64) uint64 { return b64(f(f64(a), f64(b))) })
}

// minF64 returns the other operand if one is NaN.
func minF64(a, b float64) float64 {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	}
	return min(a, b)
}

func maxF64(a, b float64) float64 {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	}
	return max(a, b)
}

// floatOperations are named without ".rn". Approximations are correctly rounded to float32.
var floatOperations = func() map[string]any {
	t := map[string]any{
		"neg.f64": of1(func(a uint64) uint64 { return a ^ 1<<63 }),
		"abs.f64": of1(func(a uint64) uint64 { return a &^ (1 << 63) }),
		"add.f64": double2(func(a, b float64) float64 { return a + b }),
		"sub.f64": double2(func(a, b float64) float64 { return a - b }),
		"mul.f64": double2(func(a, b float64) float64 { return a * b }),
		"div.f64": double2(func(a, b float64) float64 { return a / b }),
		"min.f64": double2(minF64), "max.f64": double2(maxF64),
		"sqrt.f64": double1(math.Sqrt), "rcp.f64": double1(func(a float64) float64 { return 1 / a }),
		"fma.f64": of3(func(a, b, c uint64) uint64 { return b64(math.FMA(f64(a), f64(b), f64(c))) }),
	}
	single := map[string]any{
		"add": addF32, "sub": subF32, "mul": mulF32, "fma": fmaF32, "mad": fmaF32, "div": divF32, "min": minF32, "max": maxF32,
		"neg": negF32, "abs": absF32, "sqrt": sqrtF32, "rcp": rcpF32,
		"min.NaN": orNaN(minF32), "max.NaN": orNaN(maxF32),
		"div.full": divF32, "div.approx": divF32, "rcp.approx": rcpF32, "sqrt.approx": sqrtF32,
		"rsqrt.approx": by(func(x float64) float64 { return 1 / math.Sqrt(x) }),
		"ex2.approx":   by(math.Exp2), "lg2.approx": by(math.Log2),
		"sin.approx": by(math.Sin), "cos.approx": by(math.Cos), "tanh.approx": by(math.Tanh),
	}
	for suffix, r := range roundings {
		if r == nearest {
			continue
		}
		for op, f := range directed(r) {
			single[op+"."+suffix] = f
		}
	}
	for op, f := range single {
		t[op+".f32"] = f
		t[op+".ftz.f32"] = ftz(f)
		t[op+".sat.f32"] = saturated(f)
		t[op+".ftz.sat.f32"] = saturated(ftz(f))
	}
	return t
}()
