package lower

import (
	"slices"

	"pesti/graph"
	"pesti/ops"
)

// lowerable returns a copy of g in which each node has a kernel in its site's program. Fused nodes that have none,
// and all where reference kernels are wanted, become basic ones.
func lowerable(g *graph.Graph, sites lowering, reference bool) (*graph.Graph, error) {
	if reference {
		return ops.ExpandAll(g)
	}
	c, err := separateCaches(g)
	if err != nil {
		return nil, err
	}
	for _, n := range slices.Clone(c.Nodes) {
		at := sites.at(n)
		if ok, _ := at.target.Lowers(&at.program, n); !ok {
			if err := ops.Expand(c, n); err != nil {
				return nil, err
			}
		}
	}
	c.Renumber()
	return c, nil
}

// separateCaches returns a copy of g in which each fused attention has its caches for itself: the
// kernel of one lays pages out by heads, where those of basic ops expect rows. An attention that
// shares a cache becomes basic ops.
func separateCaches(g *graph.Graph) (*graph.Graph, error) {
	c := g.Clone()
	uses := c.Uses()
	own := func(before, after *graph.Value) bool {
		return before.Def != nil && before.Def.Op == ops.State && len(uses[before]) == 1 && len(uses[after]) == 0
	}
	var shared []*graph.Node
	for _, n := range c.Nodes {
		if n.Op == ops.Attention && !(own(n.In[5], n.Out[1]) && own(n.In[6], n.Out[2])) {
			shared = append(shared, n)
		}
	}
	for _, n := range shared {
		if err := ops.Expand(c, n); err != nil {
			return nil, err
		}
	}
	c.Renumber()
	return c, nil
}
