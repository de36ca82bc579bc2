package exec_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/cpu/isa"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf/quant"
	"pesti/graph"
	"pesti/graph/graphtest"
	"pesti/lower"
	"pesti/lower/memplan"
	"pesti/ops"
)

// modelFor returns a model whose file holds the weights of g in addition to its own.
func modelFor(t rapid.TB, g *graph.Graph) *frontend.Model {
	weights := graphtest.Weights(1)
	return load(t, tiny.Config{
		Arch: "llama", Layers: 1, Embd: 8, Heads: 1, KVHeads: 1, FF: 8, Vocab: 258, Context: int(g.Max(graph.C)),
		Edit: func(m *tiny.Model) {
			for _, w := range g.Weights {
				info, ok := quant.ByName(string(w.Type.DType))
				if !ok {
					t.Fatalf("weight %v has no type of a file", w)
				}
				x, err := weights(w)
				if err != nil {
					t.Fatal(err)
				}
				tensor := tiny.Tensor{Name: w.Name, Type: info.Type, Data: x}
				for _, d := range slices.Backward(w.Type.Shape) {
					tensor.Dims = append(tensor.Dims, d.N)
				}
				m.Tensors = append(m.Tensors, tensor)
			}
		},
	})
}

// usableISAs returns the instruction sets that tests run plans on.
func usableISAs(t testing.TB) []string {
	t.Helper()
	sets, err := isa.UpTo(bestISA(t))
	if err != nil {
		t.Fatal(err)
	}
	return sets
}

// drawOptions draws compile options within a graph's bounds.
func drawOptions(t *rapid.T, g *graph.Graph) lower.Options {
	o := lower.Options{
		Precision: rapid.SampledFrom([]string{"exact", "fast"}).Draw(t, "precision"),
		KV:        rapid.SampledFrom([]string{"f32", "f16"}).Draw(t, "kv"),
		Threads:   rapid.IntRange(1, 4).Draw(t, "threads"),
		Ctx:       g.Max(graph.C), Ubatch: g.Max(graph.T), Sequences: g.Max(graph.S), Rows: g.Max(graph.R),
		Planner: rapid.SampledFrom(append(memplan.Planners(), "")).Draw(t, "planner"),
		Verify:  true,
	}
	if o.Precision == "fast" {
		o.Activations = "q8x2"
	}
	if rapid.Bool().Draw(t, "no passes") {
		o.Passes = "none"
		return o
	}
	var off []string
	for _, p := range lower.Passes() {
		if name := "-" + p.Name; !slices.Contains(off, name) && !rapid.Bool().Draw(t, p.Name) {
			off = append(off, name)
		}
	}
	o.Passes = strings.Join(off, ",")
	return o
}

// A precision bounds rounding errors: as a share of a row's largest element, and as the relative
// perturbation of weights that has the same effect on results.
type precision struct{ tolerance, weights float64 }

func precisionOf(o lower.Options) precision {
	switch {
	case o.KV == "f16":
		return precision{2e-3, 5e-4} // a value may round to neighboring float16 numbers in two executors
	case o.Precision == "fast":
		return precision{2e-4, 1e-4} // 15-bit activations
	}
	return precision{1e-5, 1e-6}
}

// TestRandomGraphs compiles random graphs for each instruction set, runs them, and compares every output of
// every step with the interpreter's. All instruction sets with vectors give the same bits.
func TestRandomGraphs(t *testing.T) {
	sets := usableISAs(t)
	rapid.Check(t, func(t *rapid.T) {
		r := drawRun(t)
		workers := rapid.IntRange(1, r.options.Threads).Draw(t, "workers")
		var vectors [][]float32
		for _, set := range sets {
			r.options.ISA = set
			outputs, err := r.outputs(r.compile(t), workers)
			switch {
			case err != nil:
				t.Fatalf("instruction set %s: %v", set, err)
			case set == "portable":
			case vectors == nil:
				vectors = outputs
			case !slices.EqualFunc(outputs, vectors, slices.Equal):
				t.Fatalf("instruction set %s gives other bits than %s", set, sets[1])
			}
		}
	})
}

// A graphRun is a drawn graph in a model, with compile options, input steps, and the interpreter's
// results.
type graphRun struct {
	graph   *graph.Graph
	model   *frontend.Model
	options lower.Options
	steps   []graphtest.Step
	want    []map[string]*ops.Value
	others  [][]map[string]*ops.Value // with perturbed weights
}

