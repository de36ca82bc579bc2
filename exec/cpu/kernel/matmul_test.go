package kernel

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pesti/exec/cpu/isa"
	"pesti/exec/plan"
	"pesti/gguf/numfmt"
	"pesti/gguf/quant"
	"pesti/ops/ref"
)

// product returns x·w in float64 and a bound for the error of float32 sums. Blocks are added one after
// the other, and each addition contributes half a unit in the last place of the partial sum. A partial
// sum may be larger than the weights, since a scale and a minimum can cancel.
func product(x, w []float32, parts float64) (sum, bound float64) {
	const block = 32
	var size float64
	for at := 0; at < len(x); at += block {
		var most, xs float64
		for i := at; i < min(at+block, len(x)); i++ {
			sum += float64(x[i]) * float64(w[i])
			most = max(most, math.Abs(float64(w[i])))
			xs += math.Abs(float64(x[i]))
		}
		size += most * xs
	}
	return sum, parts * size * float64(len(x)/block+8) * 0x1p-24
}

// TestMatmul compares every matmul kernel with float64 products of the dequantized operands, for odd
// shapes, and checks that a row's bits depend neither on other rows nor on the number of workers.
func TestMatmul(t *testing.T) {
	for _, mm := range runnable() {
		t.Run(mm.Name+" "+mm.ISA, func(t *testing.T) {
			t.Parallel()
			info, _ := quant.ByName(mm.Type.String())
			// An odd number of blocks, more and less than a span of 256 elements.
			ks := []int{info.BlockLen, 3 * info.BlockLen}
			switch {
			case info.BlockLen == 32:
				ks = append(ks, 8*32, 11*32)
			case info.BlockLen == 1:
				ks = []int{1, 31, 33, 300}
			}
			if mm.Act == "bf16" { // whole tiles, and more than are turned into pairs at a time
				ks = []int{max(info.BlockLen, tileK), 3 * max(info.BlockLen, tileK), 1280}
			}
			ns := []int{1, 2, 15, 16, 37}
			if mm.Act == "bf16" { // more than are multiplied at a time, and one panel of two
				ns = []int{1, 16, 37, 65, 70}
			}
			if testing.Short() { // slow under the race detector
				ks, ns = ks[1:2], ns[4:]
			}
			for _, k := range ks {
				for _, n := range ns {
					rng := rand.New(rand.NewPCG(uint64(k), uint64(n)))
					const most = 33
					c := newCall("matmul_group", "T", "rows", 16, intParam("k", k), intParam("n0", n))
					c.isa, c.scratch = mm.ISA, scratchOf(mm.Act, most, k)
					x := c.putActivations(rng, mm.Act, most, k)
					w := asUsed(mm.Act, c.putWeight(rng, "w0", mm.Name, mm.Type, n, k))
					c.pack("w0", mm, n, k)
					c.put("out0", make([]float32, most*n))
					out := c.mem["out0"].f32()

					c.run(t, 1, Run{T: most}, "out0")
					want := slices.Clone(out)
					for m := range most {
						for j := range n {
							sum, bound := product(x[m*k:(m+1)*k], w[j*k:(j+1)*k], 4)
							if got := float64(want[m*n+j]); !(math.Abs(got-sum) <= bound+1e-30) {
								t.Fatalf("k=%d n=%d: row %d, product %d is %v, expected %v ± %v", k, n, m, j, got, sum, bound)
							}
						}
					}
					for _, m := range []int{1, 2, 7, 31, 33} {
						for workers := 1; workers <= 3; workers++ {
							c.run(t, workers, Run{T: m}, "out0")
							if !sameBits(out[:m*n], want[:m*n]) {
								t.Fatalf("k=%d n=%d: %d rows on %d workers differ from %d rows on 1", k, n, m, workers, most)
							}
							for _, v := range out[m*n:] {
								if math.Float32bits(v) != 0xffffffff {
									t.Fatalf("k=%d n=%d: wrote beyond %d rows", k, n, m)
								}
							}
						}
					}
				}
			}
		})
	}
}

