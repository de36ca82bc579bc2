package pass

import (
	"fmt"
	"maps"
	"slices"

	"pesti/graph"
	"pesti/ops"
)

// A Matcher answers the queries of patterns, and replaces the nodes that they match.
//
// It finds a value's uses and whether a fusion may remove the value ([Matcher.Inner], [Matcher.By],
// [Matcher.User]), replaces nodes by a fused node that takes over their uses ([Matcher.Fuse]), and
// finally updates the graph's list of nodes ([Matcher.Apply]). Operands change at once, the list
// only in Apply, because an update of the list for each fusion would make passes quadratic in the
// number of layers.
type Matcher struct {
	g    *graph.Graph
	uses map[*graph.Value][]*graph.Node

	place  map[*graph.Node]int   // position in the list, from 1; a new node has the position of the old node before it
	behind map[int][]*graph.Node // new nodes, in order, after the old node of a position; 0 is the front
	dead   map[*graph.Node]bool
}

// NewMatcher returns a matcher for g. It does not see later changes of g by others.
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

// Apply removes the replaced nodes from the graph's list and inserts the new ones. The list must
// not have changed since NewMatcher.
func (m *Matcher) Apply() {
	nodes := slices.Clone(m.behind[0])
	for i, n := range m.g.Nodes {
		nodes = append(append(nodes, n), m.behind[i+1]...)
	}
	m.g.Nodes = slices.DeleteFunc(nodes, func(n *graph.Node) bool { return m.dead[n] })
}

// before reports whether a will precede b, another node.
func (m *Matcher) before(a, b *graph.Node) bool {
	if m.place[a] != m.place[b] {
		return m.place[a] < m.place[b]
	}
	list := m.behind[m.place[a]]
	return slices.Index(list, a) < slices.Index(list, b) // the old node is not in list (−1), and is first
}

// Inner reports whether v has exactly one use and is no output of the graph, so that a fusion may
// remove it.
func (m *Matcher) Inner(v *graph.Value) bool { return len(m.uses[v]) == 1 && !m.g.IsOutput(v) }

// By returns the node that computes v if it has the op and v is inner; else nil.
func (m *Matcher) By(v *graph.Value, op *graph.Op) *graph.Node {
	if v == nil || v.Def == nil || v.Def.Op != op || !m.Inner(v) {
		return nil
	}
	return v.Def
}

// User returns the only user of v if it has the op and v is inner; else nil.
func (m *Matcher) User(v *graph.Value, op *graph.Op) *graph.Node {
	if !m.Inner(v) || m.uses[v][0].Op != op {
		return nil
	}
	return m.uses[v][0]
}

// A projection is x·wᵀ, with a bias or without.
type projection struct {
	x, w, bias *graph.Value
	nodes      []*graph.Node // the nodes that a fused op replaces
}

// projection matches v = x·wᵀ (+ bias). v itself may have any uses.
func (m *Matcher) projection(v *graph.Value) (p projection, ok bool) {
	n := v.Def
	if n != nil && n.Op == ops.AddBias {
		p.bias, p.nodes = n.Operand("b"), []*graph.Node{n}
		if n = m.By(n.Operand("x"), ops.Matmul); n == nil {
			return p, false
		}
	}
	if n == nil || n.Op != ops.Matmul || n.Operand("res") != nil || !n.Operand("w").IsWeight() {
		return p, false
	}
	p.x, p.w, p.nodes = n.Operand("x"), n.Operand("w"), append(p.nodes, n)
	return p, true
}

// A Fusion is a node and the nodes that it replaces.
type Fusion struct {
	Nodes   []*graph.Node  // the replaced nodes, at least one; the new node is on the device of the first
	Op      *graph.Op      // of the new node
	In      []*graph.Value // its operands
	Attr    graph.Attrs    // attributes that the pass sets itself
	Results []*graph.Value // results of replaced nodes, whose names and uses the new node's results take over
	// Checked lists, by op, the attributes of replaced nodes that the pass has checked itself. See
	// Fuse for the others.
	Checked map[*graph.Op][]string
	// After is the node after which the new one is inserted, possibly a replaced one; nil means
	// after the last of its operands.
	After *graph.Node
}

