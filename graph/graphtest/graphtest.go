// Package graphtest draws random well-typed graphs, with weights and steps to run them on, for
// properties that hold for every graph: printing and parsing, passes, lowering, execution.
//
// It contains the recipes that draw nodes; a test compares them with the op table. It imports
// graph, ops, and gguf for weights from files. Callers compile the graphs and compare results.
package graphtest

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"pgregory.net/rapid"

	"pesti/graph"
	"pesti/ops"
)

// Options configure a drawn graph.
type Options struct {
	Recipes int // largest number of recipes; by default 12
	// Quantized also draws q8x2, q8 and bf16 values, which normally only lowering inserts.
	Quantized bool
	// Written writes every cache before it is read in a step, as plans require.
	Written bool
	// Chunks writes every cache once, before all reads, as in models. Only then are a token's
	// results independent of the other tokens in the step.
	Chunks bool
}

// Vocab is the number of rows of the smallest table that tokens may be looked up in.
const Vocab = 5

// Draw returns a random graph that verifies. It has the inputs of a model, at least one look-up of
// tokens, the output logits, f32[R, n], and perhaps further outputs.
func Draw(t *rapid.T, o Options) *graph.Graph {
	if o.Recipes == 0 {
		o.Recipes = 12
	}
	b := &builder{t: t, options: o, degree: make(map[*graph.Value]int)}
	tokens := b.one("T", 1, 2, 3, 7, 16, 31, 32, 33, 40)
	b.g = graph.New("random",
		graph.Bound{Sym: graph.T, Max: tokens},
		graph.Bound{Sym: graph.S, Max: int64(1 + below(t, "S", int(min(tokens, 3))))},
		graph.Bound{Sym: graph.R, Max: int64(1 + below(t, "R", int(min(tokens, 8))))},
		graph.Bound{Sym: graph.C, Max: b.one("C", 1, 15, 16, 17, 33, 48)})
	input := func(name string, sym graph.Sym) *graph.Value {
		return b.must(b.g.Add(ops.Input, nil, graph.Attrs{"dtype": string(graph.I32), "sym": string(sym)}, name))[0]
	}
	b.tokens, b.pos, b.seq, b.rows = input("tokens", graph.T), input("pos", graph.T), input("seq", graph.T), input("rows", graph.R)
	lookUp(b)
	for range below(t, "recipes", o.Recipes+1) {
		all := recipes
		if o.Quantized {
			all = slices.Concat(recipes, quantized)
		}
		pick(b, "recipe", all)(b)
	}
	b.outputs()
	b.g.Renumber()
	if err := graph.Verify(b.g); err != nil {
		t.Fatalf("the drawn graph does not verify: %v\n%s", err, graph.Print(b.g))
	}
	t.Logf("%s", graph.Print(b.g))
	return b.g
}

// A builder appends nodes to a graph.
type builder struct {
	t       *rapid.T
	options Options
	g       *graph.Graph

	tokens, pos, seq, rows *graph.Value

	floats  []*graph.Value // f32[M, n]
	rounded []*graph.Value // q8x2[M, n], q8[M, n], bf16[M, n]
	scores  []*graph.Value // f32[T, heads, C]
	probs   []*graph.Value // likewise, summing to 1
	caches  []*cache
	// degree bounds how fast a value grows with the embeddings: 1 means linear. It prevents
	// products of products, which would leave the range of float32.
	degree map[*graph.Value]int
}

// A cache is the newest version of a state.
type cache struct {
	now     *graph.Value
	window  int64
	written bool
}

func (b *builder) width(c *cache) int64 { return c.now.Type.Shape[1].N }

// must fails the test on an error, which is a bug of the generator.
func (b *builder) must(out []*graph.Value, err error) []*graph.Value {
	if err != nil {
		b.t.Fatalf("drawing a node: %v\n%s", err, graph.Print(b.g))
	}
	return out
}

// add appends a node with drawn names and files its results.
func (b *builder) add(op *graph.Op, attr graph.Attrs, in ...*graph.Value) []*graph.Value {
	names := make([]string, op.Out)
	for i := range names {
		names[i] = b.name()
		for b.g.Value(names[i]) != nil || slices.Contains(names[:i], names[i]) {
			names[i] += "_"
		}
	}
	return b.addNamed(op, attr, names, in...)
}

