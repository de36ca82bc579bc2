package ops_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pesti/graph"
	"pesti/ops"
)

// model has two small blocks of basic ops with all features of real models: grouped heads, biases,
// head norms, both layouts of RoPE, frequencies, a window, and the three activations.
const model = `graph tiny (T <= 8, S <= 2, R <= 8, C <= 32)
  @embd    : f32[11, 32]
  @norm    : f32[32]
  @wq      : f32[32, 32]
  @wk      : f32[16, 32]
  @wv      : f32[16, 32]
  @bq      : f32[32]
  @bk      : f32[16]
  @headnorm : f32[8]
  @freqs   : f32[3]
  @gate    : f32[64, 32]
  @up      : f32[64, 32]
  @down    : f32[32, 64]

  %tokens : i32[T] = input {dtype: "i32", sym: "T"}
  %pos    : i32[T] = input {dtype: "i32", sym: "T"}
  %seq    : i32[T] = input {dtype: "i32", sym: "T"}
  %rows   : i32[R] = input {dtype: "i32", sym: "R"}
  %embd   : f32[T, 32] = get_rows @embd, %tokens {scale: 1.5}

  %blk.0.q, %blk.0.k, %blk.0.v : f32[T, 32], f32[T, 16], f32[T, 16] = qkv %embd, @wq, @wk, @wv, @bq, @bk, _
  %blk.0.cache_k : kv[C, 16] = state {width: 16}
  %blk.0.cache_v : kv[C, 16] = state {width: 16}
  %blk.0.attn, %blk.0.cache_k.new, %blk.0.cache_v.new : f32[T, 32], kv[C, 16], kv[C, 16] = attention %blk.0.q, %blk.0.k, %blk.0.v, %pos, %seq, %blk.0.cache_k, %blk.0.cache_v, @headnorm, @headnorm, @freqs {base: 10000.0, eps: 1e-06, freq_scale: 0.5, head_dim: 8, heads: 4, kv_heads: 2, layout: "pairs", rot: 6, magnitude: 1.25, ramp_high: 2.0, ramp_low: 0.5, scale: 0.35, window: 5}
  %blk.0.x : f32[T, 32] = norm_add %blk.0.attn, @norm, %embd {eps: 1e-06}

  %blk.1.normed : q8x2[T, 32] = norm_quantize %blk.0.x, @norm {eps: 1e-06}
  %blk.1.q, %blk.1.k, %blk.1.v : f32[T, 32], f32[T, 16], f32[T, 16] = qkv %blk.1.normed, @wq, @wk, @wv, _, _, _
  %blk.1.cache_k : kv[C, 16] = state {width: 16}
  %blk.1.cache_v : kv[C, 16] = state {width: 16}
  %blk.1.attn, %blk.1.cache_k.new, %blk.1.cache_v.new : f32[T, 32], kv[C, 16], kv[C, 16] = attention %blk.1.q, %blk.1.k, %blk.1.v, %pos, %seq, %blk.1.cache_k, %blk.1.cache_v, _, _, _ {base: 100.0, head_dim: 8, heads: 4, kv_heads: 2, layout: "halves", rot: 8, scale: 0.35}
  %blk.1.attn_q : q8x2[T, 32] = quantize %blk.1.attn
  %blk.1.x : f32[T, 32] = matmul %blk.1.attn_q, @wq, %blk.0.x
  %blk.1.gated : f32[T, 64] = gated_mlp %blk.1.x, @gate, @up {act: "gelu_tanh"}
  %blk.1.down : f32[T, 32] = matmul %blk.1.gated, @down, _
  %blk.1.out : f32[T, 32] = add %blk.1.x, %blk.1.down

  %last   : f32[R, 32] = select_rows %blk.1.out, %rows
  %logits : f32[R, 11] = matmul %last, @embd, _
  output %logits
`

func parse(t *testing.T, text string) *graph.Graph {
	t.Helper()
	g, err := graph.Parse(text, ops.Lookup)
	if err != nil {
		t.Fatal(err)
	}
	if err := graph.Verify(g); err != nil {
		t.Fatal(err)
	}
	return g
}

// weights returns random elements of a weight that depend only on its name.
func weights(w *graph.Value) ([]float32, error) {
	seed, size := uint64(0), int64(1)
	for _, c := range w.Name {
		seed = seed*131 + uint64(c)
	}
	for _, d := range w.Type.Shape {
		size *= d.N
	}
	r := rand.New(rand.NewPCG(seed, 7))
	x := make([]float32, size)
	for i := range x {
		x[i] = float32(r.NormFloat64() / 3)
	}
	return x, nil
}

