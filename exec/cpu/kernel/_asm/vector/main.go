// Command vector generates the AVX2 inner loops of all kernels other than matrix products.
package main

import . "github.com/mmcloughlin/avo/build"

func main() {
	ConstraintExpr("!purego")
	for _, e := range []element{float, half} {
		scores(e)
		accumulate(e)
	}
	weigh()
	divide()
	prefetch()
	gate("siluGateAVX2", "x·σ(x)", siluArgument)
	gate("geluTanhGateAVX2", "the tanh approximation of x·Φ(x)", geluTanhArgument)
	sumSquares()
	normalize("normalizeAVX2", "func(y, x, w *float32, scale float64, n int)", false)
	normalize("normalizeAddAVX2", "func(y, x, d, w *float32, scale float64, n int)", true)
	order := packedOrder()
	quantize("quantizeQ8x2AVX2", "q8x2", 16256, order)
	quantize("quantizeQ8AVX2", "q8", 127, order)
	widen()
	narrow()
	q8Keys()
	q8Values()
	sines()
	rotateHalves()
	rotatePairs()
	Generate()
}

func function(name, signature string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
}
