package ops

import (
	"errors"
	"maps"
	"slices"

	"pesti/graph"
	"pesti/ops/ref"
)

// Rope rotates pairs of dims of each head by angles proportional to the position (Su et al. 2021):
// angle(i) = pos · freq_scale · base^(−2i/rot) / freqs[i], i < rot/2. YaRN (Peng et al. 2023)
// applies freq_scale fully only to pairs from ramp_high on and partly to pairs above ramp_low, and
// multiplies the rotated dims by magnitude; see ref.Rotary. A ramp_high of 0 means no ramp.
var Rope = alias(define("rope",
	[]spec{{"x", graph.F32, "M heads*head_dim"}, {"pos", graph.I32, "M"}, {"freqs?", graph.F32, "rot/2"}},
	[]spec{{"y", graph.F32, "M heads*head_dim"}},
	ropeAttrs, checkRope), [2]int{0, 0})

func evalRope(n *graph.Node, in, out []*Value) error {
	r := ref.Rotary{
		HeadDim: int(n.Attr.Int("head_dim")), Rot: int(n.Attr.Int("rot")),
		Base: n.Attr.Float("base"), FreqScale: n.Float("freq_scale"),
		RampLow: n.Attr.Float("ramp_low"), RampHigh: n.Attr.Float("ramp_high"), Magnitude: n.Float("magnitude"),
		Halves: n.Attr.Str("layout") == Halves,
	}
	if in[2] != nil {
		r.Freqs = in[2].F32
	}
	r.Rope(out[0].F32, in[0].F32, in[1].I32)
	return nil
}

// KVWrite stores row t of x at position pos[t] of sequence seq[t].
var KVWrite = writes(define("kv_write",
	[]spec{{"cache", graph.KV, "C n"}, {"x", graph.F32, "M n"}, {"pos", graph.I32, "M"}, {"seq", graph.I32, "M"}},
	[]spec{{"y", graph.KV, "C n"}}, nil, nil), [2]int{0, 0})

func evalKVWrite(_ *graph.Node, in, _ []*Value) error {
	ref.KVWrite(in[0].KV, in[1].F32, in[2].I32, in[3].I32)
	return nil
}

var headAttrs = []graph.AttrSpec{need("heads", int64(0)), need("kv_heads", int64(0)), need("head_dim", int64(0)), may("window", int64(0))}

func heads(n *graph.Node, c int) ref.Heads {
	return ref.Heads{
		Heads: int(n.Attr.Int("heads")), KVHeads: int(n.Attr.Int("kv_heads")), HeadDim: int(n.Attr.Int("head_dim")),
		Window: int(n.Attr.Int("window")), Positions: c,
	}
}

// scoreAttrs are the attributes of scores, in attn_scores and in the fused attention.
var scoreAttrs = []graph.AttrSpec{need("scale", 0.0)}

// AttnScores is scale · q·k for each head and each cached position j that token t sees: pos[t] −
// window < j ≤ pos[t] (no lower limit if window is 0); −Inf elsewhere. Groups of heads/kv_heads
// query heads share one key head (Ainslie et al. 2023).
var AttnScores = define("attn_scores",
	[]spec{{"q", graph.F32, "M heads*head_dim"}, {"cache", graph.KV, "C kv_heads*head_dim"}, {"pos", graph.I32, "M"}, {"seq", graph.I32, "M"}},
	[]spec{{"y", graph.F32, "M heads C"}},
	slices.Concat(scoreAttrs, headAttrs), checkHeads)

func evalAttnScores(n *graph.Node, in, out []*Value) error {
	h := heads(n, out[0].last())
	ref.AttnScores(out[0].F32, in[0].F32, in[1].KV, in[2].I32, in[3].I32, h, n.Attr.Float("scale"), make([]float32, in[1].KV.Width))
	return nil
}

// Softmax is exp(x) / Σ exp(x) over the cached positions; −Inf gives 0.
var Softmax = alias(define("softmax",
	[]spec{{"x", graph.F32, "M heads C"}},
	[]spec{{"y", graph.F32, "M heads C"}}, nil, nil), [2]int{0, 0})

func evalSoftmax(_ *graph.Node, in, out []*Value) error {
	ref.Softmax(out[0].F32, in[0].F32, in[0].last())
	return nil
}

// AttnValues sums the cached values by the probabilities of the positions that a token sees.
var AttnValues = define("attn_values",
	[]spec{{"probs", graph.F32, "M heads C"}, {"cache", graph.KV, "C kv_heads*head_dim"}, {"pos", graph.I32, "M"}, {"seq", graph.I32, "M"}},
	[]spec{{"y", graph.F32, "M heads*head_dim"}}, headAttrs, checkProbs)