// TestReadOrders checks that the order in which weights are read changes no bit.
func TestReadOrders(t *testing.T) {
	const n, k = 9*panelRows - 3, 1024
	for _, mm := range runnable() {
		orders := ReadOrders(mm.Name, []string{mm.ISA})
		if orders == nil {
			continue
		}
		t.Run(mm.Name+" "+mm.ISA, func(t *testing.T) {
			t.Parallel()
			c := newGroup(t, rand.New(rand.NewPCG(1, 2)), mm, 1, k, []int{n})
			c.isa = mm.ISA
			out := c.mem["out0"].f32()
			c.run(t, 1, Run{T: 1}, "out0")
			want := slices.Clone(out)
			for _, r := range orders {
				c.choices = &Choices{ReadOrder: map[quant.Type]ReadOrder{mm.Type: r}}
				if c.run(t, 1, Run{T: 1}, "out0"); !sameBits(out, want) {
					t.Errorf("%v: other bits than with the default", r)
				}
			}
		})
	}
}

// TestMatmulLongRows checks that rows which take several calls of assembly have the bits of the portable kernel.
func TestMatmulLongRows(t *testing.T) {
	n, k := 5*panelRows+3, 1<<14+512
	if testing.Short() { // slow on an emulator, which runs no AVX2: its calls are longer
		n, k = panelRows+3, 1<<13+512
	}
	portable := map[string][]float32{}
	for _, mm := range runnableAndPortable() {
		if mm.Layout == "" || mm.Act != "q8x2" && mm.Act != "q8" {
			continue
		}
		if testing.Short() && (mm.Act == "q8" || !slices.Contains([]quant.Type{quant.Q8_0, quant.Q4_K, quant.Q6_K}, mm.Type)) {
			continue
		}
		for _, m := range []int{1, 9} {
			c := newGroup(t, rand.New(rand.NewPCG(7, 8)), mm, m, k, []int{n})
			c.isa = mm.ISA
			c.run(t, 1, Run{T: m}, "out0")
			name, got := fmt.Sprintf("%s of %d", mm.Name, m), c.mem["out0"].f32()
			if mm.ISA == "portable" {
				portable[name] = slices.Clone(got)
			} else if !sameBits(got, portable[name]) {
				t.Errorf("%s %s: other bits than the portable kernel", name, mm.ISA)
			}
		}
	}
}

func intParam(name string, v int) plan.Param { return plan.Param{Name: name, Value: int64(v)} }

// TestMatmulNames checks that every gemv kernel has its gemm kernel, and that kernels are named after
// their type, layout and activations.
func TestMatmulNames(t *testing.T) {
	for _, mm := range Matmuls() {
		shape, rest, _ := strings.Cut(mm.Name, ".")
		want := strings.ToLower(mm.Type.String()) + "." + mm.Act
		if mm.Layout != "" {
			want = strings.ToLower(mm.Type.String()) + "." + mm.Layout + "." + mm.Act
		}
		if rest != want || shape != "gemv" && shape != "gemm" {
			t.Errorf("%s is for %s with %s", mm.Name, mm.Type, mm.Act)
		}
		other := map[string]string{"gemv": "gemm.", "gemm": "gemv."}[shape] + rest
		if !slices.ContainsFunc(Matmuls(), func(m Matmul) bool { return m.Name == other }) {
			t.Errorf("there is a %s and no %s", mm.Name, other)
		}
	}
}

// TestMatmulExtremes multiplies the largest integers of each type with the largest activations
// of one sign, where sums come nearest to their bounds.
func TestMatmulExtremes(t *testing.T) {
	for _, mm := range runnable() {
		if mm.Act == "f32" || mm.Type == quant.F32 || mm.Type == quant.F16 || mm.Type == quant.BF16 {
			continue
		}
		for _, value := range []float32{1e4, -1e4, 1e30} {
			for _, fill := range []byte{0, 0x7f, 0x80, 0xff} {
				info, _ := quant.Lookup(mm.Type)
				const m, n = 9, 2*panelRows + 2
				k := 3 * info.BlockLen
				c := newCall("matmul_group", "T", "rows", 16, intParam("k", k), intParam("n0", n))
				c.isa, c.scratch = mm.ISA, scratchOf(mm.Act, m, k)
				x := c.setActivations(mm.Act, m, k, slices.Repeat([]float32{value}, m*k))
				c.putWeight(rand.New(rand.NewPCG(1, 2)), "w0", mm.Name, mm.Type, n, k)
				data := c.mem["w0"].data()
				for at := 0; at < len(data); at += info.BlockBytes {
					block := data[at : at+info.BlockBytes]
					for i := range block {
						block[i] = fill
					}
					for _, s := range info.Scales {
						block[s.At], block[s.At+1] = 0x00, 0x3c // 1.0
					}
				}
				w := make([]float32, n*k)
				info.Dequantize(w, data)
				asUsed(mm.Act, w)
				c.pack("w0", mm, n, k)
				c.put("out0", make([]float32, m*n))
				sum, bound := product(x[:k], w[:k], 8) // all tokens are equal, and all rows
				for _, tokens := range []int{1, m} {
					c.run(t, 1, Run{T: tokens}, "out0")
					for _, got := range c.mem["out0"].f32()[:tokens*n] {
						if !(math.Abs(float64(got)-sum) <= bound) {
							t.Fatalf("%s: %d tokens, weights of bytes %#x times %g: %v, expected %v ± %v", mm.Name, tokens, fill, value, got, sum, bound)
						}
					}
				}
			}
		}
	}
}