func drawRun(t *rapid.T) *graphRun {
	g := graphtest.Draw(t, graphtest.Options{Written: true})
	r := &graphRun{graph: g, model: modelFor(t, g), options: drawOptions(t, g), steps: graphtest.Steps(t, g, 4)}
	if err := r.interpret(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *graphRun) interpret() error {
	weights, f16 := graphtest.FromFile(r.model.File), r.options.KV == "f16"
	var err error
	r.want, err = graphtest.Eval(r.graph, weights, r.steps, f16)
	for seed := uint64(1); seed <= 3 && err == nil; seed++ {
		var other []map[string]*ops.Value
		other, err = graphtest.Eval(r.graph, graphtest.Perturbed(weights, precisionOf(r.options).weights, seed), r.steps, f16)
		r.others = append(r.others, other)
	}
	return err
}

func (r *graphRun) compile(t rapid.TB) *plan.Plan {
	res, err := lower.CompileGraph(r.model, r.graph, r.options)
	if err != nil {
		t.Fatal(err)
	}
	return res.Plan
}

// outputs runs a plan of the graph, compares the outputs of all steps, and returns them.
func (r *graphRun) outputs(p *plan.Plan, workers int) (all [][]float32, err error) {
	e, err := exec.Open(p, r.model.File, exec.Options{Threads: workers, Poison: true})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	for i := range r.steps {
		batch := exec.Batch{Tokens: r.steps[i].Tokens, Pos: r.steps[i].Pos, Seq: r.steps[i].Seq, Rows: r.steps[i].Rows}
		if err := e.Forward(context.Background(), &batch); err != nil {
			return nil, err
		}
		for _, v := range r.graph.Outputs {
			got, err := r.sameOutput(e, i, v.Name)
			if err != nil {
				return nil, fmt.Errorf("step %d: %s: %w", i, v.Name, err)
			}
			all = append(all, got)
		}
	}
	return all, nil
}

// sameOutput compares an output of a step with the interpreter's and returns it.
func (r *graphRun) sameOutput(e *exec.Engine, step int, name string) (got []float32, err error) {
	want := r.want[step][name]
	rows := want.Shape[0]
	if rows == 0 {
		return nil, nil
	}
	v, err := e.Value(name)
	if err != nil {
		return nil, err
	}
	got = slices.Clone(v.Data)
	var others [][]float32
	for _, o := range r.others {
		others = append(others, cut(o[step][name], len(got)/rows))
	}
	return got, graphtest.Near(got, cut(want, len(got)/rows), rows, precisionOf(r.options).tolerance, others...)
}

// cut shortens rows to n elements: the interpreter's scores have a column for each position of
// whole pages, a plan's for each position of the context.
func cut(v *ops.Value, n int) []float32 {
	if len(v.Shape) < 3 {
		return v.F32
	}
	var x []float32
	for row := range slices.Chunk(v.F32, v.Shape[2]) {
		x = append(x, row[:n/v.Shape[1]]...)
	}
	return x
}

// TestFoundGraphs runs graphs with which TestRandomGraphs found bugs.
func TestFoundGraphs(t *testing.T) {
	const head = `graph found (T <= 4, S <= 1, R <= 4, C <= 16)
  @embd : f32[5, 64]
  @w : q4_0[64, 64]
  %tokens : i32[T] = input {dtype: "i32", sym: "T"}
  %pos : i32[T] = input {dtype: "i32", sym: "T"}
  %seq : i32[T] = input {dtype: "i32", sym: "T"}
  %rows : i32[R] = input {dtype: "i32", sym: "R"}
  %x : f32[T, 64] = get_rows @embd, %tokens
`
	const tail = `  %logits : f32[R, 64] = select_rows %y, %rows
  output %logits
`
	for _, c := range []struct {
		name, nodes, precision, activations, passes string
	}{
		{"the reference matmul left the residual out", "  %y : f32[T, 64] = matmul %x, @w, %x\n", "exact", "", "none"},
		{"kernels on integers where nothing quantizes", "  %y : f32[T, 64] = matmul %x, @w, _\n", "fast", "q8x2", "-insert_quantize"},
		{"a value had the name of a quantized one", "  %y.x : f32[T, 64] = silu %x\n  %y : f32[T, 64] = matmul %y.x, @w, _\n", "fast", "q8x2", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := graph.Parse(head+c.nodes+tail, ops.Lookup)
			if err != nil {
				t.Fatal(err)
			}
			r := &graphRun{
				graph: g, model: modelFor(t, g),
				options: lower.Options{Precision: c.precision, Activations: c.activations, KV: "f32", Passes: c.passes, Ctx: 16, Ubatch: 4, Rows: 4, Threads: 2, Verify: true},
				steps:   []graphtest.Step{{Tokens: []int32{1, 2, 3}, Pos: []int32{0, 1, 2}, Seq: make([]int32, 3), Rows: []int32{2, 0}}},
			}
			if err := r.interpret(); err != nil {
				t.Fatal(err)
			}
			for _, r.options.ISA = range usableISAs(t) {
				if _, err := r.outputs(r.compile(t), 2); err != nil {
					t.Errorf("instruction set %s: %v", r.options.ISA, err)
				}
			}
		})
	}
}