func checkProbs(n *graph.Node) error {
	if s := n.Operand("probs").Type.Shape; len(s) == 3 && s[1] != graph.N(n.Attr.Int("heads")) {
		return errors.New("operand probs does not have the number of heads of the attribute heads")
	}
	return checkHeads(n)
}

func evalAttnValues(n *graph.Node, in, out []*Value) error {
	h := heads(n, in[0].last())
	ref.AttnValues(out[0].F32, in[0].F32, in[1].KV, in[2].I32, in[3].I32, h, make([]float32, in[1].KV.Width), make([]float64, h.HeadDim))
	return nil
}

// Attention is everything between the projections of one block: norms of each q and k head
// (optional), rope on both (rot 0: none), the writes of keys and values, scores, softmax, values.
var Attention = writes(define("attention",
	[]spec{{"q", graph.F32, "M heads*head_dim"}, {"k", graph.F32, "M kv_heads*head_dim"}, {"v", graph.F32, "M kv_heads*head_dim"},
		{"pos", graph.I32, "M"}, {"seq", graph.I32, "M"},
		{"kcache", graph.KV, "C kv_heads*head_dim"}, {"vcache", graph.KV, "C kv_heads*head_dim"},
		{"qnorm?", graph.F32, "head_dim"}, {"knorm?", graph.F32, "head_dim"}, {"freqs?", graph.F32, "rot/2"}},
	[]spec{{"y", graph.F32, "M heads*head_dim"}, {"kcache", graph.KV, "C kv_heads*head_dim"}, {"vcache", graph.KV, "C kv_heads*head_dim"}},
	slices.Concat(headAttrs, scoreAttrs, []graph.AttrSpec{may("eps", 0.0)}, rotaryAttrs),
	func(n *graph.Node) error {
		if err := checkHeads(n); err != nil {
			return err
		}
		return checkRope(n)
	}), [2]int{1, 5}, [2]int{2, 6})

func expandAttention(e *expander, n *graph.Node) []*graph.Value {
	y, a := n.Out[0].Name, n.Attr
	q, k, pos, seq := n.Operand("q"), n.Operand("k"), n.Operand("pos"), n.Operand("seq")
	if w := n.Operand("qnorm"); w != nil {
		q = e.add(RMSNorm, graph.Attrs{"eps": a.Float("eps"), "group": a.Int("head_dim")}, y+".q_norm", q, w)
	}
	if w := n.Operand("knorm"); w != nil {
		k = e.add(RMSNorm, graph.Attrs{"eps": a.Float("eps"), "group": a.Int("head_dim")}, y+".k_norm", k, w)
	}
	if a.Int("rot") > 0 {
		q = e.add(Rope, with(pick(a, Rope), "heads", a.Int("heads")), y+".q_rope", q, pos, n.Operand("freqs"))
		k = e.add(Rope, with(pick(a, Rope), "heads", a.Int("kv_heads")), y+".k_rope", k, pos, n.Operand("freqs"))
	}
	kcache := e.add(KVWrite, nil, n.Out[1].Name, n.Operand("kcache"), k, pos, seq)
	vcache := e.add(KVWrite, nil, n.Out[2].Name, n.Operand("vcache"), n.Operand("v"), pos, seq)
	scores := e.add(AttnScores, pick(a, AttnScores), y+".scores", q, kcache, pos, seq)
	probs := e.add(Softmax, nil, y+".probs", scores)
	return []*graph.Value{e.add(AttnValues, pick(a, AttnValues), y, probs, vcache, pos, seq), kcache, vcache}
}

// pick returns the attributes in a that op has.
func pick(a graph.Attrs, op *graph.Op) graph.Attrs {
	p := make(graph.Attrs)
	for _, spec := range op.Attrs {
		if v, ok := a[spec.Name]; ok {
			p[spec.Name] = v
		}
	}
	return p
}

func with(a graph.Attrs, name string, v any) graph.Attrs {
	a = maps.Clone(a)
	a[name] = v
	return a
}

// scoresFLOPs counts one product of head_dim elements for each token, head and cached position.
func scoresFLOPs(n *graph.Node, size func(graph.Dim) int64) int64 {
	positions := size(graph.Of(graph.C))
	if w := n.Attr.Int("window"); w > 0 {
		positions = min(positions, w)
	}
	return 2 * size(n.Out[0].Type.Shape[0]) * n.Attr.Int("heads") * n.Attr.Int("head_dim") * positions
}

func attentionFLOPs(n *graph.Node, size func(graph.Dim) int64) int64 { return 2 * scoresFLOPs(n, size) }
