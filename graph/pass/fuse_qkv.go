package pass

import (
	"pesti/graph"
	"pesti/ops"
)

// fuseQKV joins the three projections that feed an attention from one operand, so that their
// weights are read in one step. Each may have a bias. They are found from the attention back,
// since nothing else tells q, k and v apart.
func fuseQKV(c *Context, g *graph.Graph) error {
	for _, n := range append([]*graph.Node(nil), g.Nodes...) {
		m := newMatcher(g)
		var q, k, v *graph.Value
		switch n.Op {
		case ops.Attention:
			q, k, v = n.In[0], n.In[1], n.In[2]
		case ops.AttnScores:
			q, k, v = m.sources(n)
		default:
			continue
		}
		place := n.Name()
		if q == nil || k == nil || v == nil {
			c.declined(place, "the way from the projections to the attention is not known")
			continue
		}
		if q.Def != nil && q.Def.Op == ops.QKV {
			continue // done already
		}
		pq, okQ := m.projection(q)
		pk, okK := m.projection(k)
		pv, okV := m.projection(v)
		switch {
		case !okQ || !okK || !okV:
			c.declined(place, "q, k and v are not all projections whose parts may disappear")
			continue
		case pq.x != pk.x || pq.x != pv.x:
			c.declined(place, "q, k and v are projections of different values")
			continue
		}
		in := []*graph.Value{pq.x, pq.w, pk.w, pv.w, pq.bias, pk.bias, pv.bias}
		nodes := append(append(pq.nodes, pk.nodes...), pv.nodes...)
		if err := replace(g, nodes, ops.QKV, in, nil, q, k, v); err != nil {
			return err
		}
		c.applied(place)
	}
	return nil
}

// sources follows an unfused attention back to the values that its q, k and v come from.
func (m *matcher) sources(scores *graph.Node) (q, k, v *graph.Value) {
	back := func(x *graph.Value) *graph.Value {
		for x != nil && x.Def != nil && (x.Def.Op == ops.Rope || x.Def.Op == ops.RMSNorm) {
			x = x.Def.In[0]
		}
		return x
	}
	written := func(cache *graph.Value) *graph.Value {
		if cache.Def == nil || cache.Def.Op != ops.KVWrite {
			return nil
		}
		return cache.Def.In[1]
	}
	q, k = back(scores.In[0]), back(written(scores.In[1]))
	if softmax := m.user(scores.Out[0], ops.Softmax); softmax != nil {
		if values := m.user(softmax.Out[0], ops.AttnValues); values != nil {
			v = back(written(values.In[1]))
		}
	}
	return q, k, v
}

// replace puts one fused node in the place of the last of nodes and hands it the results: their
// names live on.
func replace(g *graph.Graph, nodes []*graph.Node, op *graph.Op, in []*graph.Value, attr graph.Attrs, results ...*graph.Value) error {
	last := nodes[0]
	order := make(map[*graph.Node]int, len(g.Nodes))
	for i, n := range g.Nodes {
		order[n] = i
	}
	// The fused node must stand after all operands and before all uses: where the first node
	// stands whose operands are all there.
	at := 0
	for _, v := range in {
		if v != nil && v.Def != nil {
			at = max(at, order[v.Def]+1)
		}
	}
	if at < len(g.Nodes) {
		last = g.Nodes[at]
	} else {
		last = nil
	}
	names := make([]string, len(results))
	for i, v := range results {
		names[i] = v.Name
	}
	out, err := g.Insert(last, op, in, attr, names...)
	if err != nil {
		return err
	}
	for i, v := range results {
		g.ReplaceUses(v, out[i])
	}
	g.Remove(nodes...)
	return nil
}