// step evaluates some positions of one sequence and returns the logits of all of them.
func step(t *testing.T, g *graph.Graph, env *ops.Env, tokens []int32, seq, from int) []float32 {
	t.Helper()
	in := map[string][]int32{"tokens": tokens}
	for i := range tokens {
		in["pos"] = append(in["pos"], int32(from+i))
		in["seq"] = append(in["seq"], int32(seq))
		in["rows"] = append(in["rows"], int32(i))
	}
	env.Inputs = in
	got, err := ops.Eval(g, env, "logits")
	if err != nil {
		t.Fatal(err)
	}
	return got["logits"].F32
}

var prompt = []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 10}

// The same prompt in chunks of any length, batched with another sequence, gives the same bits.
func TestChunkedEvaluation(t *testing.T) {
	g := parse(t, model)
	for _, f16 := range []bool{false, true} {
		whole := step(t, g, &ops.Env{Weights: weights, F16: f16}, prompt, 0, 0)
		if len(whole) != 11*len(prompt) {
			t.Fatalf("%d logits", len(whole))
		}
		for chunk := 1; chunk < len(prompt); chunk += 3 {
			env := &ops.Env{Weights: weights, F16: f16}
			var chunked []float32
			for at := 0; at < len(prompt); at += chunk {
				chunked = append(chunked, step(t, g, env, prompt[at:min(at+chunk, len(prompt))], 1, at)...)
				step(t, g, env, []int32{7}, 0, at)
			}
			if !slices.Equal(whole, chunked) {
				t.Errorf("f16 %v: chunks of %d change the logits", f16, chunk)
			}
		}
	}
}

// Clearing the caches changes the next logits, except where a window of 5 no longer sees them.
func TestStates(t *testing.T) {
	g := parse(t, model)
	env := &ops.Env{Weights: weights}
	step(t, g, env, prompt[:4], 0, 0)
	with := step(t, g, env, prompt[4:5], 0, 4)
	env.Reset()
	if without := step(t, g, env, prompt[4:5], 0, 4); slices.Equal(with, without) {
		t.Error("the caches change nothing")
	}
	one := parse(t, strings.Replace(model, "output %logits", "output %blk.0.x", 1))
	last := func(tokens []int32) []float32 {
		env := &ops.Env{Weights: weights}
		env.Inputs = map[string][]int32{"tokens": tokens, "rows": nil}
		for i := range tokens {
			env.Inputs["pos"] = append(env.Inputs["pos"], int32(i))
			env.Inputs["seq"] = append(env.Inputs["seq"], 0)
		}
		got, err := ops.Eval(one, env, "blk.0.x")
		if err != nil {
			t.Fatal(err)
		}
		return got["blk.0.x"].F32[32*(len(tokens)-1):]
	}
	base := last([]int32{0, 1, 2, 3, 4, 5})
	if !slices.Equal(base, last([]int32{9, 1, 2, 3, 4, 5})) {
		t.Error("a token outside the window of 5 is seen")
	}
	if slices.Equal(base, last([]int32{0, 9, 2, 3, 4, 5})) {
		t.Error("the oldest token inside the window of 5 is not seen")
	}
}

// The expansion has only basic ops, verifies, keeps the outputs, and has the documented names.
func TestExpandAll(t *testing.T) {
	g := parse(t, model)
	before := graph.Print(g)
	basic, err := ops.ExpandAll(g)
	if err != nil {
		t.Fatal(err)
	}
	if graph.Print(g) != before {
		t.Error("ExpandAll changes its operand")
	}
	if err := graph.Verify(basic); err != nil {
		t.Fatal(err)
	}
	for _, n := range basic.Nodes {
		if ops.Of(n.Op).Expand != nil {
			t.Errorf("%s (%s) is left", n.Name(), n.Op.Name)
		}
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if w := basic.Value(v.Name); w == nil || !w.Type.Equal(v.Type) {
				t.Errorf("%s has become %v", v.Name, w)
			}
		}
	}
	for _, name := range []string{"blk.0.q.matmul", "blk.0.attn.q_norm", "blk.0.attn.k_rope", "blk.0.attn.scores", "blk.0.attn.probs", "blk.0.x.norm", "blk.1.normed.norm", "blk.1.gated.act"} {
		if basic.Value(name) == nil {
			t.Errorf("no value %s", name)
		}
	}
	if basic.Value("blk.1.attn.q_norm") != nil || basic.Value("blk.1.q.matmul") != nil {
		t.Error("an absent norm or bias is expanded")
	}
	again, err := ops.ExpandAll(basic)
	if err != nil {
		t.Fatal(err)
	}
	if err := graph.Equal(basic, again); err != nil {
		t.Error(err)
	}
}

