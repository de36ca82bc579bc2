package graphtest

import (
	"math"
	"slices"

	"pesti/graph"
	"pesti/ops"
)

// recipes append nodes that a frontend or a graph pass can produce: single nodes on drawn values,
// and the patterns that passes match.
var recipes = []func(*builder){
	lookUp, scale, norm, matmul, addBias, add, mul, activate, rope, write, attend, selectRows,
	twin, twin, gate, gatedMLP, qkv, block, attention, normAdd,
}

// quantized append nodes that only lowering produces.
var quantized = []func(*builder){
	rounds(ops.Quantize), rounds(ops.QuantizeQ8), rounds(ops.Round),
	roundsNorm(ops.NormQuantize), roundsNorm(ops.NormQuantizeQ8), roundsNorm(ops.NormRound),
	roundsGate(ops.GatedMLPQuantize), roundsGate(ops.GatedMLPQuantizeQ8), roundsGate(ops.GatedMLPRound), matmulOfRounded,
	normMatmul, normQKV, normGatedMLP, transfer, getPart, sum, concat,
}

func lookUp(b *builder) {
	attr := graph.Attrs{}
	if b.flip("scaled") {
		attr["scale"] = pick(b, "scale", factors)
	}
	b.add(ops.GetRows, attr, b.matrix(b.one("vocab", Vocab, Vocab+3), b.size()), b.tokens)
}

// factors are factors of scale. Some passes treat 1 specially.
var factors = []float64{1, 0.5, -2, 0, math.Sqrt2}

func scale(b *builder) {
	b.add(ops.Scale, graph.Attrs{"factor": pick(b, "factor", factors)}, b.float("x", nil))
}

func norm(b *builder) {
	x := b.float("x", nil)
	n, attr := width(x), graph.Attrs{"eps": pick(b, "eps", []float64{1e-6, 1e-5})}
	if b.flip("groups") {
		n = b.divisor("group", n)
		attr["group"] = n
	}
	b.add(ops.RMSNorm, attr, x, b.vector(n))
}

func transfer(b *builder) { b.add(ops.Transfer, nil, b.float("x", nil)) }

func getPart(b *builder) {
	first := b.one("first", 0, 1, Vocab)
	rows := b.one("rows", 1, Vocab)
	b.add(ops.GetPart, graph.Attrs{"first": first, "vocab": first + rows + b.one("more", 0, 3)}, b.matrix(rows, b.size()), b.tokens)
}

func sum(b *builder) {
	x := b.float("x0", nil)
	same := func(v *graph.Value) bool { return v.Type.Equal(x.Type) }
	in := []*graph.Value{x, nil, nil, nil}
	for i := range in[1:] {
		if b.flip("term") {
			in[i+1] = b.float("x", same)
		}
	}
	b.add(ops.Sum, nil, in...)
}

func concat(b *builder) {
	x := b.float("x0", nil)
	sameRows := func(v *graph.Value) bool { return v.Type.Shape[0] == x.Type.Shape[0] }
	in := []*graph.Value{x, nil, nil}
	whole := width(x)
	for i := range in[1:] {
		if b.flip("part") {
			in[i+1] = b.float("x", sameRows)
			whole += width(in[i+1])
		}
	}
	b.add(ops.Concat, graph.Attrs{"width": whole}, in...)
}

func matmul(b *builder) { b.project(b.float("x", nil)) }

// project multiplies x by a matrix and sometimes adds a value of the result's type.
func (b *builder) project(x *graph.Value) *graph.Value {
	w := b.matrix(b.size(), width(x))
	res := b.float("res", func(v *graph.Value) bool {
		return v.Type.Shape[0] == x.Type.Shape[0] && width(v) == w.Type.Shape[0].N
	})
	if b.flip("no residual") {
		res = nil
	}
	return b.add(ops.Matmul, nil, x, w, res)[0]
}

func addBias(b *builder) {
	x := b.float("x", nil)
	b.add(ops.AddBias, nil, x, b.vector(width(x)))
}

