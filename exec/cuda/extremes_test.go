package cuda_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pesti/exec/cuda"
	"pesti/gguf/numfmt"
	"pesti/gguf/quant"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

// extremeRows are rows of k elements: ordinary, zeros, with a NaN, with an infinity, huge, tiny, and so small that a
// block of them is quantized to zeros.
func extremeRows(rng *rand.Rand, k int) (x []float32, m int) {
	for i, change := range []func(row []float32){
		func(row []float32) {},
		func(row []float32) { clear(row) },
		func(row []float32) { row[k/2+3] = nan },
		func(row []float32) { row[k-1] = -inf },
		func(row []float32) { scaleBy(row, 1e30) },
		func(row []float32) { scaleBy(row, 1e-30) },
		func(row []float32) { scaleBy(row[:32], 1e-40) },
		func(row []float32) { clear(row[1:]); row[0] = math.MaxFloat32 / 2 },
	} {
		row := randoms(rng, k)
		change(row)
		x, m = append(x, row...), i+1
	}
	return x, m
}

func scaleBy(x []float32, by float32) {
	for i := range x {
		x[i] *= by
	}
}

// extremeMatrix has rows of random bits of a type. In some rows, scales are zero, the least and the largest number of
// their format, an infinity and a NaN. Types without scales have these values as first elements.
func extremeMatrix(rng *rand.Rand, kind string, k int) *matrix {
	halves := []uint16{0, 0x8000, 1, 0x7bff, 0xfbff, 0x7c00, 0x7e00}
	m := newMatrix(rng, kind, len(halves)+2, k)
	info, _ := quant.ByName(kind)
	row := len(m.file) / m.n
	for i, h := range halves {
		at := m.file[(i+1)*row:]
		value := numfmt.F16ToF32(h)
		switch {
		case len(info.Scales) > 0:
			for _, s := range info.Scales {
				binary.LittleEndian.PutUint16(at[s.At:], h)
			}
		case kind == "f32":
			binary.LittleEndian.PutUint32(at, math.Float32bits(value))
		case kind == "bf16":
			binary.LittleEndian.PutUint16(at, uint16(math.Float32bits(value)>>16))
		case kind == "f16":
			binary.LittleEndian.PutUint16(at, h)
		case kind == "f8_e4m3":
			at[0] = numfmt.F32ToE4M3(value)
		}
	}
	info.Dequantize(m.values, m.file)
	return m
}

// TestExtremes compares products of every type, for few and for many columns, with sums in float64.
// Finite results are close, overflow and NaN give results that are not finite, and no other row or
// column is affected.
func TestExtremes(t *testing.T) {
	for _, isa := range []string{"sm_75", "sm_80", "sm_89"} {
		b := newBench(t, isa)
		for _, exact := range []bool{false, true} {
			for _, l := range cuda.Layouts() {
				if !exact && !l.Integer || isa == "sm_80" && exact || isa == "sm_89" && l.Type != "f8_e4m3" {
					continue // has the same kernels as the target before
				}
				t.Run(fmt.Sprintf("%s exact=%v %s", isa, exact, l.Type), func(t *testing.T) {
					b.t = t
					rng := rand.New(rand.NewPCG(21, uint64(l.Code)))
					k := 2 * l.Block
					w := extremeMatrix(rng, l.Type, k)
					x, m := extremeRows(rng, k)
					testExtremes(b, w, x, m, exact, false)
					testExtremes(b, w, x, m, exact, true)
					for c := range m {
						testExtremes(b, w, x[c*k:(c+1)*k], 1, exact, false)
					}
				})
			}
		}
	}
}

