package lower

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/frontend"
	"pesti/gguf/quant"
	"pesti/graph/graphtest"
	"pesti/graph/pass"
)

// TestPassOrders compiles random models with any subset of passes in any order that the tables of
// constraints allow, and compares the logits of prompts and of single tokens of several sequences
// to those of the plan with all passes: 1e-5 of the row.
func TestPassOrders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		o := Options{
			Precision: "exact", Ubatch: 40, Ctx: 64, Threads: 2, Rows: 4, Verify: true,
			Sequences: int64(rapid.IntRange(1, 3).Draw(t, "sequences")),
		}
		g, err := m.Graph(frontend.Bounds{Tokens: o.Ubatch, Sequences: o.Sequences, Rows: o.Rows, Context: o.Ctx})
		if err != nil {
			t.Fatal(err)
		}
		steps := graphtest.Steps(t, g, 4)
		want, err := logits(m, o, tables{pass.Graph(), loweringPasses}, steps)
		if err != nil {
			t.Fatal(err)
		}
		o.Passes = drawOff(t)
		got, err := logits(m, o, drawTables(t), steps)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if err := graphtest.Near(got[i], want[i], 1, 1e-5); err != nil {
				t.Fatalf("row %d of logits: %v", i, err)
			}
		}
	})
}

// drawModel draws a model of any architecture, with any valid parameters.
func drawModel(t *rapid.T) *frontend.Model {
	one := func(label string, of ...int) int { return rapid.SampledFrom(of).Draw(t, label) }
	c := tiny.Config{
		Arch:    rapid.SampledFrom(frontend.Architectures()).Draw(t, "arch"),
		Layers:  one("layers", 1, 2, 3),
		KVHeads: one("kv heads", 1, 2, 3),
		HeadDim: one("head dim", 8, 16, 6, 32),
		FF:      one("ff", 32, 96, 33),
		Embd:    one("embd", 32, 64, 33),
		Tied:    rapid.Bool().Draw(t, "tied"),
		Context: 64, Vocab: 258,
		Seed: uint64(one("seed", 1, 2, 3)),
	}
	c.Heads = c.KVHeads * one("group", 1, 2, 3)
	if c.Arch == "gemma3" {
		c.Window = one("window", 0, 5, 20)
	}
	if rapid.Bool().Draw(t, "quantized") {
		c.Types = []quant.Type{quant.Q4_0, quant.Q8_0, quant.F16, quant.Q5_1}
	}
	rot := one("rot", c.HeadDim, c.HeadDim/4*2, 2)
	noBias := rapid.Bool().Draw(t, "no biases")
	c.Edit = func(m *tiny.Model) {
		m.Meta.SetUint32(c.Arch+".rope.dimension_count", uint32(rot))
		for i := range c.Layers {
			for _, part := range []string{"q", "k", "v"} {
				if noBias {
					m.Drop(fmt.Sprintf("blk.%d.attn_%s.bias", i, part))
				}
			}
		}
	}
	return tinyModel(t, c)
}

// drawOff draws a list of passes to switch off.
func drawOff(t *rapid.T) string {
	var off []string
	for _, p := range Passes() {
		if name := "-" + p.Name; !slices.Contains(off, name) && rapid.Bool().Draw(t, p.Name) {
			off = append(off, name)
		}
	}
	return strings.Join(off, ",")
}

// drawTables draws an allowed order of the passes of both tables.
func drawTables(t *rapid.T) tables {
	graphOrder := drawOrder(t, pass.Graph(), pass.GraphOrder())
	loweringOrder := drawOrder(t, loweringPasses(deviceTargets{{}}), LoweringOrder())
	return tables{
		graph: picked(pass.Graph(), graphOrder),
		lowering: func(l deviceTargets) []pass.Pass {
			return picked(loweringPasses(l), loweringOrder)
		},
	}
}

func picked(table []pass.Pass, order []int) []pass.Pass {
	var list []pass.Pass
	for _, i := range order {
		list = append(list, table[i])
	}
	return list
}

// drawOrder draws an order of a table's rows. The last row of each name obeys the constraints;
// other rows of the same name may be anywhere.
func drawOrder(t *rapid.T, table []pass.Pass, constraints []pass.Order) []int {
	var order, again []int
	waiting := map[string]int{}
	for _, i := range rapid.Permutation(indices(len(table))).Draw(t, "order") {
		if slices.ContainsFunc(table[i+1:], func(p pass.Pass) bool { return p.Name == table[i].Name }) {
			again = append(again, i)
		} else {
			waiting[table[i].Name] = i
			order = append(order, i)
		}
	}
	var sorted []int
	for len(order) > 0 {
		ready := slices.IndexFunc(order, func(i int) bool {
			return !slices.ContainsFunc(constraints, func(c pass.Order) bool {
				_, before := waiting[c.Before]
				return c.After == table[i].Name && before
			})
		})
		if ready < 0 {
			t.Fatalf("the constraints on %v go in a circle", waiting)
		}
		i := order[ready]
		delete(waiting, table[i].Name)
		order = slices.Delete(order, ready, ready+1)
		sorted = append(sorted, i)
	}
	for _, i := range again {
		sorted = slices.Insert(sorted, rapid.IntRange(0, len(sorted)).Draw(t, "again"), i)
	}
	names := make([]string, len(sorted))
	for at, i := range sorted {
		names[at] = table[i].Name
	}
	t.Logf("passes %v", names)
	return sorted
}

func indices(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// logits compiles a model with the given passes, runs steps, and returns all requested rows of
// logits.
func logits(m *frontend.Model, o Options, passes tables, steps []graphtest.Step) ([][]float32, error) {
	g, err := m.Graph(frontend.Bounds{Tokens: o.Ubatch, Sequences: o.Sequences, Rows: o.Rows, Context: o.Ctx})
	if err != nil {
		return nil, err
	}
	r, err := compileGraph(m, g, o, passes)
	if err != nil {
		return nil, err
	}
	e, err := exec.Open(r.Plan, m.File, exec.Options{Poison: true})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	var rows [][]float32
	for i := range steps {
		batch := exec.Batch{Tokens: steps[i].Tokens, Pos: steps[i].Pos, Seq: steps[i].Seq, Rows: steps[i].Rows}
		if err := e.Forward(context.Background(), &batch); err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
		for r := range batch.Rows {
			rows = append(rows, slices.Clone(e.Logits(r)))
		}
	}
	return rows, nil
}
