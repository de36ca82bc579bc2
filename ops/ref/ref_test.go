package ref

import (
	"math"
	"math/big"
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"pesti/gguf/numfmt"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

func random(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// near fails unless got and want agree to about one unit in the last place of float32.
func near(t *testing.T, what string, got float32, want float64) {
	t.Helper()
	if math.Abs(float64(got)-want) > 1.2e-7*math.Abs(want)+1e-37 || (got != got) != (want != want) {
		t.Errorf("%s: %v, expected %v", what, got, want)
	}
}

func equal(t *testing.T, what string, got []float32, want ...float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, expected %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
			t.Errorf("%s[%d]: %v, expected %v", what, i, got[i], want[i])
		}
	}
}

func TestGetRows(t *testing.T) {
	table := []float32{1, 2, 3, 4, 5, 6}
	dst := make([]float32, 6)
	if err := GetRows(dst, table, []int32{2, 0, 2}, 2, 10); err != nil {
		t.Fatal(err)
	}
	equal(t, "rows", dst, 50, 60, 10, 20, 50, 60)
	for _, id := range []int32{-1, 3, math.MaxInt32, math.MinInt32} {
		if err := GetRows(dst, table, []int32{0, id}, 2, 1); err == nil {
			t.Errorf("id %d: no error", id)
		}
	}
	if err := GetRows(nil, table, nil, 2, 1); err != nil {
		t.Error(err)
	}
}

func TestRMSNorm(t *testing.T) {
	dst := make([]float32, 4)
	RMSNorm(dst, []float32{3, 4, 0, 0}, []float32{1, 2, 3, 4}, 4, 0)
	equal(t, "one group", dst, 1.2, 3.2, 0, 0)
	RMSNorm(dst, []float32{3, 4, 0, 0}, []float32{1, 2}, 2, 1e-6)
	near(t, "first of two groups", dst[0], 3/math.Sqrt(12.5+1e-6))
	near(t, "second of two groups", dst[3], 0)
	RMSNorm(dst, []float32{3e38, 3e38, 3e38, -3e38}, []float32{1, 1, 1, 1}, 4, 1e-6)
	equal(t, "huge", dst, 1, 1, 1, -1)
	RMSNorm(dst, []float32{1, nan, 1, 1}, []float32{1, 1}, 2, 1e-6)
	if dst[0] == dst[0] || dst[2] != dst[2] {
		t.Errorf("NaN must spread over its group alone: %v", dst)
	}
	x := random(1, 96)
	w := random(2, 96)
	got := make([]float32, 96)
	RMSNorm(got, x, w, 96, 1e-5)
	sum := new(big.Float).SetPrec(200)
	for _, v := range x {
		f := new(big.Float).SetPrec(200).SetFloat64(float64(v))
		sum.Add(sum, f.Mul(f, f))
	}
	mean, _ := sum.Quo(sum, big.NewFloat(96)).Float64()
	for i := range got {
		near(t, "random", got[i], float64(w[i])*float64(x[i])/math.Sqrt(mean+1e-5))
	}
}

func TestMatmul(t *testing.T) {
	for _, c := range [][3]int{{0, 3, 4}, {1, 1, 1}, {2, 3, 5}, {3, 2, 96}, {1, 0, 4}} {
		m, n, k := c[0], c[1], c[2]
		x, w := random(3, m*k), random(4, n*k)
		got := make([]float32, m*n)
		Matmul(got, x, w, k)
		for i := range m {
			for j := range n {
				sum := new(big.Float).SetPrec(400)
				for l := k - 1; l >= 0; l-- {
					a := new(big.Float).SetPrec(400).SetFloat64(float64(x[i*k+l]))
					sum.Add(sum, a.Mul(a, big.NewFloat(float64(w[j*k+l]))))
				}
				want, _ := sum.Float64()
				near(t, "matmul", got[i*n+j], want)
			}
		}
	}
	dst := []float32{1, 2}
	Matmul(dst, nil, nil, 0)
	equal(t, "empty sums", dst, 0, 0)
	Matmul(dst[:1], []float32{1e30, 1, -1e30}, []float32{1e8, 1, 1e8}, 3)
	equal(t, "cancels in float64", dst[:1], 0)
	Matmul(dst[:1], []float32{3e38, 3e38}, []float32{1, -1}, 2)
	equal(t, "no overflow", dst[:1], 0)
	Matmul(dst[:1], []float32{nan, 1}, []float32{0, 1}, 2)
	equal(t, "NaN", dst[:1], nan)
}