func add(b *builder) {
	x := b.float("a", nil)
	b.add(ops.Add, nil, x, b.like(x, "b"))
}

func mul(b *builder) {
	x := b.float("a", nil)
	if y := b.like(x, "b"); b.degree[x]+b.degree[y] <= 4 {
		b.add(ops.Mul, nil, x, y)
	}
}

func (b *builder) act() *graph.Op {
	return pick(b, "act", []*graph.Op{ops.SiLU, ops.GELUTanh, ops.GELUErf})
}

func activate(b *builder) { b.add(b.act(), nil, b.float("x", nil)) }

// ropeAttrs draws RoPE's attributes for heads of dim elements.
func (b *builder) ropeAttrs(dim int64) graph.Attrs {
	return graph.Attrs{
		"head_dim": dim, "rot": b.one("rot", dim/2*2, dim/4*2, 0), "base": pick(b, "base", []float64{10000, 100}),
		"freq_scale": pick(b, "freq_scale", []float64{1, 0.5, 0.25}), "layout": pick(b, "layout", []string{ops.Pairs, ops.Halves}),
	}
}

// freqs returns a weight with a factor for each angle, or none.
func (b *builder) freqs(rot int64) *graph.Value {
	if rot == 0 || b.flip("no freqs") {
		return nil
	}
	return b.vector(rot / 2)
}

func rope(b *builder) {
	x := b.float("x", perToken)
	attr := b.ropeAttrs(b.divisor("head_dim", width(x)))
	attr["heads"] = width(x) / attr.Int("head_dim")
	b.add(ops.Rope, attr, x, b.pos, b.freqs(attr.Int("rot")))
}

// cache draws a cache with rows of n elements (0: any), an existing one or a new one.
func (b *builder) cache(n int64) *cache {
	for _, c := range b.caches {
		if (n == 0 || b.width(c) == n) && b.flip("same cache") {
			return c
		}
	}
	if n == 0 {
		n = b.size()
	}
	return b.newCache(n, b.one("window", 0, 0, 3, 20))
}

func (b *builder) newCache(n, window int64) *cache {
	s := b.add(ops.State, graph.Attrs{"width": n, "window": window})[0]
	c := &cache{now: s, window: window}
	b.caches = append(b.caches, c)
	return c
}

// writable returns a cache that a step may write, possibly again.
func (b *builder) writable(n int64) *cache {
	if b.options.Chunks {
		return b.newCache(n, b.one("window", 0, 3, 20))
	}
	return b.cache(n)
}

func write(b *builder) {
	x := b.float("x", perToken)
	b.store(b.writable(width(x)), x)
}

func (b *builder) store(c *cache, x *graph.Value) {
	b.add(ops.KVWrite, nil, c.now, x, b.pos, b.seq)
}

// heads draws a geometry for rows of n cached elements.
func (b *builder) heads(n, window int64) graph.Attrs {
	dim := b.divisor("head_dim", n)
	kv := n / dim
	a := graph.Attrs{"heads": kv * b.one("group", 1, 2, 3), "kv_heads": kv, "head_dim": dim}
	if window > 0 {
		a["window"] = b.one("seen", window, 1)
	} else {
		a["window"] = b.one("seen", 0, 0, 5)
	}
	return a
}

// readable returns a cache that a step may read. A ring is not read before it is written, since it
// still holds older positions in the place of the step's own.
func (b *builder) readable(n int64) *cache {
	c := b.cache(n)
	if !c.written && (b.options.Written || b.options.Chunks || c.window > 0 || b.flip("written first")) {
		b.store(c, b.token("stored", b.width(c)))
	}
	return c
}

// attend appends scores, softmax and values on drawn caches, whose results other nodes may use too.
func attend(b *builder) {
	keys := b.readable(0)
	a := b.heads(b.width(keys), keys.window)
	values := b.readable(b.width(keys))
	if values.window > 0 && (a.Int("window") == 0 || a.Int("window") > values.window) {
		return
	}
	q := b.tame(b.token("q", a.Int("heads")*a.Int("head_dim")))
	b.scoresOf(a, q, keys.now, values.now)
}

