package kernel

import (
	"math"
	"math/rand/v2"
	"testing"

	"pesti/exec/cpu/isa"
	"pesti/gguf/numfmt"
)

// tilesOf returns random bf16 activations, in rows xStep elements apart, and random weights as pairs.
func tilesOf(rng *rand.Rand, panels, k, xStep, tokens int) (x *memory, w *memory) {
	x, w = newMemory(2*((tokens-1)*xStep+k)), newMemory(4*panels*k/2*panelRows)
	for i, n := 0, len(x.data())/2; i < n; i++ {
		view[uint16](x.data())[i] = numfmt.F32ToBF16FTZ(float32(rng.NormFloat64()))
	}
	for i, n := 0, len(w.data())/2; i < n; i++ {
		view[uint16](w.data())[i] = numfmt.F32ToBF16FTZ(float32(rng.NormFloat64() * 0.05))
	}
	return x, w
}

// TestMultiplyTiles compares products of bf16 numbers with float64. The normalized square error of
// float32 sums in blocks of 32 is below 1e-13.
func TestMultiplyTiles(t *testing.T) {
	const panels, k, tokens = 2, 1024, 3
	x, w := tilesOf(rand.New(rand.NewPCG(1, 1)), panels, k, k, tokens)
	y := make([]float32, tokens*tileWidth)
	portableMultiply(y, view[uint32](w.data()), panels, k, view[uint16](x.data()), k, tokens)
	var off, size float64
	for i := range tokens {
		for r := range panels * panelRows {
			sum := 0.0
			for e := range k {
				pair := view[uint16](w.data())[2*((r/panelRows*k+e)/2*panelRows+r%panelRows)+e%2]
				sum += float64(numfmt.BF16ToF32(view[uint16](x.data())[i*k+e])) * float64(numfmt.BF16ToF32(pair))
			}
			d := float64(y[i*tileWidth+r]) - sum
			off, size = off+d*d, size+sum*sum
		}
	}
	if nmse := off / size; !(nmse < 1e-13) {
		t.Errorf("normalized square error %.1e, expected at most 1e-13", nmse)
	}
}

// TestMultipliers checks that every multiplier gives the bits of the portable one, adds to y, and writes
// nothing else, for numbers of tokens around whole tiles, and that infinite and NaN activations affect
// only their token.
func TestMultipliers(t *testing.T) {
	for _, m := range assemblyMultipliers {
		if _, err := isa.UpTo(m.isa); err != nil {
			t.Logf("%s is not tested: %v", m.isa, err)
			continue
		}
		for _, panels := range []int{2, 4} {
			for _, k := range []int{32, 96, 1024} {
				for _, tokens := range []int{1, 16, 31, 32, 33, 64, 97} {
					rng := rand.New(rand.NewPCG(uint64(k), uint64(tokens)))
					xStep := k + 64
					x, w := tilesOf(rng, panels, k, xStep, tokens)
					if tokens > 1 {
						view[uint16](x.data())[xStep] = 0x7f80            // ∞
						view[uint16](x.data())[(tokens-1)*xStep] = 0x7fc0 // NaN
					}
					y := [2]*memory{newMemory(4 * tokens * tileWidth), newMemory(4 * tokens * tileWidth)}
					for i, v := range randoms(rng, tokens*tileWidth, 1) {
						y[0].f32()[i], y[1].f32()[i] = v, v
					}
					for i, f := range []multiplier{portableMultiply, m.multiply} {
						f(y[i].f32(), view[uint32](w.data()), panels, k, view[uint16](x.data()), xStep, tokens)
					}
					if !y[1].intact() || !x.intact() || !w.intact() {
						t.Fatalf("%s: %d panels, k=%d, %d tokens: bytes around operands were written", m.isa, panels, k, tokens)
					}
					for i, got := range y[1].f32() {
						if want := y[0].f32()[i]; math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
							t.Fatalf("%s: %d panels, k=%d, %d tokens: product %d of token %d is %v, expected %v", m.isa, panels, k, tokens, i%tileWidth, i/tileWidth, got, want)
						}
					}
				}
			}
		}
	}
}
