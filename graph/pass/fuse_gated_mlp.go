package pass

import (
	"pesti/graph"
	"pesti/ops"
)

// activations are the possible activation functions of the gate. An attribute of the fused op names
// one.
var activations = []*graph.Op{ops.SiLU, ops.GELUTanh, ops.GELUErf}

// fuseGatedMLP fuses act(gate·x) ⊙ (up·x) for any activation, so that both weights are read in one
// step and the gate is never stored (Shazeer 2020, arXiv:2002.05202).
func fuseGatedMLP(c *Context, g *graph.Graph) error {
	m := NewMatcher(g)
	for _, n := range g.Nodes {
		if n.Op != ops.Mul {
			continue
		}
		a, b := n.Operand("a"), n.Operand("b")
		act, up := m.gate(a, b)
		if act == nil {
			act, up = m.gate(b, a)
		}
		if act == nil {
			c.Declined(n.Name(), "no operand is the single use of an activation")
			continue
		}
		pg, okG := m.projection(act.Operand("x"))
		pu, okU := m.projection(up)
		switch {
		case !okG || !okU || pg.bias != nil || pu.bias != nil || !m.Inner(act.Operand("x")) || !m.Inner(up):
			c.Declined(n.Name(), "gate and up are not plain projections with a single use")
			continue
		case pg.x != pu.x:
			c.Declined(n.Name(), "gate and up are projections of different values")
			continue
		}
		nodes := append(append(pg.nodes, pu.nodes...), act, n)
		in := []*graph.Value{pg.x, pg.w, pu.w}
		attr := graph.Attrs{"act": act.Op.Name}
		if err := m.Fuse(c, n.Name(), Fusion{Nodes: nodes, Op: ops.GatedMLP, In: in, Attr: attr, Results: n.Out}); err != nil {
			return err
		}
	}
	m.Apply()
	return nil
}

// gate returns the activation that computes a, if there is one, and b.
func (m *Matcher) gate(a, b *graph.Value) (act *graph.Node, up *graph.Value) {
	for _, op := range activations {
		if n := m.By(a, op); n != nil {
			return n, b
		}
	}
	return nil, nil
}
