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
		x, y := n.In[0], n.Out[0]
		if n.Attr.Float("factor") == 1 && !g.IsOutput(y) {
			g.ReplaceUses(y, x)
			c.Applied(y.Name)
			continue
		}
		attr, ok := factorOf(x.Def)
		if !ok || g.IsOutput(x) || len(uses[x]) != 1 {
			continue
		}
		before := 1.0
		if f, set := x.Def.Attr[attr].(float64); set {
			before = f
		}
		// x's node takes the factor over, and y's name: y is the value that lives on.
		m := x.Def
		m.Attr[attr] = before * n.Attr.Float("factor")
		m.Out[0], n.Out[0] = y, x
		y.Def, x.Def = m, n
		n.In[0] = y // now dead: nothing uses x
		g.ReplaceUses(x, y)
		c.Applied(y.Name)
	}
	return removeDead(g, ops.Scale)
}

// factorOf returns the attribute in which a node holds a constant factor on its result.
func factorOf(n *graph.Node) (string, bool) {
	switch {
	case n == nil:
		return "", false
	case n.Op == ops.Scale:
		return "factor", true
	case n.Op == ops.GetRows:
		return "scale", true
	}
	return "", false
}

// removeDead drops nodes of one op whose results nothing uses.
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
