package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pesti/exec/cuda"
	"pesti/gguf/numfmt"
	"pesti/ops/ref"
)

// activated is act(gate) · up in float64.
func activated(name string, gate, up float64) float64 {
	x, y := []float32{float32(gate)}, make([]float32, 1)
	map[string]func(dst, x []float32){"silu": ref.SiLU, "gelu_tanh": ref.GELUTanh, "gelu_erf": ref.GELUErf}[name](y, x)
	return float64(y[0]) * up
}

// dot returns x·w and the sum of the products' magnitudes, which bounds the rounding error.
func dot(x, w []float32) (sum, size float64) {
	for i, v := range x {
		p := float64(v) * float64(w[i])
		sum, size = sum+p, size+math.Abs(p)
	}
	return sum, size
}

// asQ8x2 returns rows of k elements as their nearest q8x2 values.
func asQ8x2(x []float32, k int) []float32 {
	y, row := make([]float32, len(x)), make([]byte, numfmt.Q8x2Bytes(k))
	for at := 0; at < len(x); at += k {
		numfmt.QuantizeQ8x2(row, x[at:at+k])
		numfmt.DequantizeQ8x2(y[at:at+k], row)
	}
	return y
}

// TestProducts checks gemv of each type against sums in float64, with and without bias, residual and scales of rows.
// The numbers of columns include ones that no kernel computes in a single pass.
func TestProducts(t *testing.T) {
	for _, exact := range []bool{false, true} {
		b := newBench(t, "sm_75")
		for _, l := range cuda.Layouts() {
			if !exact && !l.Integer {
				continue
			}
			for i, m := range []int{1, 2, 3, 5, 9, 4, 8} {
				t.Run(fmt.Sprintf("exact=%v %s m=%d", exact, l.Type, m), func(t *testing.T) {
					b.t = t
					rng := rand.New(rand.NewPCG(5, uint64(m)))
					k, n := l.Block*(1+i%5), []int{37, 1, 70}[i%3]
					testProduct(b, rng, l.Type, n, k, m, exact, i%2 == 0)
				})
			}
		}
	}
}

// TestTiles does the same for gemm, with sizes just below and just above whole tiles and whole steps along k.
func TestTiles(t *testing.T) {
	for _, isa := range []string{"sm_75", "sm_80"} {
		b := newBench(t, isa)
		for _, exact := range []bool{false, true} {
			for _, l := range cuda.Layouts() {
				if !exact && !l.Integer || exact && isa == "sm_80" {
					continue
				}
				t.Run(fmt.Sprintf("%s exact=%v %s", isa, exact, l.Type), func(t *testing.T) {
					b.t = t
					rng := rand.New(rand.NewPCG(9, uint64(l.Code)))
					testTiles(b, rng, l.Type, 65, 3*l.Block, 67, exact, true)
					testTiles(b, rng, l.Type, 1, l.Block, 1, exact, false)
				})
			}
		}
	}
}

func testTiles(b *bench, rng *rand.Rand, kind string, n, k, m int, exact, extras bool) {
	b.t.Helper()
	newCase(b, rng, kind, n, k, m, exact, extras).test(func(p cuda.Product) (cuda.Call, error) {
		if !exact {
			rounded := b.alloc(m * numfmt.Q8x2Bytes(k))
			b.launch(cuda.Norm{X: p.X, Y: rounded, N: p.K, M: p.M, Quantized: 1}.Call())
			p.X = rounded
		}
		return p.Tiles(exact)
	})
}

func testProduct(b *bench, rng *rand.Rand, kind string, n, k, m int, exact, extras bool) {
	b.t.Helper()
	newCase(b, rng, kind, n, k, m, exact, extras).test(func(p cuda.Product) (cuda.Call, error) {
		return p.Call(b.dev.Properties(), exact)
	})
}

// A productCase is a product of one weight, with optional bias, residual and row scales.
type productCase struct {
	b                 *bench
	exact             bool
	w                 *matrix
	x                 []float32
	bias, res, scales []float32
}