func (b *builder) addNamed(op *graph.Op, attr graph.Attrs, names []string, in ...*graph.Value) []*graph.Value {
	out := b.must(b.g.Add(op, in, attr, names...))
	degree := 1
	for _, v := range in {
		if v == nil {
			continue
		}
		if op == ops.Mul {
			degree += b.degree[v]
		} else {
			degree = max(degree, b.degree[v])
		}
	}
	switch op {
	case ops.Mul:
		degree--
	case ops.GatedMLP, ops.GatedMLPQuantize, ops.GatedMLPQuantizeQ8, ops.GatedMLPRound:
		degree *= 2
	case ops.RMSNorm, ops.NormQuantize, ops.NormQuantizeQ8, ops.NormRound, ops.NormMatmul, ops.NormQKV:
		degree = 1
	case ops.NormGatedMLP:
		degree = 2
	}
	for _, v := range out {
		b.degree[v] = degree
		switch {
		case v.Type.DType == graph.Q8x2 || v.Type.DType == graph.Q8 || v.Type.DType == graph.BF16:
			b.rounded = append(b.rounded, v)
		case op == ops.AttnScores:
			b.scores = append(b.scores, v)
		case op == ops.Softmax:
			b.probs = append(b.probs, v)
		case v.Type.DType == graph.F32:
			b.floats = append(b.floats, v)
		}
	}
	for _, w := range op.Writes {
		for _, c := range b.caches {
			if c.now == in[w[1]] {
				c.now, c.written = out[w[0]], true
			}
		}
	}
	return out
}

// name draws a name: mostly plain, some inside a block, some that a pass might have given, some
// that need quotes.
func (b *builder) name() string {
	n := len(b.g.Nodes)
	switch kind := below(b.t, "name", 16); {
	case kind < 4:
		return fmt.Sprintf("blk.%d.v%d", n%3, n)
	case kind == 4 && len(b.floats) > 0:
		return pick(b, "base", b.floats).Name + pick(b, "suffix", suffixes)
	case kind == 5:
		return fmt.Sprint(n, pick(b, "odd", oddities))
	}
	return fmt.Sprintf("v%d", n)
}

// Suffixes that passes and lowering append to names, and characters that need quotes.
var (
	suffixes = []string{".rows", ".x", ".gate", ".scratch", ".copy"}
	oddities = []string{" é", `"`, "\n", "%", "@", "{", "#", "\\"}
)

// pick draws an element of a list by its index. A failure prints the index.
func pick[T any](b *builder, label string, list []T) T {
	return list[below(b.t, label, len(list))]
}

// below draws a number below n with uniform probability. rapid's own ranges prefer their ends, so
// the later recipes of a list would rarely be drawn.
func below(t *rapid.T, label string, n int) int {
	return rapid.Custom(func(t *rapid.T) int {
		i := 0
		for range bits.Len(uint(n-1)) + 2 {
			i *= 2
			if rapid.Bool().Draw(t, "bit") {
				i++
			}
		}
		return i % n
	}).Draw(t, label)
}

func (b *builder) one(label string, of ...int64) int64 { return pick(b, label, of) }
func (b *builder) flip(label string) bool              { return rapid.Bool().Draw(b.t, label) }

