package lower

import (
	"slices"

	"pesti/graph"
	"pesti/lower/target"
	"pesti/ops"
)

// lowerable returns a copy of g in which each node has a kernel in its device's program. It expands
// fused nodes without a kernel to basic ops, and all fused nodes if reference kernels are
// requested. It also returns the reason for each expanded node.
func lowerable(g *graph.Graph, targets deviceTargets, reference bool) (*graph.Graph, map[*graph.Node]reason, error) {
	c := g.Clone()
	reasons := map[*graph.Node]reason{}
	expand := func(list []*graph.Node, why func(*graph.Node) string) error {
		for _, n := range list {
			w := why(n)
			if w == "" {
				continue
			}
			at, before := slices.Index(c.Nodes, n), len(c.Nodes)
			if err := ops.Expand(c, n); err != nil {
				return err
			}
			for _, part := range c.Nodes[at : at+1+len(c.Nodes)-before] {
				reasons[part] = reason{n.Op.Name, w}
			}
		}
		return nil
	}
	var err error
	if reference {
		err = expand(slices.Clone(c.Nodes), func(*graph.Node) string { return target.SwitchedOff })
	} else if err = expand(sharedCaches(c), func(*graph.Node) string { return "it shares its cache with another node" }); err == nil {
		err = expand(slices.Clone(c.Nodes), func(n *graph.Node) string {
			at := targets.at(n)
			ok, why := at.target.Lowers(&at.program, n)
			if ok {
				return ""
			}
			return why
		})
	}
	c.Renumber()
	return c, reasons, err
}

// sharedCaches returns the fused attention nodes whose caches other nodes use too. The fused kernel
// groups pages by head, which the kernels of basic ops cannot read.
func sharedCaches(g *graph.Graph) []*graph.Node {
	uses := g.Uses()
	own := func(before, after *graph.Value) bool {
		return before.Def != nil && before.Def.Op == ops.State && len(uses[before]) == 1 && len(uses[after]) == 0
	}
	var shared []*graph.Node
	for _, n := range g.Nodes {
		if n.Op == ops.Attention && !(own(n.Operand("kcache"), n.Out[1]) && own(n.Operand("vcache"), n.Out[2])) {
			shared = append(shared, n)
		}
	}
	return shared
}
