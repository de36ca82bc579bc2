package pass

import (
	"fmt"
	"strings"

	"pesti/graph"
)

// cse replaces a computation by an earlier one with equal op, operands and attributes. It does not
// merge states and writes, since each has its own identity, nor outputs, since their names must
// stay.
func cse(c *Context, g *graph.Graph) error {
	seen := make(map[string]*graph.Node)
	var dead []*graph.Node
	replaced := make(map[*graph.Value]*graph.Value)
	for _, n := range g.Nodes {
		for i, v := range n.In {
			if r, ok := replaced[v]; ok {
				n.In[i] = r
			}
		}
		if len(n.Op.In) == 0 || len(n.Op.Writes) > 0 { // inputs, states, writes
			continue
		}
		key := signature(n)
		first, ok := seen[key]
		if !ok {
			seen[key] = n
			continue
		}
		if anyOutput(g, n) {
			continue
		}
		for i, v := range n.Out {
			replaced[v] = first.Out[i]
		}
		dead = append(dead, n)
		c.Applied(n.Name())
	}
	g.Remove(dead...)
	return nil
}

// signature returns a text that is equal for nodes that compute the same.
func signature(n *graph.Node) string {
	var b strings.Builder
	b.WriteString(n.Op.Name)
	for _, v := range n.In {
		fmt.Fprintf(&b, " %p", v)
	}
	fmt.Fprintf(&b, "%s on %d", n.Attr, n.Device)
	return b.String()
}

func anyOutput(g *graph.Graph, n *graph.Node) bool {
	for _, v := range n.Out {
		if g.IsOutput(v) {
			return true
		}
	}
	return false
}