// Every fused op against formulas written out here, in float64.
func TestFusedOps(t *testing.T) {
	const head = `graph g (T <= 4, S <= 1, R <= 4, C <= 16)
  @x : f32[3, 32]
  @a : f32[8, 32]
  @b : f32[8, 32]
  @n : f32[32]
  %ids : i32[T] = input {dtype: "i32", sym: "T"}
  %x : f32[T, 32] = get_rows @x, %ids
`
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	at := func(name string, shape ...int64) []float64 {
		v := &graph.Value{Name: name}
		for _, n := range shape {
			v.Type.Shape = append(v.Type.Shape, graph.N(n))
		}
		x, _ := weights(v)
		f := make([]float64, len(x))
		for i := range x {
			f[i] = float64(x[i])
		}
		return f
	}
	x, a, b, n := at("x", 3, 32)[64:], at("a", 8, 32), at("b", 8, 32), at("n", 32)
	dot := func(w []float64, row int) (sum float64) {
		for i := range 32 {
			sum += x[i] * w[32*row+i]
		}
		return sum
	}
	norm := func(i int) float64 {
		sum := 0.0
		for _, v := range x {
			sum += v * v
		}
		return x[i] * n[i] / math.Sqrt(sum/32+0.01)
	}
	for _, c := range []struct {
		node string
		n    int
		tol  float64
		want func(i int) float64
	}{
		{`%y : f32[T, 8] = gated_mlp %x, @a, @b {act: "silu"}`, 8, 1e-6, func(i int) float64 { return dot(a, i) * sigmoid(dot(a, i)) * dot(b, i) }},
		{`%y : f32[T, 8] = gated_mlp %x, @a, @b {act: "gelu_erf"}`, 8, 1e-6, func(i int) float64 {
			return dot(a, i) * (1 + math.Erf(dot(a, i)/math.Sqrt2)) / 2 * dot(b, i)
		}},
		{`%y : f32[T, 8] = gated_mlp %x, @a, @b {act: "gelu_tanh"}`, 8, 1e-6, func(i int) float64 {
			g := dot(a, i)
			return g * sigmoid(2*math.Sqrt(2/math.Pi)*(g+0.044715*g*g*g)) * dot(b, i) // tanh by the sigmoid
		}},
		{`%y : f32[T, 32] = norm_add %x, @n, %x {eps: 0.01}`, 32, 1e-6, func(i int) float64 { return x[i] + norm(i) }},
		{`%y : q8x2[T, 32] = norm_quantize %x, @n {eps: 0.01}`, 32, 1e-4, norm},
		{`%y : q8[T, 32] = norm_quantize_q8 %x, @n {eps: 0.01}`, 32, 1e-2, norm},
		{`%y : f32[T, 32] = scale %x {factor: -2.5}`, 32, 1e-6, func(i int) float64 { return -2.5 * x[i] }},
		{`%y : f32[T, 32] = mul %x, %x`, 32, 1e-6, func(i int) float64 { return x[i] * x[i] }},
		{`%y : f32[T, 32] = add_bias %x, @n`, 32, 1e-6, func(i int) float64 { return x[i] + n[i] }},
	} {
		g := parse(t, head+"  "+c.node+"\n  output %y\n")
		got, err := ops.Eval(g, &ops.Env{Weights: weights, Inputs: map[string][]int32{"ids": {2}}})
		if err != nil {
			t.Errorf("%s: %v", c.node, err)
			continue
		}
		if len(got["y"].F32) != c.n {
			t.Fatalf("%s: %d elements, expected %d", c.node, len(got["y"].F32), c.n)
		}
		for i, y := range got["y"].F32 {
			if math.Abs(float64(y)-c.want(i)) > c.tol {
				t.Errorf("%s: y[%d] = %v, expected %v", c.node, i, y, c.want(i))
			}
		}
	}
}

