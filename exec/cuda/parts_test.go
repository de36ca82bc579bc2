package cuda_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pesti/exec/cuda"
	"pesti/ops/ref"
)

// TestSum checks sums of one to four terms against additions one after the other, bit for bit.
func TestSum(t *testing.T) {
	b := newBench(t, "sm_75")
	for _, n := range []int{1, 255, 256, 1000} {
		rng := rand.New(rand.NewPCG(5, uint64(n)))
		x0, x1, x2, res := randoms(rng, n), randoms(rng, n), randoms(rng, n), randoms(rng, n)
		at := []cuda.Ptr{b.put(x0), b.put(x1), b.put(x2), b.put(res)}
		for _, terms := range [][]bool{{}, {true}, {true, true}, {false, false, true}, {true, true, true}} {
			p := cuda.Sum{X0: at[0], Y: b.alloc(4 * n), N: uint32(n)}
			want := slices.Clone(x0)
			for i, x := range [][]float32{x1, x2, res} {
				if i < len(terms) && terms[i] {
					*[]*cuda.Ptr{&p.X1, &p.X2, &p.Res}[i] = at[i+1]
					ref.Add(want, want, x)
				}
			}
			b.launch(p.Call())
			if !sameBits(get[float32](b, p.Y, n), want) {
				t.Errorf("n=%d terms %v differ", n, terms)
			}
		}
	}
}

// TestConcat checks rows of one to three parts against the reference.
func TestConcat(t *testing.T) {
	b := newBench(t, "sm_75")
	rng := rand.New(rand.NewPCG(6, 6))
	for _, widths := range [][]int{{7}, {1, 1}, {300, 33}, {5, 256, 64}} {
		for _, m := range []int{1, 3} {
			p := cuda.Concat{M: uint32(m)}
			var xs [][]float32
			width := 0
			for i, n := range widths {
				xs, width = append(xs, randoms(rng, m*n)), width+n
				*[]*cuda.Ptr{&p.X0, &p.X1, &p.X2}[i], *[]*uint32{&p.N0, &p.N1, &p.N2}[i] = b.put(xs[i]), uint32(n)
			}
			p.Y = b.alloc(4 * m * width)
			want := make([]float32, m*width)
			ref.Concat(want, widths, xs...)
			b.launch(p.Call())
			if !sameBits(get[float32](b, p.Y, m*width), want) {
				t.Errorf("%d rows of %v differ", m, widths)
			}
		}
	}
}