func (b *builder) scoresOf(a graph.Attrs, q, keys, values *graph.Value) *graph.Value {
	scored := a.Clone()
	scored["scale"] = 1 / math.Sqrt(float64(a.Int("head_dim")))
	s := b.add(ops.AttnScores, scored, q, keys, b.pos, b.seq)[0]
	p := b.add(ops.Softmax, nil, s)[0]
	return b.add(ops.AttnValues, a, p, values, b.pos, b.seq)[0]
}

func selectRows(b *builder) { b.add(ops.SelectRows, nil, b.float("x", perToken), b.rows) }

// twin repeats a node unchanged, with another attribute, or with exchanged operands.
func twin(b *builder) {
	var fit []*graph.Node
	for _, n := range b.g.Nodes {
		if len(n.Op.In) == 0 || len(n.Op.Writes) > 0 || slices.ContainsFunc(n.In, b.stale) {
			continue
		}
		fit = append(fit, n)
	}
	n := pick(b, "twin of", fit)
	in, attr := slices.Clone(n.In), n.Attr.Clone()
	switch {
	case b.flip("the same"):
	case len(in) == 2 && n.Op.In[0].Name == "a":
		slices.Reverse(in)
	case attr["factor"] != nil:
		attr["factor"] = pick(b, "factor", factors)
	case attr["eps"] != nil:
		attr["eps"] = 0.1
	}
	b.add(n.Op, attr, in...)
}

// stale reports whether v is a state that a later node has written, so that no node may read it.
func (b *builder) stale(v *graph.Value) bool {
	return v != nil && v.Type.DType == graph.KV && !slices.ContainsFunc(b.caches, func(c *cache) bool { return c.now == v })
}

// gate appends an unfused gated MLP.
func gate(b *builder) {
	x := b.tame(b.float("x", nil))
	n := b.size()
	g := b.add(ops.Matmul, nil, x, b.matrix(n, width(x)))[0]
	u := b.add(ops.Matmul, nil, x, b.matrix(n, width(x)))[0]
	a := b.add(b.act(), nil, g)[0]
	if b.flip("gate last") {
		a, u = u, a
	}
	b.add(ops.Mul, nil, a, u)
}

func gatedMLP(b *builder) {
	x := b.tame(b.float("x", nil))
	n := b.size()
	b.add(ops.GatedMLP, graph.Attrs{"act": b.act().Name}, x, b.matrix(n, width(x)), b.matrix(n, width(x)))
}

// bias returns a vector or nil.
func (b *builder) bias(n int64) *graph.Value {
	if b.flip("no bias") {
		return nil
	}
	return b.vector(n)
}

func qkv(b *builder) {
	x := b.float("x", nil)
	nq, nk, nv := b.size(), b.size(), b.size()
	b.add(ops.QKV, nil, x, b.matrix(nq, width(x)), b.matrix(nk, width(x)), b.matrix(nv, width(x)), b.bias(nq), b.bias(nk), b.bias(nv))
}

// block appends the unfused attention of a block, with or without head norms.
func block(b *builder) {
	x := b.tame(b.float("x", perToken))
	kv, window := b.size(), b.one("window", 0, 3, 20)
	a := b.heads(kv, window)
	one := func(n int64) *graph.Value {
		y := b.add(ops.Matmul, nil, x, b.matrix(n, width(x)))[0]
		if bias := b.bias(n); bias != nil {
			y = b.add(ops.AddBias, nil, y, bias)[0]
		}
		return y
	}
	dim := a.Int("head_dim")
	q, k, v := one(a.Int("heads")*dim), one(kv), one(kv)
	if b.flip("head norms") {
		attr := graph.Attrs{"eps": 1e-6, "group": dim}
		q, k = b.add(ops.RMSNorm, attr, q, b.vector(dim))[0], b.add(ops.RMSNorm, attr, k, b.vector(dim))[0]
	}
	r := b.ropeAttrs(dim)
	freqs := b.freqs(r.Int("rot"))
	turn := func(x *graph.Value) *graph.Value {
		attr := r.Clone()
		attr["heads"] = width(x) / dim
		return b.add(ops.Rope, attr, x, b.pos, freqs)[0]
	}
	q, k = turn(q), turn(k)
	keys, values := b.newCache(kv, window), b.newCache(kv, window)
	b.store(keys, k)
	b.store(values, v)
	b.scoresOf(a, q, keys.now, values.now)
}

