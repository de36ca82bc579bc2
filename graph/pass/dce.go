package pass

import "pesti/graph"

// dce drops nodes from which neither an output nor a write to a state can be reached.
func dce(c *Context, g *graph.Graph) error {
	live := make(map[*graph.Node]bool)
	var mark func(n *graph.Node)
	mark = func(n *graph.Node) {
		if n == nil || live[n] {
			return
		}
		live[n] = true
		for _, v := range n.In {
			if v != nil {
				mark(v.Def)
			}
		}
	}
	for _, v := range g.Outputs {
		mark(v.Def)
	}
	for _, n := range g.Nodes {
		if len(n.Op.Writes) > 0 {
			mark(n)
		}
	}
	var dead []*graph.Node
	for _, n := range g.Nodes {
		if !live[n] && len(n.Op.In) > 0 { // inputs and states are the graph's interface
			dead = append(dead, n)
			c.Applied(n.Name())
		}
	}
	g.Remove(dead...)
	return nil
}
