package ops_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"pesti/graph"
	"pesti/graph/graphtest"
	"pesti/ops"
)

// run evaluates steps and returns every value of each.
func run(t *rapid.T, g *graph.Graph, steps []graphtest.Step, f16 bool) []map[string]*ops.Value {
	env := &ops.Env{Weights: graphtest.Weights(1), F16: f16}
	var all []map[string]*ops.Value
	for i := range steps {
		env.Inputs = steps[i].Inputs()
		values, err := ops.Eval(g, env)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, values)
	}
	return all
}

// TestPrintParse prints and parses random graphs. The text is complete, and the parsed graph
// computes the same bits.
func TestPrintParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := graphtest.Draw(t, graphtest.Options{Quantized: true})
		text := graph.Print(g)
		h, err := graph.Parse(text, ops.Lookup)
		if err != nil {
			t.Fatal(err)
		}
		if err := graph.Equal(g, h); err != nil {
			t.Fatal(err)
		}
		if err := graph.Verify(h); err != nil {
			t.Fatal(err)
		}
		if again := graph.Print(h); again != text {
			t.Fatalf("printed again:\n%s", again)
		}
		if c := g.Clone(); graph.Equal(g, c) != nil || graph.Verify(c) != nil {
			t.Fatalf("the clone differs: %v, %v", graph.Equal(g, c), graph.Verify(c))
		}
	})
}

// TestExpand expands all fused nodes. The results keep their names and types, and no name occurs
// twice.
func TestExpand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := graphtest.Draw(t, graphtest.Options{Quantized: true})
		basic, err := ops.ExpandAll(g)
		if err != nil {
			t.Fatal(err)
		}
		if err := graph.Verify(basic); err != nil {
			t.Fatal(err)
		}
		for _, n := range basic.Nodes {
			if ops.Of(n.Op).Expand != nil {
				t.Fatalf("%s is still a %s", n.Name(), n.Op.Name)
			}
		}
		for _, n := range g.Nodes {
			for _, v := range n.Out {
				if w := basic.Value(v.Name); w == nil || !w.Type.Equal(v.Type) {
					t.Fatalf("%v: is %v after expansion", v, w)
				}
			}
		}
	})
}

// TestTokenByToken evaluates steps one token at a time: rows do not depend on each other, so every
// value keeps its bits.
func TestTokenByToken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := graphtest.Draw(t, graphtest.Options{Quantized: true, Chunks: true})
		steps := graphtest.Steps(t, g, 3)
		f16 := rapid.Bool().Draw(t, "f16")
		whole := run(t, g, steps, f16)
		var tokens []graphtest.Step
		for i := range steps {
			tokens = append(tokens, steps[i].Tokenwise()...)
		}
		single := run(t, g, tokens, f16)
		for i, s := range steps {
			for name, v := range whole[i] {
				if v.F32 == nil || g.Value(name) == nil { // a value inside an expansion
					continue
				}
				row := len(v.F32) / max(v.Shape[0], 1)
				perToken := g.Value(name).Type.Shape[0].Sym == graph.T
				for m := range v.Shape[0] {
					tok := m
					if !perToken {
						tok = int(s.Rows[m])
					}
					if got, want := single[tok][name].F32[:row], v.F32[m*row:(m+1)*row]; !sameBits(got, want) {
						t.Fatalf("step %d: row %d of %s is %v alone and %v in the step", i, m, name, got, want)
					}
				}
			}
			single = single[len(s.Tokens):]
		}
	})
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// TestRecipes checks that the recipes draw every op of the table.
func TestRecipes(t *testing.T) {
	drawn := map[*graph.Op]int{}
	gen := rapid.Custom(func(t *rapid.T) *graph.Graph { return graphtest.Draw(t, graphtest.Options{Quantized: true}) })
	for seed := range 400 {
		for _, n := range gen.Example(seed).Nodes {
			drawn[n.Op]++
		}
	}
	for _, row := range ops.Table() {
		if drawn[row.Op] < 10 {
			t.Errorf("op %s is in %d drawn nodes, expected 10 or more: it needs a recipe in graph/graphtest/recipes.go", row.Op.Name, drawn[row.Op])
		}
	}
}