// TestMatmulNaN checks that a NaN in an activation row or a weight row appears in all products of that
// row and in no others.
func TestMatmulNaN(t *testing.T) {
	for _, mm := range runnable() {
		info, _ := quant.ByName(mm.Type.String())
		if !slices.Contains([]quant.Type{quant.F32, quant.F8E4M3, quant.Q4_0, quant.Q4_1, quant.Q5_0, quant.Q5_1, quant.Q8_0, quant.Q4_K, quant.Q5_K, quant.Q6_K}, mm.Type) {
			continue
		}
		const n, m = 2*panelRows + 5, 9
		k := 256
		rng := rand.New(rand.NewPCG(3, 4))
		c := newCall("matmul_group", "T", "rows", 16, intParam("k", k), intParam("n0", n))
		c.isa, c.scratch = mm.ISA, scratchOf(mm.Act, m, k)
		x := randoms(rng, m*k, 1)
		x[k+100] = float32(math.NaN())
		c.setActivations(mm.Act, m, k, x)
		c.putWeight(rng, "w0", mm.Name, mm.Type, n, k)
		row := c.mem["w0"].data()[3*k/info.BlockLen*info.BlockBytes:]
		if info.Scales == nil {
			copy(row, []byte{0xff, 0xff, 0xff, 0x7f})
		} else {
			copy(row[info.Scales[0].At:], []byte{0xff, 0x7f})
		}
		c.pack("w0", mm, n, k)
		c.put("out0", make([]float32, m*n))
		c.run(t, 1, Run{T: m}, "out0")
		for i, v := range c.mem["out0"].f32() {
			if want := i/n == 1 || i%n == 3; (v != v) != want {
				t.Errorf("%s: row %d, product %d is %v, expected NaN: %v", mm.Name, i/n, i%n, v, want)
			}
		}
	}
}

// TestMatmulGroup compares a group of three weight types, with biases and a residual that is also the
// output, with each product computed separately.
func TestMatmulGroup(t *testing.T) {
	const m, k = 10, 256
	ns := []int{37, 16, 5}
	types := []quant.Type{quant.Q5_0, quant.Q8_0, quant.Q6_K}
	rng := rand.New(rand.NewPCG(5, 6))
	c := newCall("matmul_group", "T", "rows", 16, intParam("k", k), intParam("n0", ns[0]), intParam("n1", ns[1]), intParam("n2", ns[2]))
	c.scratch = 40*k + 24576
	c.putActivations(rng, "q8x2", m, k)
	var want [3][]float32
	residual := randoms(rng, m*ns[0], 1)
	for i, n := range ns {
		id := fmt.Sprint(i)
		c.putWeight(rng, "w"+id, "gemv."+strings.ToLower(types[i].String())+".q8x2", types[i], n, k)
		single := newCall("matmul_group", "T", "rows", 16, intParam("k", k), intParam("n0", n))
		single.scratch = c.scratch
		for _, role := range []string{"x", "w" + id} {
			single.mem[strings.Replace(role, "w"+id, "w0", 1)] = c.mem[role]
			single.ops[strings.Replace(role, "w"+id, "w0", 1)] = c.ops[role]
		}
		single.put("out0", make([]float32, m*n))
		single.run(t, 1, Run{T: m}, "out0")
		want[i] = slices.Clone(single.mem["out0"].f32())
		if i < 2 {
			bias := randoms(rng, n, 1)
			c.put("bias"+id, bias)
			ref.AddBias(want[i], want[i], bias)
		}
		c.put("out"+id, make([]float32, m*n))
	}
	ref.Add(want[0], want[0], residual)
	c.mem["res"], c.ops["res"] = c.mem["out0"], c.ops["out0"]
	for workers := 1; workers <= 4; workers++ {
		copy(c.mem["out0"].f32(), residual)
		c.run(t, workers, Run{T: m}, "out1", "out2")
		for i := range ns {
			if !sameBits(c.mem[fmt.Sprint("out", i)].f32(), want[i]) {
				t.Errorf("%d workers: product %d differs from the product alone", workers, i)
			}
		}
	}
}

