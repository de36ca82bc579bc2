package kernel

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pesti/exec/plan"
	"pesti/gguf/numfmt"
	"pesti/gguf/quant"
	"pesti/ops/ref"
)

func floatParam(name string, v float64) plan.Param { return plan.Param{Name: name, Value: v} }

// TestTable checks that the table has exactly the CPU kernels of exec/plan's signature table.
func TestTable(t *testing.T) {
	var names, want []string
	for _, r := range Table() {
		names = append(names, r.Name)
	}
	for _, s := range plan.Kernels() {
		if !plan.IsCUDAKernel(s.Name) && !plan.IsTransfer(s.Name) { // transfers have no CPU kernel: devices copy
			want = append(want, s.Name)
		}
	}
	for _, name := range names {
		if !slices.Contains(want, name) {
			t.Errorf("kernel %s has no signature, expected one in exec/plan/kernels.go", name)
		}
	}
	for _, name := range want {
		if !slices.Contains(names, name) {
			t.Errorf("signature %s has no kernel, expected a row in table of kernel.go, or in referenceRows for ref.*", name)
		}
	}
}

// TestSplit checks that shares are whole units, cover all items once, and differ by one unit.
func TestSplit(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 100, 1000} {
		for _, unit := range []int64{0, 1, 16} {
			for workers := 1; workers <= 5; workers++ {
				next, least, most := 0, math.MaxInt, 0
				for w := range workers {
					lo, hi := split{plan.Split{By: "tokens", Unit: unit}, w, workers}.of(n)
					if lo != next || hi < lo {
						t.Fatalf("%d by %d on %d workers: worker %d has [%d,%d), expected to begin at %d", n, unit, workers, w, lo, hi, next)
					}
					least, most, next = min(least, hi-lo), max(most, hi-lo), hi
				}
				if next != n || most-least > 2*max(int(unit), 1)-1 {
					t.Errorf("%d by %d on %d workers: shares end at %d, from %d to %d items", n, unit, workers, next, least, most)
				}
			}
		}
	}
	for w, want := range [][2]int{{0, 9}, {9, 9}} {
		if lo, hi := (split{plan.Split{By: "one"}, w, 2}).of(9); lo != want[0] || hi != want[1] {
			t.Errorf("one: worker %d has [%d,%d), expected %v", w, lo, hi, want)
		}
		if lo, hi := (split{plan.Split{By: "each"}, w, 2}).of(9); lo != 0 || hi != 9 {
			t.Errorf("each: worker %d has [%d,%d), expected all of 9", w, lo, hi)
		}
	}
}

// A rowCase is a step that works row by row, with its expected result.
type rowCase struct {
	name  string
	call  func(rng *rand.Rand, rows string) *call
	out   string // role of the output
	width int    // of its rows, in float32 or bytes
	want  func(c *call) []float32
	ulps  float64 // that float32 results may differ by, 0 for same bits
}

const rowN, rowM = 96, 7