func newCase(b *bench, rng *rand.Rand, kind string, n, k, m int, exact, extras bool) *productCase {
	c := &productCase{b, exact, newMatrix(rng, kind, n, k), randoms(rng, m*k), nil, nil, nil}
	if extras {
		c.bias, c.res = randoms(rng, n), randoms(rng, m*n)
		if kind == "f8_e4m3" {
			c.scales = randoms(rng, n)
		}
	}
	return c
}

func (c *productCase) test(call func(cuda.Product) (cuda.Call, error)) {
	b := c.b
	b.t.Helper()
	n, k := c.w.n, c.w.k
	m := len(c.x) / k
	out := b.alloc(4 * m * n)
	p := cuda.Product{X: b.put(c.x), K: uint32(k), M: uint32(m)}
	p.Ops[0] = cuda.Operand{Weight: b.weight(c.w), Out: out}
	if c.bias != nil {
		p.Ops[0].Bias, p.Residual = b.put(c.bias), b.put(c.res)
	}
	if c.scales != nil {
		p.Ops[0].Weight.Scales = b.put(c.scales)
	}
	b.launch(call(p))
	x := c.x
	if !c.exact {
		x = asQ8x2(x, k)
	}
	for i, g := range get[float32](b, out, m*n) {
		want, size := dot(x[i/n*k:(i/n+1)*k], c.w.values[i%n*k:(i%n+1)*k])
		if c.scales != nil {
			s := float64(c.scales[i%n])
			want, size = want*s, size*math.Abs(s)
		}
		if c.bias != nil {
			bias, res := float64(c.bias[i%n]), float64(c.res[i])
			want, size = want+bias+res, size+math.Abs(bias)+math.Abs(res)
		}
		if !(math.Abs(float64(g)-want) <= 4e-7*size) {
			b.t.Fatalf("%d rows of %d, column %d row %d is %v, expected %v ± %v", n, k, i/n, i%n, g, want, 4e-7*size)
		}
	}
}

// TestFP8 checks products with FP8 weights for GPUs with FP8 instructions.
func TestFP8(t *testing.T) {
	b := newBench(t, "sm_89")
	for m := range 3 {
		testProduct(b, rand.New(rand.NewPCG(10, uint64(m))), "f8_e4m3", 37, 96, m+1, true, true)
	}
}

// TestProductGroup checks that a group of three weights of different types with a norm has the bits
// of each product alone on a normed x, and that a column has the same bits alone.
func TestProductGroup(t *testing.T) {
	b := newBench(t, "sm_75")
	rng := rand.New(rand.NewPCG(6, 0))
	const k, m = 512, 6
	x, norm := randoms(rng, m*k), randoms(rng, k)
	ws := []*matrix{newMatrix(rng, "q5_0", 40, k), newMatrix(rng, "q8_0", 33, k), newMatrix(rng, "q6_k", 65, k)}
	normed := b.alloc(4 * m * k)
	xs, ns := b.put(x), b.put(norm)
	b.launch(cuda.Norm{X: xs, W: ns, Y: normed, N: k, M: m, Eps: 1e-5}.Call())
	for _, exact := range []bool{false, true} {
		p := cuda.Product{X: xs, Norm: ns, K: k, M: m, Eps: 1e-5}
		var single [][]float32
		for i, w := range ws {
			p.Ops[i] = cuda.Operand{Weight: b.weight(w), Out: b.alloc(4 * m * w.n)}
			var rows []float32
			for c := range m {
				out := b.alloc(4 * w.n)
				one := cuda.Product{X: normed + cuda.Ptr(4*k*c), K: k, M: 1}
				one.Ops[0] = cuda.Operand{Weight: p.Ops[i].Weight, Out: out}
				b.launch(one.Call(b.dev.Properties(), exact))
				rows = append(rows, get[float32](b, out, w.n)...)
			}
			single = append(single, rows)
		}
		b.launch(p.Call(b.dev.Properties(), exact))
		for i, w := range ws {
			if !sameBits(get[float32](b, p.Ops[i].Out, m*w.n), single[i]) {
				t.Errorf("exact=%v: weight %d of the group differs from itself alone", exact, i)
			}
		}
	}
}