func TestElementwise(t *testing.T) {
	x := []float32{1, -2, 3, nan}
	got := make([]float32, 4)
	Add(got, x, []float32{10, 20, 30, 40})
	equal(t, "add", got, 11, 18, 33, nan)
	Mul(got, x, []float32{10, 20, 30, 40})
	equal(t, "mul", got, 10, -40, 90, nan)
	AddBias(got, x, []float32{100, 200})
	equal(t, "add_bias", got, 101, 198, 103, nan)
	Scale(got, x, 0.5)
	equal(t, "scale", got, 0.5, -1, 1.5, nan)
	Scale(x, x, 2)
	equal(t, "scale in place", x, 2, -4, 6, nan)
}

// The activations against values from Python's math module.
func TestActivations(t *testing.T) {
	x := []float32{0, 1, -1, 3, -3, 0.1, -10, 20}
	for _, c := range []struct {
		name string
		f    func(dst, x []float32)
		want []float64
	}{
		{"silu", SiLU, []float64{0, 0.73105857863000487925, -0.26894142136999512075, 2.8577223804672999, -0.14227761953270012, 0.0524979187478939986, -0.00045397868702434392, 19.999999958776927636}},
		{"gelu_tanh", GELUTanh, []float64{0, 0.84119199060827676, -0.15880800939172324, 2.996362607918227, -0.0036373920817729943, 0.053982751045435165, 0, 20}},
		{"gelu_erf", GELUErf, []float64{0, 0.84134474606854294859, -0.15865525393145705141, 2.9959503059051097, -0.0040496940948903, 0.05398278372770290, -7.6198530241605261e-23, 20}},
	} {
		got := make([]float32, len(x))
		c.f(got, x)
		for i := range x {
			if diff := math.Abs(float64(got[i]) - c.want[i]); diff > 1e-7*(1+math.Abs(c.want[i])) {
				t.Errorf("%s(%v) = %v, expected %v", c.name, x[i], got[i], c.want[i])
			}
		}
		special := []float32{nan, inf, -1e30, 1e30}
		c.f(special, special)
		equal(t, c.name, special, nan, inf, float32(math.Copysign(0, -1)), 1e30)
	}
	far := []float32{-10}
	GELUErf(far, far)
	near(t, "gelu_erf keeps its relative precision", far[0], -7.6198530241605261e-23)
}

// Rope rotates pairs of dims, like a complex multiplication by e^(i·angle).
func TestRope(t *testing.T) {
	const heads, dim, rot = 3, 10, 8
	pos := []int32{0, 1, 7, 4095}
	freqs := []float32{1, 2, 8, 0.5}
	x := random(5, len(pos)*heads*dim)
	for _, halves := range []bool{false, true} {
		r := Rotary{HeadDim: dim, Rot: rot, Base: 10000, FreqScale: 0.25, Magnitude: 1, Freqs: freqs, Halves: halves}
		got := make([]float32, len(x))
		r.Rope(got, x, pos)
		for ti, p := range pos {
			for h := range heads {
				at := (ti*heads + h) * dim
				for i := range rot / 2 {
					a, b := at+2*i, at+2*i+1
					if halves {
						a, b = at+i, at+i+rot/2
					}
					theta := float64(p) / 4 / math.Exp(math.Log(10000)*float64(i)/(rot/2)) / float64(freqs[i])
					want := complex(float64(x[a]), float64(x[b])) * cmplx.Exp(complex(0, theta))
					if cmplx.Abs(complex(float64(got[a]), float64(got[b]))-want) > 3e-7*cmplx.Abs(want) {
						t.Errorf("halves %v pos %d dim %d: %v %v, expected %v", halves, p, i, got[a], got[b], want)
					}
				}
				equal(t, "dims beyond rot", got[at+rot:at+dim], x[at+rot:at+dim]...)
			}
		}
		inPlace := append([]float32(nil), x...)
		r.Rope(inPlace, inPlace, pos)
		equal(t, "in place", inPlace, got...)
		equal(t, "position 0", got[:heads*dim], x[:heads*dim]...)
	}
	r := Rotary{HeadDim: 2, Rot: 2, Base: 10000, FreqScale: 1, Magnitude: 1}
	quarter := []float32{1, 0}
	r.Rope(quarter, quarter, []int32{1})
	near(t, "cos 1", quarter[0], math.Cos(1))
	near(t, "sin 1", quarter[1], math.Sin(1))
	r.Rope(nil, nil, nil)
	r.Rot = 0
	r.Rope(quarter, []float32{5, 6}, []int32{3})
	equal(t, "no rotation", quarter, 5, 6)
}