// rowCases returns cases for all kernels without heads.
func rowCases() []rowCase {
	x := func(c *call, role string) []float32 { return c.mem[role].f32() }
	unary := func(kernel string, f func(y, x []float32), params ...plan.Param) rowCase {
		return rowCase{name: kernel, out: "y", width: rowN,
			call: func(rng *rand.Rand, rows string) *call {
				c := newCall(kernel, rows, "one", 1, append(params, intParam("n", rowN))...)
				c.put("x", randoms(rng, rowM*rowN, 3))
				c.put("w", randoms(rng, rowN, 1))
				c.put("bias", randoms(rng, rowN, 1))
				c.put("y", make([]float32, rowM*rowN))
				return c
			},
			want: func(c *call) []float32 {
				y := make([]float32, rowM*rowN)
				f(y, x(c, "x"))
				return y
			}}
	}
	binary := func(kernel string, f func(y, a, b []float32)) rowCase {
		return rowCase{name: kernel, out: "y", width: rowN,
			call: func(rng *rand.Rand, rows string) *call {
				c := newCall(kernel, rows, "one", 1, intParam("n", rowN))
				c.put("a", randoms(rng, rowM*rowN, 3))
				c.put("b", randoms(rng, rowM*rowN, 3))
				c.put("y", make([]float32, rowM*rowN))
				return c
			},
			want: func(c *call) []float32 {
				y := make([]float32, rowM*rowN)
				f(y, x(c, "a"), x(c, "b"))
				return y
			}}
	}
	embed := func(kernel, ids string, typ quant.Type, layout string, scale float64) rowCase {
		const vocab = 50
		var table []float32
		return rowCase{name: kernel + " " + typ.String() + " " + layout, out: "y", width: rowN, ulps: 0,
			call: func(rng *rand.Rand, rows string) *call {
				c := newCall(kernel, rows, "one", 1, intParam("n", rowN), intParam("vocab", vocab), floatParam("scale", scale))
				c.putInts(ids, []int32{0, vocab - 1, 3, 3, 17, 20, 1})
				table = c.putWeight(rng, "table", "", typ, vocab, rowN)
				c.pack("table", Matmul{Type: typ, Layout: layout}, vocab, rowN)
				c.put("y", make([]float32, rowM*rowN))
				return c
			},
			want: func(c *call) []float32 {
				y := make([]float32, rowM*rowN)
				ref.GetRows(y, table, view[int32](c.mem[ids].data()), rowN, scale)
				return y
			}}
	}
	const eps = 1e-5
	norm := func(w []float32) func(y, x []float32) {
		return func(y, x []float32) { ref.RMSNorm(y, x, w, rowN, eps) }
	}
	cases := []rowCase{
		embed("embed", "tokens", quant.Q8_0, "", 1),
		embed("embed", "tokens", quant.F32, "", 0),
		embed("embed", "tokens", quant.Q5_1, "", 32),
		embed("embed", "tokens", quant.F8E4M3, "", 1),
		embed("embed", "tokens", quant.Q8_0, "panel16", 1),
		embed("embed", "tokens", quant.Q5_0, "panel16", 32),
		embed("embed", "tokens", quant.BF16, "panel16", 0),
		embed("embed", "tokens", quant.F8E4M3, "panel16", 1),
		embed("ref.get_rows", "ids", quant.Q4_1, "panel16", 1.5),
		embed("ref.get_rows", "ids", quant.F8E4M3, "", 2),
		embed("ref.get_rows", "ids", quant.F16, "", 1),
		embed("ref.get_rows", "ids", quant.F32, "", 0),
		embed("ref.get_rows", "ids", quant.Q4_0, "", 1.5),
		unary("copy", func(y, x []float32) { copy(y, x) }),
		unary("ref.silu", ref.SiLU),
		unary("ref.gelu_tanh", ref.GELUTanh),
		unary("ref.gelu_erf", ref.GELUErf),
		unary("ref.scale", func(y, x []float32) { ref.Scale(y, x, 0.3) }, floatParam("factor", 0.3)),
		binary("ref.add", ref.Add),
		binary("ref.mul", ref.Mul),
	}
	withRole := func(kernel, role string, f func(w []float32) func(y, x []float32), ulps float64, params ...plan.Param) {
		rc := unary(kernel, nil, params...)
		rc.ulps = ulps
		rc.want = func(c *call) []float32 {
			y := make([]float32, rowM*rowN)
			f(x(c, role))(y, x(c, "x"))
			return y
		}
		cases = append(cases, rc)
	}
	withRole("norm", "w", norm, 1, floatParam("eps", eps))
	withRole("ref.rms_norm", "w", func(w []float32) func(y, x []float32) {
		return func(y, x []float32) { ref.RMSNorm(y, x, w[:32], 32, eps) }
	}, 0, floatParam("eps", eps), intParam("group", 32))
	withRole("ref.add_bias", "bias", func(b []float32) func(y, x []float32) {
		return func(y, x []float32) { ref.AddBias(y, x, b) }
	}, 0)

	add := binary("norm_add", nil)
	add.ulps = 1
	add.call = func(rng *rand.Rand, rows string) *call {
		c := newCall("norm_add", rows, "one", 1, intParam("n", rowN), floatParam("eps", eps))
		c.put("d", randoms(rng, rowM*rowN, 3))
		c.put("x", randoms(rng, rowM*rowN, 3))
		c.put("w", randoms(rng, rowN, 1))
		c.put("y", make([]float32, rowM*rowN))
		return c
	}
	add.want = func(c *call) []float32 {
		y := make([]float32, rowM*rowN)
		ref.RMSNorm(y, x(c, "d"), x(c, "w"), rowN, eps)
		ref.Add(y, y, x(c, "x"))
		return y
	}
	cases = append(cases, add)

	refMatmul := func(name string, typ quant.Type) rowCase {
		var w []float32
		return rowCase{name: name, out: "y", width: 5,
			call: func(rng *rand.Rand, rows string) *call {
				c := newCall("ref.matmul", rows, "one", 1, intParam("k", rowN), intParam("n", 5))
				c.scratch = 4 * rowN
				c.put("x", randoms(rng, rowM*rowN, 1))
				w = c.putWeight(rng, "w", "", typ, 5, rowN)
				c.put("y", make([]float32, rowM*5))
				return c
			},
			want: func(c *call) []float32 {
				y := make([]float32, rowM*5)
				ref.Matmul(y, x(c, "x"), w, rowN)
				return y
			}}
	}
	cases = append(cases, refMatmul("ref.matmul", quant.Q5_0), refMatmul("ref.matmul F8_E4M3", quant.F8E4M3))
	return cases
}

