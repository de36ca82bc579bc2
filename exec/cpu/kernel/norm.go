package kernel

import "math"

// bindNorm is RMSNorm (Zhang & Sennrich, 2019), y = w · x / √(mean x² + eps), quantised where y
// is q8x2.
func bindNorm(b *binder) Func {
	x, w, n, eps, split, rows := b.f32("x"), b.f32("w"), b.int("n"), b.float("eps"), b.split(), b.rows()
	if b.operand("y").Format == "q8x2" {
		y, rest := b.q8x2("y"), b.Scratch
		normed := scratch[float32](b, &rest, n)
		return func(r *Run) {
			lo, hi := split.of(rows(r))
			for m := lo; m < hi; m++ {
				rmsNorm(normed, x[m*n:(m+1)*n], w, eps)
				y.quantise(m, normed)
			}
		}
	}
	y := b.f32("y")
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		for m := lo; m < hi; m++ {
			rmsNorm(y[m*n:(m+1)*n], x[m*n:(m+1)*n], w, eps)
		}
	}
}

// bindNormAdd is y = x + RMSNorm(d).
func bindNormAdd(b *binder) Func {
	d, w, x, y := b.f32("d"), b.f32("w"), b.f32("x"), b.f32("y")
	n, eps, split, rows := b.int("n"), b.float("eps"), b.split(), b.rows()
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		for m := lo; m < hi; m++ {
			d, x, y := d[m*n:(m+1)*n], x[m*n:(m+1)*n], y[m*n:(m+1)*n]
			s := inverseRMS(d, eps)
			for i := range y {
				y[i] = x[i] + float32(float64(d[i])*s*float64(w[i]))
			}
		}
	}
}

// bindQuantise turns rows into q8x2.
func bindQuantise(b *binder) Func {
	x, y, n, split, rows := b.f32("x"), b.q8x2("y"), b.int("n"), b.split(), b.rows()
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		for m := lo; m < hi; m++ {
			y.quantise(m, x[m*n:(m+1)*n])
		}
	}
}

// rmsNorm sets y to w · x / rms(x); y may be x.
func rmsNorm(y, x, w []float32, eps float64) {
	s := inverseRMS(x, eps)
	for i := range y {
		y[i] = float32(float64(x[i]) * s * float64(w[i]))
	}
}

// inverseRMS is 1 / √(mean x² + eps).
func inverseRMS(x []float32, eps float64) float64 {
	var a, b, c, d float64
	i := 0
	for ; i+4 <= len(x); i += 4 {
		x := x[i : i+4 : i+4]
		a += float64(float64(x[0]) * float64(x[0]))
		b += float64(float64(x[1]) * float64(x[1]))
		c += float64(float64(x[2]) * float64(x[2]))
		d += float64(float64(x[3]) * float64(x[3]))
	}
	for ; i < len(x); i++ {
		a += float64(float64(x[i]) * float64(x[i]))
	}
	return 1 / math.Sqrt((a+b+c+d)/float64(len(x))+eps)
}