// TestRamp checks YaRN: pairs up to the ramp's begin keep their speed, pairs from its end on are
// scaled in full, and only rotated dims are multiplied by the magnitude.
func TestRamp(t *testing.T) {
	r := Rotary{HeadDim: 14, Rot: 12, Base: 16, FreqScale: 0.25, Freqs: []float32{1, 1, 1, 1, 1, 2}, RampLow: 1, RampHigh: 4, Magnitude: 1.5}
	// 1/4 of the speed is lost by 0, 0, 1/3, 2/3, 1, 1.
	for i, want := range []float64{1, math.Pow(16, -1./6), math.Pow(16, -1./3) * 0.75, math.Pow(16, -1./2) * 0.5, math.Pow(16, -2./3) / 4, math.Pow(16, -5./6) / 8} {
		if got := r.Speed(i); math.Abs(got-want) > 1e-15 {
			t.Errorf("pair %d turns by %v, expected %v", i, got, want)
		}
	}
	x := random(6, 28)
	got := make([]float32, 28)
	r.Rope(got, x, []int32{0, 9})
	for i := range 12 {
		near(t, "magnitude at position 0", got[i], 1.5*float64(x[i]))
	}
	for i := 14; i < 26; i += 2 {
		near(t, "length", float32(math.Hypot(float64(got[i]), float64(got[i+1]))), 1.5*math.Hypot(float64(x[i]), float64(x[i+1])))
	}
	equal(t, "dims beyond rot", append(got[12:14:14], got[26:]...), append(x[12:14:14], x[26:]...)...)
	r.RampLow, r.RampHigh = 0, 0.001 // all but the first pair
	if r.Speed(0) != 1 || r.Speed(1) != math.Pow(16, -1./6)/4 {
		t.Errorf("a steep ramp: speeds %v, %v", r.Speed(0), r.Speed(1))
	}
}

func TestSoftmax(t *testing.T) {
	got := make([]float32, 3)
	Softmax(got, []float32{-inf, 5, -inf}, 3)
	equal(t, "all but one masked", got, 0, 1, 0)
	Softmax(got, []float32{-inf, -inf, -inf}, 3)
	equal(t, "all masked", got, 0, 0, 0)
	Softmax(got, []float32{3e38, 3e38, -3e38}, 3)
	equal(t, "huge", got, 0.5, 0.5, 0)
	Softmax(got, []float32{1, nan, 1}, 3)
	equal(t, "NaN", got, nan, nan, nan)
	two := make([]float32, 4)
	Softmax(two, []float32{0, float32(math.Log(3)), 7, 7}, 2)
	for i, want := range []float64{0.25, 0.75, 0.5, 0.5} {
		near(t, "rows", two[i], want)
	}
	Softmax(nil, nil, 3)
	x := random(6, 100)
	Softmax(x, x, 100)
	sum := 0.0
	for _, v := range x {
		sum += float64(v)
	}
	if math.Abs(sum-1) > 1e-6 {
		t.Errorf("sums to %v", sum)
	}
}

// caches returns the three layouts of one cache of two sequences.
func caches(width, positions int, f16 bool) map[string]*KV {
	kv := func(c KV) *KV {
		c.Width, c.Positions = width, positions
		if f16 {
			c.F16 = make([]uint16, 2*positions*width)
		} else {
			c.F32 = make([]float32, 2*positions*width)
		}
		return &c
	}
	pages := make([]int32, 2*positions/PageTokens)
	for i := range pages {
		pages[i] = int32(len(pages) - 1 - i)
	}
	return map[string]*KV{
		"plain": kv(KV{}),
		"paged": kv(KV{Pages: pages, P: positions / PageTokens}),
		"ring":  kv(KV{Ring: true}),
	}
}

func TestKV(t *testing.T) {
	for _, format := range []string{"f32", "f16", "fp8"} {
		for name, c := range caches(3, 32, format == "f16") {
			if format == "fp8" {
				c.F32, c.FP8 = nil, make([]uint8, len(c.F32))
			}
			want := make(map[[2]int][]float32)
			for seq := range 2 {
				for pos := range 32 {
					row := random(uint64(seq*32+pos), 3)
					c.Store(seq, pos, row)
					for i := range row {
						switch format {
						case "f16":
							row[i] = numfmt.F16ToF32(numfmt.F32ToF16(row[i]))
						case "fp8":
							row[i] = numfmt.E4M3ToF32(numfmt.F32ToE4M3(row[i]))
						}
					}
					want[[2]int{seq, pos}] = row
				}
			}
			got := make([]float32, 3)
			for key, row := range want {
				c.Load(got, key[0], key[1])
				equal(t, name, got, row...)
			}
		}
	}
	ring := caches(1, 16, false)["ring"]
	ring.Store(1, 16+3, []float32{7})
	got := make([]float32, 1)
	ring.Load(got, 1, 3)
	equal(t, "a ring wraps", got, 7)
}

