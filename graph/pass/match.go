package pass

import (
	"slices"

	"pesti/graph"
	"pesti/ops"
)

// A Matcher answers what patterns ask: who uses a value, and whether it may disappear into a
// fused op. What it fuses changes operands at once, but the list of nodes when Apply is called:
// changing the list in each place would make passes quadratic in the number of layers.
type Matcher struct {
	g    *graph.Graph
	uses map[*graph.Value][]*graph.Node

	place  map[*graph.Node]int   // in the list, from 1; of a new node that of the old one before it
	behind map[int][]*graph.Node // new nodes, in order, behind the old one of that place; 0 is the front
	dead   map[*graph.Node]bool
}

// NewMatcher returns a matcher for g as it is: it does not see later changes but those it makes.
func NewMatcher(g *graph.Graph) *Matcher {
	m := &Matcher{
		g: g, uses: g.Uses(),
		place:  make(map[*graph.Node]int, len(g.Nodes)),
		behind: make(map[int][]*graph.Node), dead: make(map[*graph.Node]bool),
	}
	for i, n := range g.Nodes {
		m.place[n] = i + 1
	}
	return m
}

// Apply takes what was replaced out of the graph's list of nodes and puts what is new into it. The
// list must be as it was when the Matcher was made.
func (m *Matcher) Apply() {
	nodes := slices.Clone(m.behind[0])
	for i, n := range m.g.Nodes {
		nodes = append(append(nodes, n), m.behind[i+1]...)
	}
	m.g.Nodes = slices.DeleteFunc(nodes, func(n *graph.Node) bool { return m.dead[n] })
}

// before reports whether a will stand before b, another node.
func (m *Matcher) before(a, b *graph.Node) bool {
	if m.place[a] != m.place[b] {
		return m.place[a] < m.place[b]
	}
	list := m.behind[m.place[a]]
	return slices.Index(list, a) < slices.Index(list, b) // the old one, at -1, is the first
}

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

// replace is Replace, with the new node right behind the last of its operands.
func (m *Matcher) replace(nodes []*graph.Node, op *graph.Op, in []*graph.Value, attr graph.Attrs, results ...*graph.Value) error {
	var last *graph.Node
	for _, v := range in {
		if v != nil && v.Def != nil && (last == nil || m.before(last, v.Def)) {
			last = v.Def
		}
	}
	return m.Replace(last, nodes, op, in, attr, results...)
}

// Replace puts one fused node in the place of nodes and hands it their results: their names and
// uses live on. It stands right behind a node, which may be one of those replaced, or in front of
// all where that is nil, and is on the device of those replaced.
func (m *Matcher) Replace(after *graph.Node, nodes []*graph.Node, op *graph.Op, in []*graph.Value, attr graph.Attrs, results ...*graph.Value) error {
	names := make([]string, len(results))
	for i, v := range results {
		names[i] = v.Name
	}
	fused, err := graph.NewNode(op, in, attr, names...)
	if err != nil {
		return err
	}
	if len(nodes) > 0 {
		fused.Device = nodes[0].Device
	}
	place := m.place[after]
	list := m.behind[place]
	m.behind[place] = slices.Insert(list, slices.Index(list, after)+1, fused)
	m.place[fused] = place
	for i, v := range results {
		m.g.ReplaceUsesIn(m.uses[v], v, fused.Out[i])
		m.uses[fused.Out[i]] = m.uses[v]
	}
	for _, n := range nodes {
		m.dead[n] = true
		for _, v := range n.In {
			m.uses[v] = slices.DeleteFunc(m.uses[v], func(u *graph.Node) bool { return u == n })
		}
	}
	for _, v := range in {
		if v != nil {
			m.uses[v] = append(m.uses[v], fused)
		}
	}
	return nil
}
