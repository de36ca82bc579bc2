package ops

import "pesti/graph"

// Expand replaces a fused node of g by the basic nodes that define it. It does nothing for a basic
// node. Call g.Renumber afterwards to make ids dense.
func Expand(g *graph.Graph, n *graph.Node) error {
	row := Of(n.Op)
	if row == nil || row.Expand == nil {
		return nil
	}
	e := &expander{g: g, at: n}
	results := row.Expand(e, n)
	if e.err != nil {
		return e.err
	}
	for i, v := range n.Out {
		g.ReplaceUses(v, results[i])
	}
	g.Remove(n)
	return nil
}

// ExpandAll returns a copy of g without fused nodes.
func ExpandAll(g *graph.Graph) (*graph.Graph, error) {
	c := g.Clone()
	for _, n := range append([]*graph.Node(nil), c.Nodes...) {
		if err := Expand(c, n); err != nil {
			return nil, err
		}
	}
	c.Renumber()
	return c, nil
}

// An expander inserts nodes before the node that it expands. After an error it does nothing, so
// that expansions need no error handling.
type expander struct {
	g   *graph.Graph
	at  *graph.Node
	err error
}

// add inserts one node and returns its only result.
func (e *expander) add(op *graph.Op, attr graph.Attrs, name string, in ...*graph.Value) *graph.Value {
	if e.err != nil {
		return nil
	}
	out, err := e.g.Insert(e.at, op, in, attr, e.fresh(name))
	if err != nil {
		e.err = err
		return nil
	}
	return out[0]
}

// fresh returns a name that no value has except the node's own results, whose names their
// replacements take over.
func (e *expander) fresh(name string) string {
	for _, v := range e.at.Out {
		if v.Name == name {
			return name
		}
	}
	return e.g.Fresh(name)
}