// Attention against a dense computation in float64 over lists of visible positions.
func TestAttention(t *testing.T) {
	const heads, kvHeads, dim, positions = 6, 2, 5, 48
	pos, seq := []int32{0, 31, 47, 20}, []int32{0, 1, 1, 0}
	q := random(7, len(pos)*heads*dim)
	for _, window := range []int{0, 1, 7, 100} {
		for name, keys := range caches(kvHeads*dim, positions, false) {
			values := caches(kvHeads*dim, positions, false)[name]
			for s := range 2 {
				for p := range positions {
					KVWrite(keys, random(uint64(100+s*positions+p), kvHeads*dim), []int32{int32(p)}, []int32{int32(s)})
					KVWrite(values, random(uint64(900+s*positions+p), kvHeads*dim), []int32{int32(p)}, []int32{int32(s)})
				}
			}
			h := Heads{Heads: heads, KVHeads: kvHeads, HeadDim: dim, Window: window, Positions: positions}
			scores := make([]float32, len(pos)*heads*positions)
			out := make([]float32, len(pos)*heads*dim)
			row, acc := make([]float32, kvHeads*dim), make([]float64, dim)
			AttnScores(scores, q, keys, pos, seq, h, 0.3, row)
			probs := append([]float32(nil), scores...)
			Softmax(probs, probs, positions)
			AttnValues(out, probs, values, pos, seq, h, row, acc)
			for ti, p := range pos {
				for i := range heads {
					group := i / 3
					at := ti*heads + i
					total, sums := 0.0, make([]float64, dim)
					for j := range positions {
						distance := int(p) - j
						score := scores[at*positions+j]
						if distance < 0 || window > 0 && distance >= window {
							equal(t, "masked", []float32{score}, -inf)
							continue
						}
						k, v := random(uint64(100+int(seq[ti])*positions+j), kvHeads*dim), random(uint64(900+int(seq[ti])*positions+j), kvHeads*dim)
						product := 0.0
						for d := range dim {
							product += float64(q[at*dim+d]) * float64(k[group*dim+d])
						}
						if math.Abs(float64(score)-0.3*product) > 1e-6 {
							t.Errorf("%s window %d token %d head %d position %d: score %v, expected %v", name, window, ti, i, j, score, 0.3*product)
						}
						e := math.Exp(0.3 * product)
						total += e
						for d := range dim {
							sums[d] += e * float64(v[group*dim+d])
						}
					}
					for d := range dim {
						if got := float64(out[at*dim+d]); math.Abs(got-sums[d]/total) > 1e-6 {
							t.Errorf("%s window %d token %d head %d dim %d: %v, expected %v", name, window, ti, i, d, got, sums[d]/total)
						}
					}
				}
			}
		}
	}
}

func TestNothingAllocates(t *testing.T) {
	c := caches(4, 16, true)["paged"]
	x, row := random(8, 8), make([]float32, 4)
	scores, acc := make([]float32, 32), make([]float64, 4)
	pos, seq := []int32{3}, []int32{0}
	h := Heads{Heads: 2, KVHeads: 1, HeadDim: 4, Positions: 16}
	r := Rotary{HeadDim: 4, Rot: 4, Base: 10000, FreqScale: 1, Magnitude: 1}
	wide, packed := random(9, 64), make([]byte, numfmt.Q8x2Bytes(64))
	if n := testing.AllocsPerRun(10, func() {
		KVWrite(c, row, pos, seq)
		AttnScores(scores, x, c, pos, seq, h, 1, row)
		Softmax(scores, scores, 16)
		AttnValues(x, scores, c, pos, seq, h, row, acc)
		r.Rope(x, x, pos)
		RMSNorm(x, x, row, 4, 1e-6)
		Matmul(x[:2], row, x, 4)
		numfmt.QuantizeQ8x2(packed, wide)
		numfmt.DequantizeQ8x2(wide, packed)
		if GetRows(row, x, pos[:0], 4, 1) != nil {
			t.Error("rows")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
