// Command vector generates the inner loops of all kernels other than matrix products, for AVX2 and AVX-512.
package main

import . "github.com/mmcloughlin/avo/build"

func main() {
	ConstraintExpr("!purego")
	for _, e := range []element{float, half} {
		scores(e)
		scores512(e)
		accumulate(e)
		accumulate512(e)
	}
	weigh()
	weigh512()
	prefetch()
	sumSquares()
	order := packedOrder()
	for _, w := range []width{avx2, avx512} {
		gate(w, "silu", "x·σ(x)", siluArgument)
		gate(w, "geluTanh", "the tanh approximation of x·Φ(x)", geluTanhArgument)
		normalize(w, false)
		normalize(w, true)
		quantize(w, "q8x2", 16256, order)
		quantize(w, "q8", 127, order)
		widen(w)
		narrow(w)
		divide(w)
	}
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
