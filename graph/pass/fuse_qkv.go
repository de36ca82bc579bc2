package pass

import (
	"pesti/graph"
	"pesti/ops"
)

// fuseQKV fuses the q, k and v projections of an attention, which have the same operand, so that
// their weights are read in one step. Each may have a bias. The pass starts from the attention,
// since nothing else distinguishes q, k and v.
func fuseQKV(c *Context, g *graph.Graph) error {
	m := NewMatcher(g)
	for _, n := range g.Nodes {
		var q, k, v *graph.Value
		switch n.Op {
		case ops.Attention:
			q, k, v = n.Operand("q"), n.Operand("k"), n.Operand("v")
		case ops.AttnScores:
			q, k, v = m.sources(n)
		default:
			continue
		}
		place := n.Name()
		if q == nil || k == nil || v == nil {
			c.Declined(place, "the nodes between the projections and the attention do not match the pattern")
			continue
		}
		if q.Def != nil && q.Def.Op == ops.QKV {
			continue // fused already
		}
		if q == k || q == v || k == v {
			c.Declined(place, "q, k and v are not three values")
			continue
		}
		pq, okQ := m.projection(q)
		pk, okK := m.projection(k)
		pv, okV := m.projection(v)
		switch {
		case !okQ || !okK || !okV:
			c.Declined(place, "q, k and v are not all projections with a single use")
			continue
		case pq.x != pk.x || pq.x != pv.x:
			c.Declined(place, "q, k and v are projections of different values")
			continue
		}
		in := []*graph.Value{pq.x, pq.w, pk.w, pv.w, pq.bias, pk.bias, pv.bias}
		nodes := append(append(pq.nodes, pk.nodes...), pv.nodes...)
		if err := m.Fuse(c, place, Fusion{Nodes: nodes, Op: ops.QKV, In: in, Results: []*graph.Value{q, k, v}}); err != nil {
			return err
		}
	}
	m.Apply()
	return nil
}

// sources follows an unfused attention back to the values that its q, k and v come from.
func (m *Matcher) sources(scores *graph.Node) (q, k, v *graph.Value) {
	back := func(x *graph.Value) *graph.Value {
		for x != nil && x.Def != nil && (x.Def.Op == ops.Rope || x.Def.Op == ops.RMSNorm) {
			x = x.Def.Operand("x")
		}
		return x
	}
	written := func(cache *graph.Value) *graph.Value {
		if cache.Def == nil || cache.Def.Op != ops.KVWrite {
			return nil
		}
		return cache.Def.Operand("x")
	}
	q, k = back(scores.Operand("q")), back(written(scores.Operand("cache")))
	if softmax := m.User(scores.Out[0], ops.Softmax); softmax != nil {
		if values := m.User(softmax.Out[0], ops.AttnValues); values != nil {
			v = back(written(values.Operand("cache")))
		}
	}
	return q, k, v
}
