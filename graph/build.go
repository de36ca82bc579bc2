package graph

import (
	"fmt"
	"slices"
)

// New returns an empty graph.
func New(name string, bounds ...Bound) *Graph { return &Graph{Name: name, Bounds: bounds} }

// Weight returns the weight with a name, and declares it at its first use. A later use with another
// type is an error.
func (g *Graph) Weight(name string, t Type) (*Value, error) {
	for _, w := range g.Weights {
		if w.Name != name {
			continue
		}
		if !w.Type.Equal(t) {
			return nil, fmt.Errorf("weight %s: declared as %v, used as %v: a weight has one type", name, w.Type, t)
		}
		return w, nil
	}
	w := &Value{Name: name, Type: t}
	g.Weights = append(g.Weights, w)
	return w, nil
}

// Value returns the result with a name, or nil.
func (g *Graph) Value(name string) *Value {
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Name == name {
				return v
			}
		}
	}
	return nil
}

// Fresh returns name if no result has it yet, otherwise name with primes appended until it is
// unused.
func (g *Graph) Fresh(name string) string {
	for g.Value(name) != nil {
		name += "'"
	}
	return name
}

// Add appends a node and returns its results, one for each name, with the types that op infers.
// Absent optional operands are nil; trailing ones may be left out. Call Renumber afterwards to make
// ids dense.
func (g *Graph) Add(op *Op, in []*Value, attr Attrs, names ...string) ([]*Value, error) {
	return g.Insert(nil, op, in, attr, names...)
}

// Insert is Add, but places the node before another one, on its device. A nil before means the end.
func (g *Graph) Insert(before *Node, op *Op, in []*Value, attr Attrs, names ...string) ([]*Value, error) {
	at := len(g.Nodes)
	if before != nil {
		if at = slices.Index(g.Nodes, before); at < 0 {
			return nil, fmt.Errorf("node %s is not in graph %s: cannot insert before it", before.Name(), g.Name)
		}
	}
	n, err := NewNode(op, in, attr, names...)
	if err != nil {
		return nil, err
	}
	if before != nil {
		n.Device = before.Device
	}
	g.Nodes = slices.Insert(g.Nodes, at, n)
	return n.Out, nil
}

// NewNode returns the node that Add would append, without adding it to a graph.
func NewNode(op *Op, in []*Value, attr Attrs, names ...string) (*Node, error) {
	n := &Node{Op: op, In: make([]*Value, max(len(op.In), len(in))), Attr: attr.Clone()}
	copy(n.In, in)
	for i, name := range names {
		n.Out = append(n.Out, &Value{Name: name, Def: n, Index: i})
	}
	types, err := infer(n)
	if err != nil {
		return nil, err
	}
	for i, t := range types {
		n.Out[i].Type = t
	}
	return n, nil
}

// Remove removes nodes from the graph. Their results must be unused, which Verify checks.
func (g *Graph) Remove(nodes ...*Node) {
	dead := make(map[*Node]bool, len(nodes))
	for _, n := range nodes {
		dead[n] = true
	}
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n *Node) bool { return dead[n] })
}

// Uses returns, for each value, the nodes that read it in execution order, once for each operand.
// An output of the graph is no use: see IsOutput.
func (g *Graph) Uses() map[*Value][]*Node {
	uses := make(map[*Value][]*Node, len(g.Nodes))
	// Most values have one use: their lists share the memory of a list of the nodes.
	nodes := slices.Clone(g.Nodes)
	for i, n := range g.Nodes {
		for _, v := range n.In {
			switch list := uses[v]; {
			case v == nil:
			case list == nil:
				uses[v] = nodes[i : i+1 : i+1]
			default:
				uses[v] = append(list, n)
			}
		}
	}
	return uses
}

// IsOutput reports whether v is one of the graph's outputs.
func (g *Graph) IsOutput(v *Value) bool { return slices.Contains(g.Outputs, v) }

// ReplaceUses replaces old by new in all operands and outputs.
func (g *Graph) ReplaceUses(old, new *Value) { g.ReplaceUsesIn(g.Nodes, old, new) }

// ReplaceUsesIn is ReplaceUses for an old value that only the given nodes read.
func (g *Graph) ReplaceUsesIn(nodes []*Node, old, new *Value) {
	for _, n := range nodes {
		replace(n.In, old, new)
	}
	replace(g.Outputs, old, new)
}

func replace(values []*Value, old, new *Value) {
	for i, v := range values {
		if v == old {
			values[i] = new
		}
	}
}

// Renumber drops weights that no node reads and makes all ids dense: weights first, in the order
// of declaration, then results in node order.
func (g *Graph) Renumber() {
	used := make(map[*Value]bool, len(g.Weights))
	for _, n := range g.Nodes {
		for _, v := range n.In {
			if v != nil && v.IsWeight() {
				used[v] = true
			}
		}
	}
	g.Weights = slices.DeleteFunc(g.Weights, func(w *Value) bool { return !used[w] })
	g.number(func(v *Value, id int) { v.ID = id })
}

// number calls f with every value and its dense id.
func (g *Graph) number(f func(v *Value, id int)) {
	id := 0
	for _, w := range g.Weights {
		f(w, id)
		id++
	}
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			f(v, id)
			id++
		}
	}
}

// Clone returns a graph that shares nothing with g but the ops.
func (g *Graph) Clone() *Graph {
	c := &Graph{Name: g.Name, Bounds: slices.Clone(g.Bounds)}
	copies := make(map[*Value]*Value)
	clone := func(v *Value, def *Node) *Value {
		w := &Value{ID: v.ID, Name: v.Name, Type: Type{v.Type.DType, slices.Clone(v.Type.Shape)}, Def: def, Index: v.Index}
		if v.Part != nil {
			w.Part = v.Part.clone()
		}
		copies[v] = w
		return w
	}
	mapped := func(values []*Value) []*Value {
		out := make([]*Value, len(values))
		for i, v := range values {
			out[i] = copies[v]
		}
		return out
	}
	for _, w := range g.Weights {
		c.Weights = append(c.Weights, clone(w, nil))
	}
	for _, n := range g.Nodes {
		m := &Node{Op: n.Op, In: mapped(n.In), Attr: n.Attr.Clone(), Device: n.Device}
		for _, v := range n.Out {
			m.Out = append(m.Out, clone(v, m))
		}
		c.Nodes = append(c.Nodes, m)
	}
	c.Outputs = mapped(g.Outputs)
	return c
}
