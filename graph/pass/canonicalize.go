package pass

import (
	"pesti/graph"
	"pesti/ops"
)

// canonicalize sorts the operands of commutative ops by definition, so that equal sums become equal
// nodes and the residual stream is the first operand of its additions.
func canonicalize(c *Context, g *graph.Graph) error {
	order := make(map[*graph.Value]int)
	for i, n := range g.Nodes {
		if (n.Op == ops.Add || n.Op == ops.Mul) && order[n.Operand("a")] > order[n.Operand("b")] {
			if why := Unchecked(n, func(string) bool { return false }); why != "" {
				c.Declined(n.Name(), "%s", why)
			} else {
				a, b := n.Operand("a"), n.Operand("b")
				n.SetOperand("a", b)
				n.SetOperand("b", a)
				c.Applied(n.Name())
			}
		}
		for _, v := range n.Out {
			order[v] = i
		}
	}
	return nil
}
