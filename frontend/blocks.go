package frontend

import (
	"fmt"

	"pesti/graph"
	"pesti/ops"
)

// A builder appends a model's nodes to a graph and keeps the first error, so that an
// architecture reads as its formula.
type builder struct {
	m     *Model
	p     *Params
	g     *graph.Graph
	layer int // current block
	pos   *graph.Value
	seq   *graph.Value
	err   error
}

// block starts block i, to which the names and weights that follow belong.
func (b *builder) block(i int) { b.layer = i }

// name returns the full name of a value of the current block.
func (b *builder) name(s string) string { return fmt.Sprintf("blk.%d.%s", b.layer, s) }

// op1 appends a node with one result.
func (b *builder) op1(op *graph.Op, name string, attr graph.Attrs, in ...*graph.Value) *graph.Value {
	if b.err != nil {
		return nil
	}
	out, err := b.g.Add(op, in, attr, name)
	if err != nil {
		b.err = err
		return nil
	}
	return out[0]
}

// weight returns a tensor of the model, or nil if it is absent. checkWeights has checked that the
// required ones are present.
func (b *builder) weight(name string) *graph.Value {
	t, ok := b.m.weights[name]
	if b.err != nil || !ok {
		return nil
	}
	v, err := b.g.Weight(name, t)
	if err != nil {
		b.err = err
	}
	return v
}

// w returns a weight of the current block.
func (b *builder) w(suffix string) *graph.Value { return b.weight(b.name(suffix)) }

func (b *builder) input(name string, sym graph.Sym) *graph.Value {
	return b.op1(ops.Input, name, graph.Attrs{"dtype": string(graph.I32), "sym": string(sym)})
}

// embed appends the inputs and the embedding lookup.
func (b *builder) embed() *graph.Value {
	tokens := b.input("tokens", graph.T)
	b.pos = b.input("pos", graph.T)
	b.seq = b.input("seq", graph.T)
	return b.op1(ops.GetRows, "embd", nil, b.weight(tokenEmbd), tokens)
}

// head appends the final norm, the vocabulary projection, and the selection of rows.
func (b *builder) head(x *graph.Value) {
	rows := b.input("rows", graph.R)
	x = b.op1(ops.RMSNorm, "output_norm", graph.Attrs{"eps": b.p.Eps}, x, b.weight("output_norm.weight"))
	w := b.weight("output.weight")
	if w == nil {
		w = b.weight(tokenEmbd) // tied
	}
	x = b.op1(ops.Matmul, "logits_all", nil, x, w, nil)
	x = b.op1(ops.SelectRows, "logits", nil, x, rows)
	if b.err == nil {
		b.g.Outputs = []*graph.Value{x}
	}
}

func (b *builder) norm(x *graph.Value, name, weight string) *graph.Value {
	return b.op1(ops.RMSNorm, b.name(name), graph.Attrs{"eps": b.p.Eps}, x, b.w(weight))
}

// headNorm normalizes each head separately.
func (b *builder) headNorm(x *graph.Value, name, weight string) *graph.Value {
	return b.op1(ops.RMSNorm, b.name(name), graph.Attrs{"eps": b.p.Eps, "group": b.p.HeadDim}, x, b.w(weight))
}

func (b *builder) linear(x *graph.Value, name, weight string) *graph.Value {
	return b.op1(ops.Matmul, b.name(name), nil, x, b.w(weight), nil)
}

// qkv appends the three projections, with biases if the model has them.
func (b *builder) qkv(x *graph.Value) (q, k, v *graph.Value) {
	one := func(s string) *graph.Value {
		bias := b.w("attn_" + s + ".bias")
		if bias == nil {
			return b.linear(x, s, "attn_"+s+".weight")
		}
		return b.op1(ops.AddBias, b.name(s), nil, b.linear(x, s+"_proj", "attn_"+s+".weight"), bias)
	}
	return one("q"), one("k"), one("v")
}

// attention appends the current block's RoPE, cache writes, scores, softmax and weighted sum of values.
func (b *builder) attention(q, k, v *graph.Value) *graph.Value {
	l := &b.p.Layers[b.layer]
	q = b.rope(q, "q_rope", b.p.Heads)
	k = b.rope(k, "k_rope", l.KVHeads)
	ck := b.cache("cache_k", k)
	cv := b.cache("cache_v", v)
	shape := func(extra graph.Attrs) graph.Attrs {
		a := graph.Attrs{"heads": b.p.Heads, "kv_heads": l.KVHeads, "head_dim": b.p.HeadDim, "window": l.Window}
		for key, x := range extra {
			a[key] = x
		}
		return a
	}
	s := b.op1(ops.AttnScores, b.name("scores"), shape(graph.Attrs{"scale": b.p.Scale}), q, ck, b.pos, b.seq)
	s = b.op1(ops.Softmax, b.name("probs"), nil, s)
	return b.op1(ops.AttnValues, b.name("attn"), shape(nil), s, cv, b.pos, b.seq)
}

func (b *builder) rope(x *graph.Value, name string, heads int64) *graph.Value {
	r := &b.p.Layers[b.layer].Rope
	attr := graph.Attrs{
		"heads": heads, "head_dim": b.p.HeadDim, "rot": b.p.Rot,
		"base": r.Base, "freq_scale": r.Step, "layout": b.m.arch.layout,
	}
	if r.RampHigh > 0 {
		attr["ramp_low"], attr["ramp_high"] = r.RampLow, r.RampHigh
	}
	if r.Magnitude != 1 {
		attr["magnitude"] = r.Magnitude
	}
	return b.op1(ops.Rope, b.name(name), attr, x, b.pos, b.weight(ropeFreqs))
}

// cache appends a cache of the block and the write of x into it.
func (b *builder) cache(name string, x *graph.Value) *graph.Value {
	l := &b.p.Layers[b.layer]
	s := b.op1(ops.State, b.name(name), graph.Attrs{"width": l.KVHeads * b.p.HeadDim, "window": l.Window})
	return b.op1(ops.KVWrite, b.name(name+".new"), nil, s, x, b.pos, b.seq)
}

// gated appends the feed-forward: down · (act(gate · x) ⊙ (up · x)).
func (b *builder) gated(x *graph.Value, act *graph.Op) *graph.Value {
	gate := b.linear(x, "ffn_gate", "ffn_gate.weight")
	up := b.linear(x, "ffn_up", "ffn_up.weight")
	h := b.op1(ops.Mul, b.name("ffn_gated"), nil, b.op1(act, b.name("ffn_act"), nil, gate), up)
	return b.linear(h, "ffn_out", "ffn_down.weight")
}

// preNorm appends a whole model of the llama family: each block has a norm before attention and one
// before a SwiGLU feed-forward, both with a residual addition after.
func (b *builder) preNorm() {
	x := b.embed()
	for i := range b.p.Layers {
		b.block(i)
		a := b.attention(b.qkv(b.norm(x, "attn_norm", "attn_norm.weight")))
		x = b.op1(ops.Add, b.name("attn_res"), nil, x, b.linear(a, "attn_out", "attn_output.weight"))
		h := b.gated(b.norm(x, "ffn_norm", "ffn_norm.weight"), ops.SiLU)
		x = b.op1(ops.Add, b.name("out"), nil, x, h)
	}
	b.head(x)
}