// float draws an f32[M, n] of any M and n that satisfies ok; nil if there is none.
func (b *builder) float(label string, ok func(*graph.Value) bool) *graph.Value {
	var fit []*graph.Value
	for _, v := range b.floats {
		if ok == nil || ok(v) {
			fit = append(fit, v)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return pick(b, label, fit)
}

func perToken(v *graph.Value) bool { return v.Type.Shape[0] == graph.Of(graph.T) }

// like draws a value of the same type as x, perhaps x.
func (b *builder) like(x *graph.Value, label string) *graph.Value {
	return b.float(label, func(v *graph.Value) bool { return v.Type.Equal(x.Type) })
}

// token draws an f32[T, n]; n of 0 means any width.
func (b *builder) token(label string, n int64) *graph.Value {
	v := b.float(label, func(v *graph.Value) bool { return perToken(v) && (n == 0 || width(v) == n) })
	if v == nil {
		x := b.float(label, perToken)
		v = b.add(ops.Matmul, nil, x, b.matrix(n, width(x)))[0]
	}
	return v
}

// tame returns x, or a norm of x if x may be large, since the exponentials of scores magnify
// rounding.
func (b *builder) tame(x *graph.Value) *graph.Value {
	if b.degree[x] > 1 {
		return b.add(ops.RMSNorm, graph.Attrs{"eps": 1e-6}, x, b.vector(width(x)))[0]
	}
	return x
}

func width(v *graph.Value) int64 { return v.Type.Shape[len(v.Type.Shape)-1].N }

// size draws the length of a row. There are few lengths, so that values often have equal ones.
func (b *builder) size() int64 { return b.one("size", 8, 32, 32, 1, 3, 33, 64, 256) }

// types are the element types of matrices.
var types = []graph.DType{"f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k"}

// matrix returns a weight [rows, n] of a drawn type whose blocks divide n, an existing one or a new
// one.
func (b *builder) matrix(rows, n int64) *graph.Value {
	var fit []graph.DType
	for _, dt := range types {
		if block, _ := graph.BlockOf(dt); n%block == 0 {
			fit = append(fit, dt)
		}
	}
	return b.weight(pick(b, "type", fit), rows, n)
}

// vector is an f32 weight of n elements.
func (b *builder) vector(n int64) *graph.Value { return b.weight(graph.F32, n) }

func (b *builder) weight(dt graph.DType, dims ...int64) *graph.Value {
	typ := graph.Type{DType: dt}
	for _, d := range dims {
		typ.Shape = append(typ.Shape, graph.N(d))
	}
	for _, w := range b.g.Weights {
		if w.Type.Equal(typ) && b.flip("same weight") {
			return w
		}
	}
	w, err := b.g.Weight(fmt.Sprintf("w%d", len(b.g.Weights)), typ)
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

// divisor draws one of n's divisors, from a thirty-second of n up.
func (b *builder) divisor(label string, n int64) int64 {
	var d []int64
	for i := (n + 31) / 32; i <= n; i++ {
		if n%i == 0 {
			d = append(d, i)
		}
	}
	return b.one(label, d...)
}

// outputs declares logits, of some value's selected rows, and perhaps other outputs.
func (b *builder) outputs() {
	x := b.float("last", nil)
	if perToken(x) {
		if b.flip("project all rows") {
			x = b.add(ops.Matmul, nil, x, b.matrix(b.size(), width(x)))[0]
		}
		x = b.addNamed(ops.SelectRows, nil, []string{"logits"}, x, b.rows)[0]
	} else {
		x = b.addNamed(ops.Matmul, nil, []string{"logits"}, x, b.matrix(b.size(), width(x)))[0]
	}
	b.g.Outputs = []*graph.Value{x}
	for _, v := range slices.Concat(b.floats, b.scores, b.probs) {
		if v != x && below(b.t, "output", 4) == 3 {
			b.g.Outputs = append(b.g.Outputs, v)
		}
	}
}

// Weights returns random elements of every weight that depend on its name and the seed. Rows of
// matrices have a norm of about 1, and vectors have elements around 1.
func Weights(seed uint64) func(w *graph.Value) ([]float32, error) {
	return func(w *graph.Value) ([]float32, error) {
		h, size := fnv.New64a(), int64(1)
		h.Write([]byte(w.Name))
		for _, d := range w.Type.Shape {
			size *= d.N
		}
		mean, spread := 1.0, 0.1
		if len(w.Type.Shape) == 2 {
			mean, spread = 0, 1/math.Sqrt(float64(width(w)))
		}
		rng := rand.New(rand.NewPCG(seed, h.Sum64()))
		x := make([]float32, size)
		for i := range x {
			x[i] = float32(mean + spread*rng.NormFloat64())
		}
		return x, nil
	}
}

// A Step holds the inputs of a graph for one step: runs of tokens of some sequences.
type Step struct{ Tokens, Pos, Seq, Rows []int32 }

// Inputs returns the step in the interpreter's form.
func (s *Step) Inputs() map[string][]int32 {
	return map[string][]int32{"tokens": s.Tokens, "pos": s.Pos, "seq": s.Seq, "rows": s.Rows}
}

// Steps draws up to n steps within the bounds of g: each feeds the next tokens of some sequences.
func Steps(t *rapid.T, g *graph.Graph, n int) []Step {
	at := make([]int, g.Max(graph.S))
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "ids"), 0))
	var steps []Step
	for range 1 + below(t, "steps", n) {
		var s Step
		room := int(g.Max(graph.T))
		for _, seq := range rapid.Permutation(sequence(len(at))).Draw(t, "order") {
			k := below(t, "tokens", min(room, int(g.Max(graph.C))-at[seq])+1)
			if rapid.Bool().Draw(t, "decode") {
				k = min(k, 1)
			}
			for range k {
				s.Tokens = append(s.Tokens, int32(rng.IntN(Vocab)))
				s.Pos = append(s.Pos, int32(at[seq]))
				s.Seq = append(s.Seq, int32(seq))
				at[seq]++
			}
			room -= k
		}
		if len(s.Tokens) == 0 {
			continue
		}
		for range below(t, "rows", int(g.Max(graph.R))+1) {
			s.Rows = append(s.Rows, int32(rng.IntN(len(s.Tokens))))
		}
		steps = append(steps, s)
	}
	return steps
}

func sequence(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// Tokenwise cuts a step into steps of one token. Each has its row of logits if the whole step has
// it.
func (s *Step) Tokenwise() []Step {
	steps := make([]Step, len(s.Tokens))
	for i := range steps {
		steps[i] = Step{Tokens: s.Tokens[i : i+1], Pos: s.Pos[i : i+1], Seq: s.Seq[i : i+1]}
		if slices.Contains(s.Rows, int32(i)) {
			steps[i].Rows = []int32{0}
		}
	}
	return steps
}
