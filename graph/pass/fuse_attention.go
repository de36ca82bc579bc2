package pass

import (
	"fmt"

	"pesti/graph"
	"pesti/ops"
)

// fuseAttention joins optional per-head norms on q and k, RoPE, the writes to the cache, scores,
// softmax and values, so that scores never go to memory (Dao et al. 2022, arXiv:2205.14135).
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
		if err := m.replace(p.nodes, ops.Attention, p.in, p.attr, p.out...); err != nil {
			return err
		}
		c.Applied(p.out[0].Name)
	}
	m.Apply()
	return nil
}

// rotary names the attributes of RoPE that a fused attention takes over.
var rotary = []string{"rot", "base", "freq_scale", "ramp_low", "ramp_high", "magnitude", "layout"}

// An attentionPattern is what one fused attention replaces.
type attentionPattern struct {
	in, out []*graph.Value
	attr    graph.Attrs
	nodes   []*graph.Node
}

// attention matches the pattern around a node of scores, or says what stands in the way.
func (m *Matcher) attention(scores *graph.Node) (p attentionPattern, why string) {
	softmax := m.user(scores.Out[0], ops.Softmax)
	if softmax == nil {
		return p, "the scores are wanted or do not go to one softmax"
	}
	values := m.user(softmax.Out[0], ops.AttnValues)
	if values == nil {
		return p, "the probabilities are wanted or do not go to one product with values"
	}
	writeK, writeV := m.write(scores.In[1]), m.write(values.In[1])
	if writeK == nil || writeV == nil {
		return p, "keys or values do not come from a cache that is written just before"
	}
	q, why := m.head(scores.In[0])
	if why != "" {
		return p, why
	}
	k, why := m.head(writeK.In[1])
	if why != "" {
		return p, why
	}
	pos, seq := scores.In[2], scores.In[3]
	for _, n := range []*graph.Node{q.rope, k.rope, writeK, writeV, values} {
		for _, v := range n.In {
			if v != nil && v.Type.DType == graph.I32 && v != pos && v != seq {
				return p, fmt.Sprintf("%s works with other positions or sequences than the scores", n.Name())
			}
		}
	}
	for _, name := range append(rotary, "head_dim") {
		if q.rope.Attr[name] != k.rope.Attr[name] {
			return p, fmt.Sprintf("RoPE differs between q and k in %s", name)
		}
	}
	for _, name := range []string{"heads", "kv_heads", "head_dim", "window"} {
		if scores.Attr[name] != values.Attr[name] {
			return p, fmt.Sprintf("scores and values differ in %s", name)
		}
	}
	if q.rope.In[2] != k.rope.In[2] {
		return p, "RoPE differs between q and k in its frequencies"
	}
	if (q.norm == nil) != (k.norm == nil) || q.norm != nil && q.norm.Attr["eps"] != k.norm.Attr["eps"] {
		return p, "the norms of q and k differ"
	}

	p.attr = graph.Attrs{}
	for _, name := range []string{"heads", "kv_heads", "head_dim", "window", "scale"} {
		if a, ok := scores.Attr[name]; ok {
			p.attr[name] = a
		}
	}
	for _, name := range rotary {
		if a, ok := q.rope.Attr[name]; ok {
			p.attr[name] = a
		}
	}
	p.nodes = []*graph.Node{q.rope, k.rope, writeK, writeV, scores, softmax, values}
	var qNorm, kNorm *graph.Value
	if q.norm != nil {
		qNorm, kNorm = q.norm.In[1], k.norm.In[1]
		p.attr["eps"] = q.norm.Attr["eps"]
		p.nodes = append(p.nodes, q.norm, k.norm)
	}
	p.in = []*graph.Value{q.x, k.x, writeV.In[1], pos, seq, writeK.In[0], writeV.In[0], qNorm, kNorm, q.rope.In[2]}
	p.out = []*graph.Value{values.Out[0], writeK.Out[0], writeV.Out[0]}
	return p, ""
}

// write returns the write that yields a cache which nothing else reads.
func (m *Matcher) write(cache *graph.Value) *graph.Node { return m.By(cache, ops.KVWrite) }

// A headPattern is rope(norm(x)) or rope(x).
type headPattern struct {
	x          *graph.Value
	norm, rope *graph.Node
}

func (m *Matcher) head(v *graph.Value) (h headPattern, why string) {
	h.rope = m.By(v, ops.Rope)
	if h.rope == nil {
		return h, fmt.Sprintf("%s is wanted or is not the result of RoPE", v.Name)
	}
	h.x = h.rope.In[0]
	if n := h.x.Def; n != nil && n.Op == ops.RMSNorm {
		if n.Attr.Int("group") != h.rope.Attr.Int("head_dim") || !m.inner(h.x) {
			return h, fmt.Sprintf("%s is wanted or is not a norm per head", h.x.Name)
		}
		h.norm, h.x = n, n.In[0]
	}
	return h, ""
}
