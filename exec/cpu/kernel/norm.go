package kernel

import "math"

// bindNorm is RMSNorm (Zhang & Sennrich, 2019), y = w · x / √(mean x² + eps), quantized to the format
// of y.
func bindNorm(b *binder) Func {
	x, w, n, eps, split, rows := b.f32("x"), b.f32("w"), b.int("n"), b.float("eps"), b.split(), b.rows()
	vec := b.vectors()
	if b.operand("y").Format != "f32" {
		store, rest := b.quantizedStore(vec), b.Scratch
		normed := scratch[float32](b, &rest, n)
		return func(r *Run) {
			lo, hi := split.of(rows(r))
			for m := lo; m < hi; m++ {
				vec.rmsNorm(normed, x[m*n:(m+1)*n], w, eps)
				store(m, normed)
			}
		}
	}
	y := b.f32("y")
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		for m := lo; m < hi; m++ {
			vec.rmsNorm(y[m*n:(m+1)*n], x[m*n:(m+1)*n], w, eps)
		}
	}
}

// bindNormAdd is y = x + RMSNorm(d).
func bindNormAdd(b *binder) Func {
	d, w, x, y := b.f32("d"), b.f32("w"), b.f32("x"), b.f32("y")
	n, eps, split, rows, vec := b.int("n"), b.float("eps"), b.split(), b.rows(), b.vectors()
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		for m := lo; m < hi; m++ {
			d := d[m*n : (m+1)*n]
			vec.normalizeAdd(y[m*n:(m+1)*n], x[m*n:(m+1)*n], d, w, vec.inverseRMS(d, eps))
		}
	}
}

// bindQuantize quantizes rows to the format of y.
func bindQuantize(b *binder) Func {
	x, n, split, rows, vec := b.f32("x"), b.int("n"), b.split(), b.rows(), b.vectors()
	store := b.quantizedStore(vec)
	return func(r *Run) {
		lo, hi := split.of(rows(r))
		for m := lo; m < hi; m++ {
			store(m, x[m*n:(m+1)*n])
		}
	}
}

// rmsNorm sets y to w · x / rms(x); y may be x.
func (v *vectors) rmsNorm(y, x, w []float32, eps float64) {
	v.normalize(y, x, w, v.inverseRMS(x, eps))
}

// inverseRMS is 1 / √(mean x² + eps).
func (v *vectors) inverseRMS(x []float32, eps float64) float64 {
	return 1 / math.Sqrt(v.sumSquares(x)/float64(len(x))+eps)
}

// portableSumSquares returns the sum of squares, computed in four partial sums.
func portableSumSquares(x []float32) float64 {
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
	return a + b + c + d
}

// portableNormalize sets y to x · scale · w, rounded once; y may be x.
func portableNormalize(y, x, w []float32, scale float64) {
	for i := range y {
		y[i] = float32(float64(x[i]) * scale * float64(w[i]))
	}
}

// portableNormalizeAdd sets y to x + d · scale · w; y may be x or d.
func portableNormalizeAdd(y, x, d, w []float32, scale float64) {
	for i := range y {
		y[i] = x[i] + float32(float64(d[i])*scale*float64(w[i]))
	}
}
