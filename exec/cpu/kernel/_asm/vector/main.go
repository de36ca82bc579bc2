// Command vector writes the AVX2 inner loops of kernels other than products.
package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

func main() {
	ConstraintExpr("!purego")
	for _, e := range []element{float, half} {
		scores(e)
		accumulate(e)
	}
	weigh()
	divide()
	fetch()
	gate("siluGateAVX2", "x·σ(x)", siluArgument)
	gate("geluTanhGateAVX2", "the tanh approximation of x·Φ(x)", geluTanhArgument)
	sumSquares()
	normalise("normaliseAVX2", "func(y, x, w *float32, scale float64, n int)", false)
	normalise("normaliseAddAVX2", "func(y, x, d, w *float32, scale float64, n int)", true)
	order := packedOrder()
	quantise("quantiseQ8x2AVX2", "q8x2", 16256, order)
	quantise("quantiseQ8AVX2", "q8", 127, order)
	widen()
	narrow()
	q8Keys()
	q8Values()
	sines()
	turnHalves()
	turnPairs()
	Generate()
}

func function(name, signature string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
}

var (
	constants   = map[uint32]Mem{}
	constants64 = map[uint64]Mem{}
)

// constant is a vector in memory of which each element is v.
func constant(v float32) Mem { return constantBits(math.Float32bits(v)) }

// constant64 is a vector in memory of which each element is v.
func constant64(v float64) Mem {
	bits := math.Float64bits(v)
	m, ok := constants64[bits]
	if !ok {
		m = GLOBL(fmt.Sprintf("all%016x", bits), RODATA|NOPTR)
		for i := range vector / 8 {
			DATA(8*i, U64(bits))
		}
		constants64[bits] = m
	}
	return m
}

func constantBits(bits uint32) Mem {
	m, ok := constants[bits]
	if !ok {
		m = GLOBL(fmt.Sprintf("all%08x", bits), RODATA|NOPTR)
		for i := range vector / 4 {
			DATA(4*i, U32(bits))
		}
		constants[bits] = m
	}
	return m
}