func TestEvalErrors(t *testing.T) {
	g := parse(t, model)
	inputs := func(change func(in map[string][]int32)) *ops.Env {
		in := map[string][]int32{"tokens": {1, 2}, "pos": {0, 1}, "seq": {0, 0}, "rows": {1}}
		change(in)
		return &ops.Env{Weights: weights, Inputs: in}
	}
	for _, c := range []struct {
		want   string
		change func(in map[string][]int32)
	}{
		{"input pos: has no value", func(in map[string][]int32) { delete(in, "pos") }},
		{"input seq: has 1 elements, expected T = 2", func(in map[string][]int32) { in["seq"] = in["seq"][:1] }},
		{"input pos: holds 32, expected 0 ≤ pos < 32", func(in map[string][]int32) { in["pos"][0] = 32 }},
		{"input seq: holds 2, expected 0 ≤ seq < 2", func(in map[string][]int32) { in["seq"][0] = 2 }},
		{"node embd (get_rows): row 1 is 11, expected 0 ≤ row < 11", func(in map[string][]int32) { in["tokens"][1] = 11 }},
		{"node last (select_rows): row 0 is 2, expected 0 ≤ row < 2", func(in map[string][]int32) { in["rows"][0] = 2 }},
	} {
		if _, err := ops.Eval(g, inputs(c.change)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, expected %s", err, c.want)
		}
	}
	env := inputs(func(map[string][]int32) {})
	if _, err := ops.Eval(g, env, "nothing"); err == nil || !strings.Contains(err.Error(), `no value "nothing"`) {
		t.Errorf("unknown value: %v", err)
	}
	env.Weights = func(*graph.Value) ([]float32, error) { return make([]float32, 3), nil }
	if _, err := ops.Eval(g, env); err == nil || !strings.Contains(err.Error(), "weight embd has 3 elements, expected 352 for f32[11, 32]") {
		t.Errorf("short weight: %v", err)
	}
	env.Weights = func(*graph.Value) ([]float32, error) { return nil, fmt.Errorf("no such tensor") }
	if _, err := ops.Eval(g, env); err == nil || !strings.Contains(err.Error(), "no such tensor") {
		t.Errorf("failing weight: %v", err)
	}
	empty := &ops.Env{Weights: weights, Inputs: map[string][]int32{"tokens": nil, "pos": nil, "seq": nil, "rows": nil}}
	if got, err := ops.Eval(g, empty, "logits"); err != nil || len(got["logits"].F32) != 0 {
		t.Errorf("no tokens: %v", err)
	}
}

// The table is consistent: names are unique, a row has either Eval or Expand, and pairs refer to
// operands.
func TestTable(t *testing.T) {
	seen := make(map[string]bool)
	for _, row := range ops.Table() {
		op := row.Op
		if seen[op.Name] {
			t.Errorf("%s: two rows", op.Name)
		}
		seen[op.Name] = true
		if found, ok := ops.Lookup(op.Name); !ok || found != op || ops.Of(op).Op != op {
			t.Errorf("%s: not found by its name", op.Name)
		}
		if source := op == ops.Input || op == ops.State; (row.Eval != nil) == (row.Expand != nil) && !source || source && (row.Eval != nil || row.Expand != nil) {
			t.Errorf("%s: expected either Eval or Expand, and neither for a source", op.Name)
		}
		for _, pair := range append(slices.Clone(op.Alias), op.Writes...) {
			if pair[0] >= op.Out || pair[1] >= len(op.In) {
				t.Errorf("%s: pair %v points nowhere", op.Name, pair)
			}
		}
		attrs := make(map[string]bool)
		for _, a := range op.Attrs {
			if attrs[a.Name] {
				t.Errorf("%s: attribute %s twice", op.Name, a.Name)
			}
			attrs[a.Name] = true
		}
	}
	if _, ok := ops.Lookup("nonsense"); ok || ops.Of(&graph.Op{Name: "matmul"}) != nil {
		t.Error("an op of another table is found")
	}
}

func TestCost(t *testing.T) {
	g := parse(t, model)
	size := func(d graph.Dim) int64 {
		switch d.Sym {
		case graph.T:
			return 3
		case graph.C:
			return 20
		case graph.R:
			return 1
		}
		return d.N
	}
	for _, c := range []struct {
		name         string
		flops, bytes int64
	}{
		{"embd", 3 * 32, 4 * (3*32 + 3 + 3*32)}, // three rows of the table, not the whole table
		{"blk.0.q", 2 * 3 * 32 * 64, 4 * (3*32 + 64*32 + 48 + 3*64)},
		{"blk.1.q", 2 * 3 * 32 * 64, 3*76 + 4*(64*32+3*64)}, // q8x2 activations
		{"blk.0.attn", 4 * 3 * 32 * 5, 4 * (3*64 + 6 + 8 + 8 + 3 + 3*32)},
		{"blk.1.attn", 4 * 3 * 32 * 20, 4 * (3*64 + 6 + 3*32)},
		{"logits", 2 * 1 * 32 * 11, 4 * (32 + 32*11 + 11)},
		{"last", 0, 4 * (32 + 1 + 32)},
	} {
		flops, bytes := ops.Cost(g.Value(c.name).Def, size)
		if flops != c.flops || bytes != c.bytes {
			t.Errorf("%s: %d FLOPs and %d bytes, expected %d and %d", c.name, flops, bytes, c.flops, c.bytes)
		}
	}
	flops := int64(0)
	for _, n := range g.Nodes {
		f, _ := ops.Cost(n, size)
		flops += f
	}
	basic, err := ops.ExpandAll(g)
	if err != nil {
		t.Fatal(err)
	}
	products := func(g *graph.Graph) (total int64) {
		for _, n := range g.Nodes {
			switch n.Op {
			case ops.Matmul, ops.QKV, ops.GatedMLP, ops.Attention, ops.AttnScores, ops.AttnValues:
				f, _ := ops.Cost(n, size)
				total += f
			}
		}
		return total
	}
	if fused, split := products(g), products(basic); fused != split || fused == 0 {
		t.Errorf("products cost %d fused and %d expanded", fused, split)
	}
}

