package pass

import (
	"slices"

	"pesti/graph"
	"pesti/ops"
)

// sinkRows moves the selection of rows from the logits towards the inputs, through every row-wise
// op whose result only that selection reads. Everything after the last attention, including the
// vocabulary projection, is then computed for the R selected rows only.
func sinkRows(c *Context, g *graph.Graph) error {
	var work []*graph.Node
	for _, n := range g.Nodes {
		if n.Op == ops.SelectRows {
			work = append(work, n)
		}
	}
	for len(work) > 0 {
		s := work[0]
		work = work[1:]
		if !slices.Contains(g.Nodes, s) || holdsRows(g, s) != "" {
			continue
		}
		name := s.Operand("x").Name
		selects, err := sink(g, s)
		if err != nil {
			return err
		}
		c.Applied(name)
		work = append(work, selects...)
	}
	for _, n := range g.Nodes {
		if n.Op == ops.SelectRows {
			c.Declined(n.Operand("x").Name, "%s", holdsRows(g, n))
		}
	}
	return nil
}

// holdsRows returns why a selection has to stay after the node that computes its operand; "" if it
// can move before the node.
func holdsRows(g *graph.Graph, s *graph.Node) string {
	v := s.Operand("x")
	n := v.Def
	if !n.Op.RowWise || len(n.Out) != 1 {
		return n.Op.Name + " mixes rows"
	}
	if why := Unchecked(s, func(string) bool { return false }); why != "" {
		return why
	}
	if g.IsOutput(v) {
		return "all rows are an output"
	}
	for _, x := range n.In {
		if hasRows(x) && x.Type.DType != graph.F32 {
			return "operand " + x.Name + " does not have float32 rows"
		}
	}
	for _, m := range g.Nodes {
		if m != s && slices.Contains(m.In, v) {
			return "all rows are read by " + m.Name()
		}
	}
	return ""
}

// hasRows reports whether x has one row for each token.
func hasRows(x *graph.Value) bool {
	return x != nil && !x.IsWeight() && len(x.Type.Shape) > 0 && x.Type.Shape[0] == graph.Of(graph.T)
}

// sink rewrites select(op(x…)) to op(select(x)…), under the selection's name, and returns the new
// selections before op. An operand that already has a selection shares it.
func sink(g *graph.Graph, s *graph.Node) ([]*graph.Node, error) {
	n, rows, y := s.Operand("x").Def, s.Operand("rows"), s.Out[0]
	ahead(g, rows.Def, n)
	var selects []*graph.Node
	for i, x := range n.In {
		if !hasRows(x) {
			continue
		}
		sel, err := selection(g, n, x, rows)
		if err != nil {
			return nil, err
		}
		ahead(g, sel, n)
		n.In[i] = sel.Out[0]
		selects = append(selects, sel)
	}
	g.Remove(s)
	y.Def, n.Out[0] = n, y
	return selects, nil
}

// selection returns the node that selects rows of x: an existing one, or a new one before n on the
// device of x.
func selection(g *graph.Graph, n *graph.Node, x, rows *graph.Value) (*graph.Node, error) {
	for _, m := range g.Nodes {
		if m.Op == ops.SelectRows && m.Operand("x") == x && m.Operand("rows") == rows {
			return m, nil
		}
	}
	out, err := g.Insert(n, ops.SelectRows, []*graph.Value{x, rows}, nil, g.Fresh(x.Name+".rows"))
	if err != nil {
		return nil, err
	}
	sel := out[0].Def
	if x.Def != nil {
		sel.Device = x.Def.Device // so that fewer rows are transferred to n's device
	}
	return sel, nil
}

// ahead moves node m before n if it is after n. All operands of m are defined before n, since m is
// an input or selects an operand of n.
func ahead(g *graph.Graph, m, n *graph.Node) {
	at, from := slices.Index(g.Nodes, n), slices.Index(g.Nodes, m)
	if from > at {
		g.Nodes = slices.Insert(slices.Delete(g.Nodes, from, from+1), at, m)
	}
}
