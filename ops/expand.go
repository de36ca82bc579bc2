package ops

import "pesti/graph"

// Expand replaces a fused node of g by the basic nodes that define it. A basic node stays.
// Ids are dense again after g.Renumber.
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

// An expander places nodes before the one it expands. After an error it does nothing, so that
// expansions read as straight code.
type expander struct {
	g   *graph.Graph
	at  *graph.Node
	err error
}

// add places one node and returns its only result.
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

// fresh is a name that no value has but the node's own results, whose names go to their successors.
func (e *expander) fresh(name string) string {
	for _, v := range e.at.Out {
		if v.Name == name {
			return name
		}
	}
	return e.g.Fresh(name)
}
