package pass

import (
	"fmt"

	"pesti/graph"
	"pesti/ops"
)

// fuseAttention fuses optional per-head norms on q and k, RoPE, the writes to the cache, scores,
// softmax and values, so that scores are never stored (Dao et al. 2022, arXiv:2205.14135).
func fuseAttention(c *Context, g *graph.Graph) error {
	m := NewMatcher(g)
	for _, n := range g.Nodes {
		if n.Op != ops.AttnScores {
			continue
		}
		p, why := m.attention(n)
		if why != "" {
			c.Declined(n.Name(), "%s", why)
			continue
		}
		if err := m.Fuse(c, p.Results[0].Name, p); err != nil {
			return err
		}
	}
	m.Apply()
	return nil
}

// attentionChecked are the attributes that the pattern checks itself: norms must be per head, and
// RoPE's number of heads follows from the types of q and k.
var attentionChecked = map[*graph.Op][]string{ops.RMSNorm: {"group"}, ops.Rope: {"heads"}}

// attention matches the pattern around a node of scores, or returns why it does not match.
func (m *Matcher) attention(scores *graph.Node) (p Fusion, why string) {
	softmax := m.User(scores.Out[0], ops.Softmax)
	if softmax == nil {
		return p, "the scores are an output or are read by other nodes than one softmax"
	}
	values := m.User(softmax.Out[0], ops.AttnValues)
	if values == nil {
		return p, "the probabilities are an output or are read by other nodes than one product with values"
	}
	writeK, writeV := m.write(scores.Operand("cache")), m.write(values.Operand("cache"))
	if writeK == nil || writeV == nil {
		return p, "keys or values are not a cache that the preceding kv_write writes"
	}
	q, why := m.head(scores.Operand("q"))
	if why != "" {
		return p, why
	}
	k, why := m.head(writeK.Operand("x"))
	if why != "" {
		return p, why
	}
	pos, seq := scores.Operand("pos"), scores.Operand("seq")
	for _, n := range []*graph.Node{q.rope, k.rope, writeK, writeV, values} {
		for _, v := range n.In {
			if v != nil && v.Type.DType == graph.I32 && v != pos && v != seq {
				return p, fmt.Sprintf("%s has other positions or sequences than the scores", n.Name())
			}
		}
	}
	if q.rope.Operand("freqs") != k.rope.Operand("freqs") {
		return p, "RoPE of q and of k have different frequencies"
	}
	if (q.norm == nil) != (k.norm == nil) {
		return p, "only one of q and k has a norm"
	}

	p.Op, p.Checked = ops.Attention, attentionChecked
	p.Nodes = []*graph.Node{q.rope, k.rope, writeK, writeV, scores, softmax, values}
	var qNorm, kNorm *graph.Value
	if q.norm != nil {
		qNorm, kNorm = q.norm.Operand("w"), k.norm.Operand("w")
		p.Nodes = append(p.Nodes, q.norm, k.norm)
	}
	p.In = []*graph.Value{q.x, k.x, writeV.Operand("x"), pos, seq, writeK.Operand("cache"), writeV.Operand("cache"), qNorm, kNorm, q.rope.Operand("freqs")}
	p.Results = []*graph.Value{values.Out[0], writeK.Out[0], writeV.Out[0]}
	return p, ""
}

// write returns the kv_write whose result has only one reader.
func (m *Matcher) write(cache *graph.Value) *graph.Node { return m.By(cache, ops.KVWrite) }

// A headPattern is rope(norm(x)) or rope(x).
type headPattern struct {
	x          *graph.Value
	norm, rope *graph.Node
}

func (m *Matcher) head(v *graph.Value) (h headPattern, why string) {
	h.rope = m.By(v, ops.Rope)
	if h.rope == nil {
		return h, fmt.Sprintf("%s is an output or is not the result of RoPE", v.Name)
	}
	h.x = h.rope.Operand("x")
	if n := h.x.Def; n != nil && n.Op == ops.RMSNorm {
		if n.Attr.Int("group") != h.rope.Attr.Int("head_dim") || !m.Inner(h.x) {
			return h, fmt.Sprintf("%s is an output or is not a norm per head", h.x.Name)
		}
		h.norm, h.x = n, n.Operand("x")
	}
	return h, ""
}