// TestShareRows checks that every row of a group belongs to one worker, and that workers have about
// equal numbers of bytes.
func TestShareRows(t *testing.T) {
	for _, ns := range [][]int{{1}, {16}, {17, 1, 1}, {896, 128, 128}, {64, 100000}, {151936}} {
		for workers := 1; workers <= 7; workers++ {
			owner := make([][]int, len(ns))
			heaviest, total := 0, 0
			for w := range workers {
				members := make([]member, len(ns))
				for i, n := range ns {
					members[i] = member{n: n, boundWeight: boundWeight{rowBytes: 100 * (i + 1)}}
				}
				shareRows(members, split{plan.Split{By: "rows", Unit: 16}, w, workers})
				load := 0
				for i, g := range members {
					if g.lo%16 != 0 && g.lo < g.hi {
						t.Errorf("%v on %d workers: worker %d begins inside a unit, at %d", ns, workers, w, g.lo)
					}
					for row := g.lo; row < g.hi; row++ {
						owner[i] = append(owner[i], row)
					}
					load += (g.hi - g.lo) * g.rowBytes
				}
				heaviest, total = max(heaviest, load), total+load
			}
			for i, n := range ns {
				if len(owner[i]) != n || n > 0 && (owner[i][0] != 0 || !slices.IsSorted(owner[i])) {
					t.Errorf("%v on %d workers: rows of member %d are not shared once each", ns, workers, i)
				}
			}
			if unit := 16 * 100 * len(ns); heaviest > total/workers+2*unit {
				t.Errorf("%v on %d workers: one has %d of %d bytes", ns, workers, heaviest, total)
			}
		}
	}
}

// TestGated compares act(gate·x) ⊙ (up·x) with the two products and ops/ref.
func TestGated(t *testing.T) {
	acts := map[string]func(dst, x []float32){"silu": ref.SiLU, "gelu_tanh": ref.GELUTanh, "gelu_erf": ref.GELUErf}
	for act, f := range acts {
		for _, format := range []string{"f32", "q8x2", "q8", "bf16"} {
			const m, k, n = 9, 96, 37
			rng := rand.New(rand.NewPCG(7, 8))
			c := newCall("gated_mlp", "T", "rows", 16, intParam("k", k), intParam("n", n), plan.Param{Name: "act", Value: act})
			c.scratch = scratchOf(format, m, k)
			x := c.putActivations(rng, format, m, k)
			gate := asUsed(format, c.putWeight(rng, "w0", "gemm.q4_0."+format, quant.Q4_0, n, k))
			up := asUsed(format, c.putWeight(rng, "w1", "gemm.q5_1."+format, quant.Q5_1, n, k))
			c.put("y", make([]float32, m*n))
			g, u := make([]float32, m*n), make([]float32, m*n)
			ref.Matmul(g, x, gate, k)
			ref.Matmul(u, x, up, k)
			f(g, g)
			ref.Mul(g, g, u)
			var first []float32
			for workers := 1; workers <= 3; workers++ {
				c.run(t, workers, Run{T: m}, "y")
				y := c.mem["y"].f32()
				for i := range y {
					if !(math.Abs(float64(y[i]-g[i])) <= 1e-6*(1+math.Abs(float64(g[i])))) {
						t.Fatalf("%s %s: element %d is %v, expected %v", act, format, i, y[i], g[i])
					}
				}
				if first == nil {
					first = slices.Clone(y)
				}
				if !sameBits(first, y) {
					t.Errorf("%s %s: %d workers differ from 1", act, format, workers)
				}
			}
		}
	}
}