// TestGated checks act(gate) ⊙ up against the reference of each activation, for few columns and for many.
func TestGated(t *testing.T) {
	b := newBench(t, "sm_80")
	rng := rand.New(rand.NewPCG(7, 0))
	const k, m, n = 256, 3, 50
	x := randoms(rng, m*k)
	gate, up := newMatrix(rng, "q4_k", n, k), newMatrix(rng, "q6_k", n, k)
	for _, name := range []string{"silu", "gelu_tanh", "gelu_erf"} {
		for _, kernel := range []string{"gemv_1", "gemv_4", "gemv_f32_4", "gemm", "gemm_f32"} {
			exact := strings.Contains(kernel, "f32")
			act, ok := cuda.ActivationOf(name)
			if !ok {
				t.Fatal(name)
			}
			p := cuda.Product{X: b.put(x), K: k, M: m, Act: act}
			p.Ops[0], p.Ops[1] = cuda.Operand{Weight: b.weight(gate), Out: b.alloc(4 * m * n)}, cuda.Operand{Weight: b.weight(up)}
			rows := m
			switch {
			case kernel == "gemv_1":
				p.M, rows = 1, 1
				b.launch(p.Call(b.dev.Properties(), exact))
			case strings.HasPrefix(kernel, "gemv"):
				b.launch(p.Call(b.dev.Properties(), exact))
			case !exact:
				rounded := b.alloc(m * numfmt.Q8x2Bytes(k))
				b.launch(cuda.Norm{X: p.X, Y: rounded, N: k, M: m, Quantized: 1}.Call())
				p.X = rounded
				fallthrough
			default:
				b.launch(p.Tiles(exact))
			}
			from := x
			if !exact {
				from = asQ8x2(x, k)
			}
			for i, g := range get[float32](b, p.Ops[0].Out, rows*n) {
				row, r := from[i/n*k:(i/n+1)*k], i%n
				dg, sg := dot(row, gate.values[r*k:(r+1)*k])
				du, su := dot(row, up.values[r*k:(r+1)*k])
				want := activated(name, dg, du)
				bound := 1e-6*math.Abs(want) + 5e-7*(sg*math.Abs(du)*1.2+su*math.Abs(dg))
				if !(math.Abs(float64(g)-want) <= bound) {
					t.Fatalf("%s %s: element %d is %v, expected %v ± %v", kernel, name, i, g, want, bound)
				}
			}
		}
	}
}

// TestNaN checks that a NaN affects only its column, and that zeros and huge values give correct results.
func TestNaN(t *testing.T) {
	b := newBench(t, "sm_75")
	rng := rand.New(rand.NewPCG(8, 0))
	const k, m, n = 96, 4, 33
	x := randoms(rng, m*k)
	x[k+40], x[2*k+3] = float32(math.NaN()), float32(math.Inf(1))
	for i := range k {
		x[3*k+i] = 0
	}
	w := newMatrix(rng, "q8_0", n, k)
	for _, exact := range []bool{false, true} {
		p := cuda.Product{X: b.put(x), K: k, M: m}
		p.Ops[0] = cuda.Operand{Weight: b.weight(w), Out: b.alloc(4 * m * n)}
		b.launch(p.Call(b.dev.Properties(), exact))
		for i, v := range get[float32](b, p.Ops[0].Out, m*n) {
			switch c := i / n; {
			case c == 0 && v != v, c == 3 && v != 0:
				t.Fatalf("exact=%v: column %d has %v", exact, c, v)
			case c == 1 && v == v:
				t.Fatalf("exact=%v: a NaN became %v", exact, v)
			case c == 2 && v-v == 0:
				t.Fatalf("exact=%v: an infinity became %v", exact, v)
			}
		}
	}
}