// attention appends a fused attention on any caches, which this step may have written before.
func attention(b *builder) {
	k := b.tame(b.float("k", perToken))
	kv := width(k)
	keys, values := b.writable(kv), b.writable(kv)
	if keys == values {
		values = b.newCache(kv, keys.window)
	}
	a := b.heads(kv, keys.window)
	if values.window != keys.window {
		return
	}
	dim := a.Int("head_dim")
	r := b.ropeAttrs(dim)
	for name, v := range r {
		a[name] = v
	}
	a["scale"], a["eps"] = 1/math.Sqrt(float64(dim)), 1e-6
	var norms [2]*graph.Value
	if b.flip("head norms") {
		norms = [2]*graph.Value{b.vector(dim), b.vector(dim)}
	}
	q := b.tame(b.token("q", a.Int("heads")*dim))
	v := b.token("v", kv)
	b.add(ops.Attention, a, q, k, v, b.pos, b.seq, keys.now, values.now, norms[0], norms[1], b.freqs(r.Int("rot")))
}

func normAdd(b *builder) {
	d := b.float("d", nil)
	b.add(ops.NormAdd, graph.Attrs{"eps": 1e-6}, d, b.vector(width(d)), b.like(d, "x"))
}

// blocks32 reports whether rows of x can be rounded.
func blocks32(x *graph.Value) bool { return width(x)%32 == 0 }

// rounds draws an op that rounds rows, roundsNorm one that rounds their norms, roundsGate one that
// rounds a gated MLP.
func rounds(op *graph.Op) func(*builder) {
	return func(b *builder) {
		if x := b.float("x", blocks32); x != nil {
			b.add(op, nil, x)
		}
	}
}

func roundsNorm(op *graph.Op) func(*builder) {
	return func(b *builder) {
		if x := b.float("x", blocks32); x != nil {
			b.add(op, graph.Attrs{"eps": 1e-6}, x, b.vector(width(x)))
		}
	}
}

func roundsGate(op *graph.Op) func(*builder) { return func(b *builder) { b.roundedGate(op) } }

// roundedGate appends a gated MLP whose result has whole blocks.
func (b *builder) roundedGate(op *graph.Op) {
	x := b.tame(b.float("x", nil))
	n := (b.size() + 31) / 32 * 32
	b.add(op, graph.Attrs{"act": b.act().Name}, x, b.matrix(n, width(x)), b.matrix(n, width(x)))
}

func matmulOfRounded(b *builder) {
	if len(b.rounded) > 0 {
		b.project(pick(b, "x", b.rounded))
	}
}

func normMatmul(b *builder) {
	x := b.float("x", nil)
	b.add(ops.NormMatmul, graph.Attrs{"eps": 1e-6}, x, b.vector(width(x)), b.matrix(b.size(), width(x)))
}

func normQKV(b *builder) {
	x := b.float("x", nil)
	nq, nk, nv := b.size(), b.size(), b.size()
	b.add(ops.NormQKV, graph.Attrs{"eps": 1e-6}, x, b.vector(width(x)),
		b.matrix(nq, width(x)), b.matrix(nk, width(x)), b.matrix(nv, width(x)), b.bias(nq), b.bias(nk), b.bias(nv))
}

func normGatedMLP(b *builder) {
	x := b.float("x", nil)
	n := b.size()
	b.add(ops.NormGatedMLP, graph.Attrs{"act": b.act().Name, "eps": 1e-6}, x, b.vector(width(x)), b.matrix(n, width(x)), b.matrix(n, width(x)))
}