// TestGatedRounds checks that a gated product with a quantized output has the bits of the quantized
// float32 output, for any number of tokens and workers.
func TestGatedRounds(t *testing.T) {
	const most, k, n = 33, 64, 96 * 7
	for _, set := range []string{"portable", "avx2"} {
		if _, err := isa.UpTo(set); err != nil {
			continue
		}
		for _, format := range []string{"f32", "q8x2", "q8", "bf16"} {
			c := newCall("gated_mlp", "T", "rows", 32, intParam("k", k), intParam("n", n), plan.Param{Name: "act", Value: "silu"})
			c.isa, c.scratch = set, scratchOf(format, most, k)
			rng := rand.New(rand.NewPCG(7, 8))
			c.putActivations(rng, format, most, k)
			c.putWeight(rng, "w0", "gemm.q4_0."+format, quant.Q4_0, n, k)
			c.putWeight(rng, "w1", "gemm.q5_1."+format, quant.Q5_1, n, k)
			y := c.put("y", make([]float32, most*n))
			c.run(t, 1, Run{T: most}, "y")
			wants := map[string][]byte{"bf16": make([]byte, most*2*n)}
			numfmt.EncodeBF16(wants["bf16"], y.f32())
			for name, f := range planarFormats {
				wants[name] = make([]byte, most*f.bytes(n))
				for m := range most {
					f.quantize(wants[name][m*f.bytes(n):][:f.bytes(n)], y.f32()[m*n:(m+1)*n])
				}
			}
			for rounded, want := range wants {
				out := c.add("y", rounded, len(want))
				for _, m := range []int{1, 2, 15, 16, 17, most} {
					for workers := 1; workers <= 3; workers++ {
						c.run(t, workers, Run{T: m}, "y")
						size := len(want) / most * m
						if !bytes.Equal(out.data()[:size], want[:size]) {
							t.Errorf("%s, %s to %s: %d tokens on %d workers are not what rounding gives", set, format, rounded, m, workers)
						}
						if bytes.Count(out.data()[size:], []byte{0xff}) != len(want)-size {
							t.Errorf("%s, %s to %s: wrote beyond %d tokens", set, format, rounded, m)
						}
					}
				}
			}
		}
	}
}

// TestMatmulRefuses checks that invalid steps are errors and not panics.
func TestMatmulRefuses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	base := func() *call {
		c := newCall("matmul_group", "T", "rows", 16, intParam("k", 64), intParam("n0", 3))
		c.scratch = 40*64 + 24576
		c.putActivations(rng, "f32", 2, 64)
		c.putWeight(rng, "w0", "gemv.q4_0.f32", quant.Q4_0, 3, 64)
		c.put("out0", make([]float32, 6))
		return c
	}
	cases := []struct {
		name, want string
		change     func(c *call)
	}{
		{"a kernel of another type", `weight w0 is Q4_0 with f32 activations, but its kernel is "gemv.q4_1.f32"`, func(c *call) { rename(c, "gemv.q4_1.f32") }},
		{"a kernel for other activations", `its kernel is "gemv.q4_0.q8x2"`, func(c *call) { rename(c, "gemv.q4_0.q8x2") }},
		{"an unknown kernel", `there is no matmul kernel "gemv.q9.f32"`, func(c *call) { rename(c, "gemv.q9.f32") }},
		{"a row that ends in a block", "k=65 is not a multiple of the 32 elements", func(c *call) { c.step.Params[0] = intParam("k", 65); c.scratch *= 2 }},
		{"little scratch", "is too small", func(c *call) { c.scratch = 100 }},
		{"no weight", "operand w0 is missing", func(c *call) { delete(c.ops, "w0") }},
		{"no parameter", "parameter n0 is missing", func(c *call) { c.step.Params = c.step.Params[:1] }},
		{"an unknown step kernel", `no kernel "frobnicate"`, func(c *call) { c.step.Kernel = "frobnicate" }},
	}
	for _, tc := range cases {
		c := base()
		tc.change(c)
		_, err := Bind(&Binding{Step: &c.step, Operands: c.ops, Scratch: newMemory(c.scratch).data(), Workers: 1}, []string{"portable"})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, expected one with %q", tc.name, err, tc.want)
		}
	}
}

func rename(c *call, kernel string) {
	o := c.ops["w0"]
	o.Kernel = kernel
	c.ops["w0"] = o
}