// Fuse replaces nodes by one fused node, or declines to, and records either under the name place.
//
// No attribute of a replaced node is lost. The fused node takes over each attribute that its op has
// too; it must have the same value on all replaced nodes. Fuse declines if a replaced node has an
// attribute that the fused op lacks, unless it is Checked or has its default value. If the op stays
// the same and gains an operand, every attribute has to be Checked.
func (m *Matcher) Fuse(c *Context, place string, f Fusion) error {
	attr, why := f.attributes()
	if why != "" {
		c.Declined(place, "%s", why)
		return nil
	}
	after := f.After
	for _, v := range f.In {
		if f.After == nil && v != nil && v.Def != nil && (after == nil || m.before(after, v.Def)) {
			after = v.Def
		}
	}
	if err := m.replace(after, &f, attr); err != nil {
		return err
	}
	c.Applied(place)
	return nil
}

// attributes returns the attributes of the fused node, or names the attribute of a replaced node
// that prevents the fusion.
func (f *Fusion) attributes() (attr graph.Attrs, why string) {
	attr = f.Attr.Clone()
	from := map[string]*graph.Node{} // the node that each attribute comes from
	for _, n := range f.Nodes {
		checked := f.Checked[n.Op]
		if why := Unchecked(n, func(name string) bool {
			return slices.Contains(checked, name) || n.Op != f.Op && f.Op.HasAttr(name)
		}); why != "" {
			return nil, why
		}
		for _, spec := range n.Op.Attrs {
			name := spec.Name
			if !f.Op.HasAttr(name) || slices.Contains(checked, name) && n.Op != f.Op {
				continue
			}
			if first := from[name]; first != nil && !first.SameAttr(n, name) {
				return nil, fmt.Sprintf("%s and %s differ in %s", first.Name(), n.Name(), name)
			}
			from[name] = n
			if v, ok := n.Attr[name]; ok && f.Attr[name] == nil {
				attr[name] = v
			}
		}
	}
	return attr, ""
}

// Unchecked returns a reason for Declined that names an attribute which a pass does not know; "" if
// there is none. An attribute with its default value does not count.
func Unchecked(n *graph.Node, known func(name string) bool) string {
	for _, name := range slices.Sorted(maps.Keys(n.Attr)) {
		if !known(name) && !n.IsDefault(name) {
			return fmt.Sprintf("%s has the attribute %s, which this pass does not know", n.Name(), name)
		}
	}
	return ""
}

// replace inserts the fused node after another one, or before all others if after is nil.
func (m *Matcher) replace(after *graph.Node, f *Fusion, attr graph.Attrs) error {
	names := make([]string, len(f.Results))
	for i, v := range f.Results {
		names[i] = v.Name
	}
	fused, err := graph.NewNode(f.Op, f.In, attr, names...)
	if err != nil {
		return err
	}
	fused.Device = f.Nodes[0].Device
	place := m.place[after]
	list := m.behind[place]
	m.behind[place] = slices.Insert(list, slices.Index(list, after)+1, fused)
	m.place[fused] = place
	for i, v := range f.Results {
		m.g.ReplaceUsesIn(m.uses[v], v, fused.Out[i])
		m.uses[fused.Out[i]] = m.uses[v]
	}
	for _, n := range f.Nodes {
		m.dead[n] = true
		for _, v := range n.In {
			m.uses[v] = slices.DeleteFunc(m.uses[v], func(u *graph.Node) bool { return u == n })
		}
	}
	for _, v := range f.In {
		if v != nil {
			m.uses[v] = append(m.uses[v], fused)
		}
	}
	return nil
}
