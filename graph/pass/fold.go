package pass

import (
	"pesti/graph"
	"pesti/ops"
)

// fold merges constant factors: scale of scale, scale of an embedding look-up, and factors of 1.
func fold(c *Context, g *graph.Graph) error {
	uses := g.Uses()
	for _, n := range g.Nodes {
		if n.Op != ops.Scale {
			continue
		}
		x, y := n.Operand("x"), n.Out[0]
		if why := Unchecked(n, isFactor); why != "" {
			c.Declined(y.Name, "%s", why)
			continue
		}
		if n.Attr.Float("factor") == 1 && !g.IsOutput(y) {
			g.ReplaceUses(y, x)
			c.Applied(y.Name)
			continue
		}
		attr, before := factorOf(x.Def)
		if attr == "" || g.IsOutput(x) || len(uses[x]) != 1 {
			continue
		}
		if why := Unchecked(x.Def, isFactor); why != "" {
			c.Declined(y.Name, "%s", why)
			continue
		}
		product := before * n.Attr.Float("factor")
		// x's node takes over the factor and the result y, which keeps its name.
		m := x.Def
		m.Attr[attr] = product
		m.Out[0], n.Out[0] = y, x
		y.Def, x.Def = m, n
		n.SetOperand("x", y) // dead: x has no uses
		g.ReplaceUses(x, y)
		c.Applied(y.Name)
	}
	return removeDead(g, ops.Scale)
}

// isFactor reports whether an attribute is a constant factor.
func isFactor(name string) bool { return name == "factor" || name == "scale" }

// factorOf returns the attribute with the constant factor of a node's result, and the factor; "" if
// the node's op has none.
func factorOf(n *graph.Node) (attr string, factor float64) {
	switch {
	case n == nil:
		return "", 0
	case n.Op == ops.Scale:
		return "factor", n.Attr.Float("factor")
	case n.Op == ops.GetRows:
		return "scale", n.Float("scale")
	}
	return "", 0
}

// removeDead drops nodes of one op whose results are unused.
func removeDead(g *graph.Graph, op *graph.Op) error {
	uses := g.Uses()
	var dead []*graph.Node
	for _, n := range g.Nodes {
		if n.Op == op && len(uses[n.Out[0]]) == 0 && !g.IsOutput(n.Out[0]) {
			dead = append(dead, n)
		}
	}
	g.Remove(dead...)
	return nil
}