// Inputs that shape inference refuses, in addition to the cases in package graph.
func TestInferErrors(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"layout: \"pairs\", rot: 6", "layout: \"pairs\", rot: 10", "rot is 10, expected an even number up to head_dim = 8"},
		{"base: 10000.0", "base: -1.0", "base is -1, expected a positive number"},
		{"ramp_low: 0.5", "ramp_low: 2.0", "the ramp is from 2 to 2, expected 0 ≤ ramp_low < ramp_high, or neither"},
		{"ramp_low: 0.5", "ramp_low: -0.5", "the ramp is from -0.5 to 2"},
		{"ramp_high: 2.0", "ramp_high: 0.0", "the ramp is from 0.5 to 0"},
		{"magnitude: 1.25", "magnitude: -1.0", "magnitude is -1, expected a positive number"},
		{"window: 5", "window: -5", "window is -5, expected 0 or more"},
		{"state {width: 16}", "state {width: 0}", "width is 0, expected a positive number"},
		{`act: "gelu_tanh"`, `act: "relu"`, `act is "relu", expected one of silu, gelu_tanh, gelu_erf`},
		{`sym: "R"`, `sym: "C"`, `sym is "C", expected one of T, S, R`},
		{`dtype: "i32", sym: "R"`, `dtype: "f32", sym: "R"`, `dtype is "f32", expected one of i32`},
		{"@freqs   : f32[3]", "@freqs   : f32[4]", "operand freqs is @freqs of type f32[4], expected dim 0 (rot/2) = 3"},
		{"@headnorm : f32[8]", "@headnorm : f32[16]", "operand qnorm is @headnorm of type f32[16], expected dim 0 (head_dim) = 8"},
		{"@bq      : f32[32]", "@bq      : f16[32]", "operand bq is @bq of type f16[32], expected element type f32"},
		{"matmul %last, @embd, _", "matmul %last, @embd, %last", "operand res is %last of type f32[R, 32], expected dim 1 (n) = 11"},
		{"matmul %last, @embd, _", "matmul %last, @norm, _", "operand w is @norm of type f32[32], expected 2 dims [n, k]"},
		{"matmul %last, @embd, _", "matmul %last, %tokens, _", "expected element type weight"},
		{"quantize %blk.1.attn", "quantize %blk.1.normed", "operand x is %blk.1.normed of type q8x2[T, 32], expected element type f32"},
		{"quantize %blk.1.attn", "quantize %blk.1.k", "expected a row length that is a multiple of 32"},
	} {
		edited := strings.Replace(model, c.old, c.new, 1)
		if edited == model {
			t.Fatalf("%q is not in the model", c.old)
		}
		g, err := graph.Parse(edited, ops.Lookup)
		if err == nil {
			err = graph.Verify(g)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q → %q: error %v, expected %s", c.old, c.new, err, c.want)
		}
	}
	for _, c := range []struct {
		group int64
		width int64
		want  string
	}{{0, 32, ""}, {8, 8, ""}, {32, 32, ""}, {5, 5, "group is 5, expected a divisor"}, {-8, 8, "group is -8"}, {8, 32, "expected 8 elements"}} {
		text := fmt.Sprintf("graph g (T <= 1)\n @x : f32[2, 32]\n @w : f32[%d]\n %%i : i32[T] = input {dtype: \"i32\", sym: \"T\"}\n %%x : f32[T, 32] = get_rows @x, %%i\n %%y : f32[T, 32] = rms_norm %%x, @w {eps: 0.1, group: %d}\n output %%y", c.width, c.group)
		g, err := graph.Parse(text, ops.Lookup)
		if err != nil {
			t.Fatal(err)
		}
		err = graph.Verify(g)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("group %d: error %v, expected %q", c.group, err, c.want)
		}
	}
}