// TestRowKernels compares the kernels that work row by row with ops/ref, for each split, and checks
// that they write only their rows.
func TestRowKernels(t *testing.T) { eachSet(t, testRowKernels) }

func testRowKernels(t *testing.T, v *vectors) {
	for _, tc := range rowCases() {
		t.Run(tc.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(9, 10))
			for _, rows := range []string{"T", "R"} {
				c := tc.call(rng, rows)
				c.isa = v.isa
				want := tc.want(c)
				for _, by := range []string{"one", "each", "tokens"} {
					sig, ok := plan.LookupKernel(c.step.Kernel)
					if !ok {
						t.Fatalf("kernel %s has no signature", c.step.Kernel)
					}
					if by == "tokens" && slices.Contains(sig.Splits, "rows") { // the split by rows reads the same share
						by = "rows"
					}
					c.step.Split = plan.Split{By: by, Unit: 1}
					for _, m := range []int{0, 1, 5, rowM} {
						for workers := 1; workers <= 3; workers++ {
							r := Run{T: m, R: rowM}
							if rows == "R" {
								r = Run{T: rowM, R: m}
							}
							c.run(t, workers, r, tc.out)
							got := c.mem[tc.out].f32()
							for i := range got {
								switch {
								case i >= m*tc.width:
									if math.Float32bits(got[i]) != 0xffffffff {
										t.Fatalf("%s of %d %s on %d workers: wrote element %d", by, m, rows, workers, i)
									}
								case !within(got[i], want[i], tc.ulps):
									t.Fatalf("%s of %d %s on %d workers: element %d is %v, expected %v", by, m, rows, workers, i, got[i], want[i])
								}
							}
						}
					}
				}
			}
		})
	}
}

// otherCases names the tests that compare a kernel with ops/ref or float64, for kernels without a rowCase.
var otherCases = map[string]string{
	"quantize":     "TestQuantizedRows",
	"select":       "TestSelect",
	"matmul_group": "TestMatmul",
	"gated_mlp":    "TestGated",
	"attention":    "TestAttention",

	"ref.rope":        "TestRefAttention",
	"ref.kv_write":    "TestRefAttention",
	"ref.attn_scores": "TestRefAttention",
	"ref.softmax":     "TestRefAttention",
	"ref.attn_values": "TestRefAttention",
}

// TestEveryKernelHasACase checks that each kernel has a case in rowCases, or else is in otherCases.
func TestEveryKernelHasACase(t *testing.T) {
	has, exists := map[string]bool{}, map[string]bool{}
	for _, tc := range rowCases() {
		has[tc.call(rand.New(rand.NewPCG(9, 10)), "T").step.Kernel] = true
	}
	for _, r := range Table() {
		switch test, other := otherCases[r.Name]; {
		case !has[r.Name] && !other:
			t.Errorf("kernel %s has no case in rowCases that compares it with ops/ref; for a kernel that does not work row by row, write a test and name it in otherCases", r.Name)
		case has[r.Name] && other:
			t.Errorf("kernel %s has a case in rowCases, expected it not to be in otherCases with %s", r.Name, test)
		}
		exists[r.Name] = true
	}
	for name := range otherCases {
		if !exists[name] {
			t.Errorf("otherCases names the kernel %s, which does not exist", name)
		}
	}
}

// within reports whether a and b differ by at most ulps units in the last place.
func within(a, b float32, ulps float64) bool {
	if ulps == 0 {
		return math.Float32bits(a) == math.Float32bits(b)
	}
	return math.Abs(float64(a)-float64(b)) <= ulps*math.Abs(float64(b))*0x1p-23
}

// TestQuantizedRows checks that norm and quantize write rounded rows as ops/ref would.
func TestQuantizedRows(t *testing.T) { eachSet(t, testQuantizedRows) }

