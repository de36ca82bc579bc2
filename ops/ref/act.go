package ref

import "math"

// SiLU is x·σ(x) (Elfwing, Uchibe & Doya 2018).
func SiLU(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(float64(v) / (1 + math.Exp(-float64(v))))
	}
}

// GELUTanh is the tanh approximation of x·Φ(x) (Hendrycks & Gimpel 2016):
// x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))).
func GELUTanh(dst, x []float32) {
	for i, v := range x {
		x := float64(v)
		cubic := float64(0.044715*x*x*x) + x
		dst[i] = float32(0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*cubic)))
	}
}

// GELUErf is x·Φ(x) with the exact normal distribution function. It uses erfc, which keeps its
// relative precision for small Φ(x).
func GELUErf(dst, x []float32) {
	for i, v := range x {
		x := float64(v)
		dst[i] = float32(0.5 * x * math.Erfc(-x/math.Sqrt2))
	}
}
