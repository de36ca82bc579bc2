package pass

import (
	"slices"

	"pesti/graph"
	"pesti/ops"
)

// A Matcher answers what patterns ask: who uses a value, and whether it may disappear into a
// fused op.
type Matcher struct {
	g    *graph.Graph
	uses map[*graph.Value][]*graph.Node
}

// NewMatcher returns a matcher for g as it is: it does not see later changes but those it makes.
func NewMatcher(g *graph.Graph) *Matcher { return &Matcher{g, g.Uses()} }

// inner reports whether v has exactly one use and is not wanted as an output, so that a fused op
// may swallow it.
func (m *Matcher) inner(v *graph.Value) bool { return len(m.uses[v]) == 1 && !m.g.IsOutput(v) }

// By returns the node that computes v if it is of that op and v is inner; else nil.
func (m *Matcher) By(v *graph.Value, op *graph.Op) *graph.Node {
	if v == nil || v.Def == nil || v.Def.Op != op || !m.inner(v) {
		return nil
	}
	return v.Def
}

// user returns the only use of v if it is of that op and v is inner; else nil.
func (m *Matcher) user(v *graph.Value, op *graph.Op) *graph.Node {
	if !m.inner(v) || m.uses[v][0].Op != op {
		return nil
	}
	return m.uses[v][0]
}

// A projection is x·wᵀ, with a bias or without.
type projection struct {
	x, w, bias *graph.Value
	nodes      []*graph.Node // the ones that a fused op replaces
}

// projection matches v = x·wᵀ (+ bias). v itself may have any uses.
func (m *Matcher) projection(v *graph.Value) (p projection, ok bool) {
	n := v.Def
	if n != nil && n.Op == ops.AddBias {
		p.bias, p.nodes = n.In[1], []*graph.Node{n}
		if n = m.By(n.In[0], ops.Matmul); n == nil {
			return p, false
		}
	}
	if n == nil || n.Op != ops.Matmul || n.In[2] != nil || !n.In[1].IsWeight() {
		return p, false
	}
	p.x, p.w, p.nodes = n.In[0], n.In[1], append(p.nodes, n)
	return p, true
}

// replace puts one fused node in the place of nodes and hands it their results: their names and
// uses live on. The node stands right behind the last of its operands.
func (m *Matcher) replace(nodes []*graph.Node, op *graph.Op, in []*graph.Value, attr graph.Attrs, results ...*graph.Value) error {
	wanted := make(map[*graph.Node]bool)
	for _, v := range in {
		if v != nil && v.Def != nil {
			wanted[v.Def] = true
		}
	}
	at := 0
	for i, n := range m.g.Nodes {
		if wanted[n] {
			at = i + 1
		}
	}
	var before *graph.Node // nil: the end
	if at < len(m.g.Nodes) {
		before = m.g.Nodes[at]
	}
	names := make([]string, len(results))
	for i, v := range results {
		names[i] = v.Name
	}
	out, err := m.g.Insert(before, op, in, attr, names...)
	if err != nil {
		return err
	}
	for i, v := range results {
		m.g.ReplaceUses(v, out[i])
		m.uses[out[i]] = m.uses[v]
	}
	m.g.Remove(nodes...)
	for _, n := range nodes {
		for _, v := range n.In {
			m.uses[v] = slices.DeleteFunc(m.uses[v], func(u *graph.Node) bool { return u == n })
		}
	}
	for _, v := range in {
		if v != nil {
			m.uses[v] = append(m.uses[v], out[0].Def)
		}
	}
	return nil
}