func testQuantizedRows(t *testing.T, v *vectors) {
	formats := []struct {
		name  string
		size  int // of a row
		round func(dst []byte, x []float32)
	}{
		{"q8x2", numfmt.Q8x2Bytes(rowN), numfmt.QuantizeQ8x2},
		{"q8", numfmt.Q8Bytes(rowN), numfmt.QuantizeQ8},
		{"bf16", 2 * rowN, numfmt.EncodeBF16},
	}
	rng := rand.New(rand.NewPCG(11, 12))
	for _, kernel := range []string{"norm", "quantize"} {
		for _, f := range formats {
			c := newCall(kernel, "T", "tokens", 1, intParam("n", rowN), floatParam("eps", 1e-6))
			c.isa, c.scratch = v.isa, 4*rowN
			x := randoms(rng, rowM*rowN, 3)
			x[5] = float32(math.Inf(1))
			x[rowN+7], x[rowN+8] = float32(math.NaN()), 1e-39
			w := randoms(rng, rowN, 1)
			c.put("x", x)
			c.put("w", w)
			y := c.add("y", f.name, rowM*f.size)
			for workers := 1; workers <= 3; workers++ {
				c.run(t, workers, Run{T: rowM}, "y")
				for m := range rowM {
					row, want := make([]float32, rowN), make([]byte, f.size)
					if kernel == "norm" {
						portable.rmsNorm(row, x[m*rowN:(m+1)*rowN], w, 1e-6)
					} else {
						copy(row, x[m*rowN:])
					}
					f.round(want, row)
					if !slices.Equal(y.data()[m*f.size:(m+1)*f.size], want) {
						t.Errorf("%s to %s on %d workers: row %d differs", kernel, f.name, workers, m)
					}
				}
			}
		}
	}
}

// TestNoRotation checks that a frequency scale of 0 means no rotation and not a default.
func TestNoRotation(t *testing.T) {
	const heads, dim = 3, 8
	c := newCall("ref.rope", "T", "one", 1, intParam("heads", heads), intParam("head_dim", dim), intParam("rot", dim),
		floatParam("base", testBase), floatParam("freq_scale", 0),
		floatParam("ramp_low", 0), floatParam("ramp_high", 0), floatParam("magnitude", 1), plan.Param{Name: "layout", Value: "pairs"})
	x := randoms(rand.New(rand.NewPCG(17, 18)), 2*heads*dim, 1)
	c.put("x", x)
	c.putInts("pos", []int32{1, 1000})
	y := c.put("y", make([]float32, len(x)))
	c.run(t, 1, Run{T: 2}, "y")
	if !sameBits(y.f32(), x) {
		t.Errorf("ref.rope with a frequency scale of 0 rotates: %v, expected %v", y.f32(), x)
	}
	b := &binder{Binding: &Binding{Step: &c.step}}
	if r := b.rope(nil); b.err != nil || !slices.Equal(r.speed, make([]float64, dim/2)) {
		t.Errorf("attention rotates at speeds %v, error %v, expected zeros", r.speed, b.err)
	}
}

// TestSelect checks that the wanted rows are copied in the given order, and none if none is wanted.
func TestSelect(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	c := newCall("select", "R", "tokens", 1, intParam("n", rowN))
	x := randoms(rng, rowM*rowN, 1)
	c.put("x", x)
	c.putInts("rows", []int32{6, 0, 6})
	c.put("y", make([]float32, 3*rowN))
	for workers := 1; workers <= 2; workers++ {
		c.run(t, workers, Run{T: rowM, R: 3}, "y")
		y := c.mem["y"].f32()
		for i, row := range []int{6, 0, 6} {
			if !sameBits(y[i*rowN:(i+1)*rowN], x[row*rowN:(row+1)*rowN]) {
				t.Errorf("%d workers: row %d is not row %d of x", workers, i, row)
			}
		}
		c.run(t, workers, Run{T: rowM, R: 0}, "y")
		if math.Float32bits(y[0]) != 0xffffffff {
			t.Errorf("%d workers: wrote a row where none is wanted", workers)
		}
	}
}

// TestInPlace checks the kernels whose output may share an operand's buffer.
func TestInPlace(t *testing.T) { eachSet(t, testInPlace) }

func testInPlace(t *testing.T, v *vectors) {
	tested := 0
	for _, tc := range rowCases() {
		c := tc.call(rand.New(rand.NewPCG(15, 16)), "T")
		sig, ok := plan.LookupKernel(c.step.Kernel)
		if !ok {
			t.Fatalf("kernel %s has no signature", c.step.Kernel)
		}
		i := slices.IndexFunc(sig.Operands, func(o plan.Operand) bool { return o.Role == "y" })
		role := sig.Operands[i].Alias
		if c.mem[role] == nil { // the kernel has no such operand, or the case leaves an optional one out
			continue
		}
		tested++
		c.isa, c.step.Split = v.isa, plan.Split{By: "each"}
		want := tc.want(c)
		c.mem["y"], c.ops["y"] = c.mem[role], c.ops[role]
		c.run(t, 1, Run{T: rowM})
		for i, got := range c.mem["y"].f32() {
			if !within(got, want[i], tc.ulps) {
				t.Fatalf("%s in place: element %d is %v, expected %v", tc.name, i, got, want[i])
			}
		}
	}
	if tested < 10 {
		t.Errorf("%d kernels were tested in place, expected 10 or more", tested)
	}
}
