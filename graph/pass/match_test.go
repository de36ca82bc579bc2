package pass

import (
	"slices"
	"testing"

	"pesti/graph"
	"pesti/ops"
)

// TestMatcherOrder replaces nodes whose operands are new nodes, too, all inserted after the same
// old node. Each has to come after the last of its operands, for any order of operands; among
// independent ones, a later insertion comes first.
func TestMatcherOrder(t *testing.T) {
	for _, swap := range []bool{false, true} {
		g, err := graph.Parse(`graph order (T <= 4, S <= 1, R <= 4, C <= 4)
  @embd : f32[5, 8]
  %tokens : i32[T] = input {dtype: "i32", sym: "T"}
  %rows : i32[R] = input {dtype: "i32", sym: "R"}
  %x : f32[T, 8] = get_rows @embd, %tokens
  %a : f32[T, 8] = silu %x
  %b : f32[T, 8] = silu %a
  %c : f32[T, 8] = add %a, %b
  %d : f32[T, 8] = silu %x
  %e : f32[T, 8] = add %c, %d
  %y : f32[R, 8] = select_rows %e, %rows
  output %y
  output %d
`, ops.Lookup)
		if err != nil {
			t.Fatal(err)
		}
		m := NewMatcher(g)
		node := func(name string) *graph.Node { return g.Value(name).Def } // the old one, until Apply
		fuse := func(name string, op *graph.Op, in ...*graph.Value) *graph.Value {
			t.Helper()
			old := node(name)
			if err := m.Fuse(&Context{}, name, Fusion{Nodes: []*graph.Node{old}, Op: op, In: in, Results: old.Out}); err != nil {
				t.Fatal(err)
			}
			return node("e").In[0]
		}
		fuse("a", ops.GELUTanh, node("a").In[0])
		a := node("b").In[0]
		fuse("b", ops.GELUTanh, a)
		b := node("c").In[1]
		if a == node("a").Out[0] || node("c").In[0] != a || len(m.uses[a]) != 2 || !m.Inner(b) {
			t.Errorf("the results of what was replaced have not gone to the new nodes")
		}
		in := []*graph.Value{a, b}
		if swap {
			slices.Reverse(in)
		}
		c := fuse("c", ops.Mul, in...)
		if !m.Inner(c) || m.By(c, ops.Mul) == nil {
			t.Errorf("%s is not inner", c.Name)
		}
		fuse("d", ops.GELUTanh, node("d").In[0])
		e := node("e")
		if err := m.Fuse(&Context{}, "e", Fusion{Nodes: []*graph.Node{e}, Op: ops.Mul, In: e.In, Results: e.Out, After: e}); err != nil {
			t.Fatal(err)
		}
		m.Apply()
		g.Renumber()
		if err := graph.Verify(g); err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, n := range g.Nodes {
			order = append(order, n.Name()+" "+n.Op.Name)
		}
		want := []string{"tokens input", "rows input", "x get_rows", "d gelu_tanh", "a gelu_tanh", "b gelu_tanh", "c mul", "e mul", "y select_rows"}
		if !slices.Equal(order, want) {
			t.Errorf("swapped %v: the list is %q, expected %q", swap, order, want)
		}
		if g.Outputs[1] != g.Value("d") {
			t.Error("the output d is not the new one")
		}
	}
}

// TestMatcherFront inserts a node without operands from other nodes before all others.
func TestMatcherFront(t *testing.T) {
	g := graph.New("front", graph.Bound{Sym: graph.T, Max: 1})
	attr := graph.Attrs{"dtype": "i32", "sym": "T"}
	for _, name := range []string{"a", "b"} {
		if _, err := g.Add(ops.Input, nil, attr, name); err != nil {
			t.Fatal(err)
		}
	}
	m := NewMatcher(g)
	b := g.Nodes[1]
	if err := m.replace(nil, &Fusion{Nodes: []*graph.Node{b}, Op: ops.Input, Results: b.Out}, attr); err != nil {
		t.Fatal(err)
	}
	m.Apply()
	if len(g.Nodes) != 2 || g.Nodes[0].Name() != "b" || g.Nodes[0] == b || g.Nodes[1].Name() != "a" {
		t.Errorf("the list has %d nodes, the first %s", len(g.Nodes), g.Nodes[0].Name())
	}
}