func testExtremes(b *bench, w *matrix, x []float32, m int, exact, tiles bool) {
	b.t.Helper()
	k := w.k
	p := cuda.Product{X: b.put(x), K: uint32(k), M: uint32(m)}
	p.Ops[0] = cuda.Operand{Weight: b.weight(w), Out: b.alloc(4 * m * w.n)}
	switch {
	case !tiles:
		b.launch(p.Call(b.dev.Properties(), exact))
	case !exact:
		rounded := b.alloc(m * numfmt.Q8x2Bytes(k))
		b.launch(cuda.Norm{X: p.X, Y: rounded, N: p.K, M: p.M, Quantized: 1}.Call())
		p.X = rounded
		fallthrough
	default:
		b.launch(p.Tiles(exact))
	}
	if !exact {
		x = asQ8x2(x, k)
	}
	for i, g := range get[float32](b, p.Ops[0].Out, m*w.n) {
		want, size := dot(x[i/w.n*k:(i/w.n+1)*k], w.values[i%w.n*k:(i%w.n+1)*k])
		got := float64(g)
		switch {
		case !finite(want) || !finite(size):
			if finite(got) {
				b.t.Errorf("tiles=%v: column %d row %d is %v, expected %v", tiles, i/w.n, i%w.n, g, want)
			}
		case size > math.MaxFloat32: // a partial sum may overflow
		case !(math.Abs(got-want) <= 4e-7*size+1e-37):
			b.t.Errorf("tiles=%v: column %d row %d is %v, expected %v ± %v", tiles, i/w.n, i%w.n, g, want, 4e-7*size)
		}
	}
}

func finite(x float64) bool { return x-x == 0 }

// TestAttentionExtremes compares attention with the reference for equal scores, for scores so large
// that one position has all the weight, and for a NaN in a query, key or value, which must reach
// exactly the tokens that see it.
func TestAttentionExtremes(t *testing.T) {
	b := newBench(t, "sm_75")
	const bad = 21 // the changed token, in the middle of a block of tokens of the kernels
	for _, c := range []struct {
		name   string
		change func(q, k, v []float32) // changes one token
		all    bool                    // changes every token
	}{
		{"zeros", func(q, k, v []float32) { clear(q) }, true},
		{"large scores", func(q, k, v []float32) { scaleBy(q, 1e17); scaleBy(k, 1e17) }, true},
		{"large values", func(q, k, v []float32) { scaleBy(v, 1e37) }, true},
		{"a query is NaN", func(q, k, v []float32) { q[3] = nan }, false},
		{"a query is infinite", func(q, k, v []float32) { q[3] = inf }, false},
		{"a key is NaN", func(q, k, v []float32) { k[5] = nan }, false},
		{"a value is NaN", func(q, k, v []float32) { v[7] = nan }, false},
		{"a value is infinite", func(q, k, v []float32) { v[7] = -inf }, false},
	} {
		for _, window := range []int{0, 9} {
			l := layer{heads: 2, kvHeads: 1, headDim: 16, positions: 64, window: window, kv: "f32", steps: []int{40, 3}}
			rng := rand.New(rand.NewPCG(23, 0))
			var q, k, v [2][]float32
			for s, n := range []int{43, 2} {
				q[s], k[s], v[s] = randoms(rng, 32*n), randoms(rng, 16*n), randoms(rng, 16*n)
				for i := range n {
					if c.all || s == 0 && i == bad {
						c.change(q[s][32*i:][:32], k[s][16*i:][:16], v[s][16*i:][:16])
					}
				}
			}
			for _, how := range []way{together, stored, prefilled} {
				got := l.run(b, rng, l.steps, how, q, k, v)
				for s := range got {
					want, size := l.reference(q[s], k[s], v[s], len(q[s])/32), 1.0
					for _, x := range v[s] {
						if c.all {
							size = max(size, math.Abs(float64(x)))
						}
					}
					for i, w := range want {
						g := got[s][i]
						switch {
						case !finite(float64(w)):
							if finite(float64(g)) {
								t.Fatalf("%s, window %d, way %d: sequence %d token %d element %d is %v, expected %v", c.name, window, how, s, i/32, i%32, g, w)
							}
						case !(math.Abs(float64(g-w)) <= 3e-6*size):
							t.Fatalf("%s, window %d, way %d: sequence %d token %d element %d is %v, expected %v", c.name, window, how, s, i/32, i%32, g, w)
						}
					}
				}
			}
		}
	}
}
