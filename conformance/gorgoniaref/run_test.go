package gorgoniaref

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"pesti/conformance/tiny"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/gguf/quant"
	"pesti/graph"
	"pesti/graph/graphtest"
	"pesti/ops"
)

// unfused returns the graph of a model for n tokens.
func unfused(t rapid.TB, f *gguf.File, n int) *graph.Graph {
	t.Helper()
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.Graph(frontend.Bounds{Tokens: int64(n), Sequences: 1, Rows: int64(n), Context: int64(n)})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// matrices returns the names of all values that Run can compute.
func matrices(g *graph.Graph) []string {
	var names []string
	for _, n := range g.Nodes {
		for _, v := range n.Out {
			if v.Type.DType == graph.F32 && len(v.Type.Shape) == 2 {
				names = append(names, v.Name)
			}
		}
	}
	return names
}

// compute collects the values that Run visits.
func compute(g *graph.Graph, w Weights, ids []int32, want []string) (map[string]Value, error) {
	all := map[string]Value{}
	err := Run(context.Background(), g, w, ids, want, func(v Value) error {
		all[v.Name] = v
		return nil
	})
	return all, err
}

// agrees compares values of g with the interpreter, which rounds each value to float32. The norm of
// a small row magnifies that rounding error. So if they differ by more than 2e-5 of a row, the
// interpreter runs again with weights perturbed by one rounding, to show how much of the difference
// rounding explains.
func agrees(g *graph.Graph, w Weights, ids []int32, names []string) error {
	got, err := compute(g, w, ids, names)
	if err != nil {
		return err
	}
	step := graphtest.Step{Tokens: ids, Seq: make([]int32, len(ids))}
	for i := range ids {
		step.Pos = append(step.Pos, int32(i))
	}
	step.Rows = step.Pos
	inputs := step.Inputs()
	weights := func(v *graph.Value) ([]float32, error) {
		rows, _ := extents(v.Type)
		return w(v, 0, rows)
	}
	want, err := ops.Eval(g, &ops.Env{Inputs: inputs, Weights: weights}, names...)
	if err != nil {
		return fmt.Errorf("interpreter: %w", err)
	}
	perturbed := sync.OnceValues(func() (others []map[string]*ops.Value, err error) {
		for seed := uint64(1); seed <= 3 && err == nil; seed++ {
			var other map[string]*ops.Value
			other, err = ops.Eval(g, &ops.Env{Inputs: inputs, Weights: graphtest.Perturbed(weights, 0x1p-24, seed)}, names...)
			others = append(others, other)
		}
		return others, err
	})
	for _, name := range names {
		x := got[name]
		if x.Rows != len(ids) || len(x.Data) != x.Rows*x.Cols {
			return fmt.Errorf("%s has %d × %d = %d elements, expected %d rows", name, x.Rows, x.Cols, len(x.Data), len(ids))
		}
		narrow := make([]float32, len(x.Data))
		for i, v := range x.Data {
			narrow[i] = float32(v)
		}
		near := graphtest.Near(narrow, want[name].F32, len(ids), 2e-5)
		if near == nil {
			continue
		}
		others, err := perturbed()
		if err != nil {
			return fmt.Errorf("interpreter: %w", err)
		}
		var rows [][]float32
		for _, o := range others {
			rows = append(rows, o[name].F32)
		}
		if near = graphtest.Near(narrow, want[name].F32, len(ids), 2e-5, rows...); near != nil {
			return fmt.Errorf("%s: %w", name, near)
		}
	}
	return nil
}

func tokens(n, vocab int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((i*37 + 5) % vocab)
	}
	return ids
}

// TestModels compares random small models with the interpreter. Each block is one part.
func TestModels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one := func(label string, of ...int) int { return rapid.SampledFrom(of).Draw(t, label) }
		kv, dim := one("kv heads", 1, 2, 3), one("head dim", 2, 6, 16)
		heads := kv * one("group", 1, 2, 3)
		c := tiny.Config{
			Arch: rapid.SampledFrom(frontend.Architectures()).Draw(t, "arch"),
			Seed: rapid.Uint64().Draw(t, "seed"), Layers: one("layers", 1, 2, 7),
			Heads: heads, KVHeads: kv, HeadDim: dim, Embd: heads * 8, FF: one("ff", 15, 64),
			Tied: rapid.Bool().Draw(t, "tied"), Types: []quant.Type{quant.F32, quant.F16, quant.Q8_0},
		}
		if c.Arch == "gemma3" {
			c.Window = one("window", 0, 1, 4)
		} else {
			c.Embd = heads * dim
		}
		f, n := tiny.File(t, c), one("tokens", 1, 2, 3, 9, 17)
		g := unfused(t, f, n)
		names := []string{"logits"}
		for i := range c.Layers {
			names = append(names, fmt.Sprintf("blk.%d.attn", i), fmt.Sprintf("blk.%d.out", i))
		}
		if err := agrees(g, FromFile(f), tokens(n, 256), names); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRandomGraphs does the same for graphs of any shape. Graphs that no model has, with an extent
// of 1 or a cache that is not written, are refused.
func TestRandomGraphs(t *testing.T) {
	computed, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		g, err := ops.ExpandAll(graphtest.Draw(t, graphtest.Options{Chunks: true}))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range g.Nodes {
			if n.Op == ops.GELUErf { // gorgonia has no erf
				n.Op = ops.GELUTanh
			}
		}
		weights := graphtest.Weights(rapid.Uint64().Draw(t, "weights"))
		err = agrees(g, func(w *graph.Value, first, end int) ([]float32, error) {
			x, err := weights(w)
			_, cols := extents(w.Type)
			return x[first*cols : end*cols], err
		}, tokens(int(min(g.Max(graph.T), g.Max(graph.C))), graphtest.Vocab), matrices(g))
		switch {
		case err == nil:
			computed++
		case strings.Contains(err.Error(), "extent of 1"), strings.Contains(err.Error(), "empty cache"):
			refused++
		default:
			t.Fatal(err)
		}
	})
	t.Logf("%d graphs computed, %d refused", computed, refused)
	if computed < refused/9 { // about 4 of 10 are computed
		t.Error("hardly a graph is computed")
	}
}

// TestParts checks that the result does not depend on which values are wanted, or on how many
// weights are in memory at a time.
func TestParts(t *testing.T) {
	f := tiny.File(t, tiny.Config{Arch: "gemma3", Window: 3, Vocab: 301, Tied: true})
	g, ids := unfused(t, f, 7), tokens(7, 256)
	want, err := compute(g, FromFile(f), ids, matrices(g))
	if err != nil {
		t.Fatal(err)
	}
	// 64 elements of a row: 150 rows of 301 at a time leave one, and so do 3.
	for _, most := range []int{1, 3 * 64, 150 * 64, 301 * 64, 1 << 30} {
		for _, names := range [][]string{{"logits"}, {"blk.0.out", "blk.1.out", "logits"}, matrices(g)} {
			r := run{weights: FromFile(f), most: most, tokens: len(ids), ids: ids}
			var visited []string
			err := r.graph(context.Background(), g, names, keep(func(v Value) error {
				visited = append(visited, v.Name)
				for i, x := range v.Data {
					// Products of fewer rows may be summed in another order.
					if y := want[v.Name].Data[i]; !(math.Abs(x-y) <= 1e-12*(1+math.Abs(y))) {
						return fmt.Errorf("%s: element %d is %v, expected %v", v.Name, i, x, y)
					}
				}
				return nil
			}))
			if err != nil || !slices.Equal(visited, names) {
				t.Errorf("most %d: visits %v, expected %v: %v", most, visited, names, err)
			}
			if len(r.live) > 0 && len(names) == 1 {
				t.Errorf("most %d: still holds %v", most, slices.Collect(maps.Keys(r.live)))
			}
		}
	}
}

// parse reads a graph with one line per node, and with the inputs of a model.
func parse(t *testing.T, lines string) *graph.Graph {
	t.Helper()
	g, err := graph.Parse(`graph g (T <= 4, S <= 1, R <= 4, C <= 16)
  @embd : f32[6, 4]
  @gate : f32[8, 4]
  @up : f32[8, 4]
  @one : f32[1, 4]
  %tokens : i32[T] = input {dtype: "i32", sym: "T"}
  %pos : i32[T] = input {dtype: "i32", sym: "T"}
  %seq : i32[T] = input {dtype: "i32", sym: "T"}
  %x : f32[T, 4] = get_rows @embd, %tokens
`+lines, ops.Lookup)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestSoftmaxRange has rows whose scores differ by 1,500: relative to the maximum of the other row,
// their exponentials are outside the range of float64.
func TestSoftmaxRange(t *testing.T) {
	g := parse(t, `
  %k : kv[C, 4] = state {width: 4}
  %w : kv[C, 4] = kv_write %k, %x, %pos, %seq
  %s : f32[T, 1, C] = attn_scores %x, %w, %pos, %seq {head_dim: 4, heads: 1, kv_heads: 1, scale: 1.0}
  %p : f32[T, 1, C] = softmax %s
  %y : f32[T, 4] = attn_values %p, %w, %pos, %seq {head_dim: 4, heads: 1, kv_heads: 1}
  output %y
`)
	err := agrees(g, func(w *graph.Value, first, end int) ([]float32, error) {
		x := make([]float32, 24)
		for i := range x {
			x[i] = float32((i*7)%5-2) * float32(1+i/4*10)
		}
		return x[first*4 : end*4], nil
	}, []int32{5, 0, 1, 4}, matrices(g))
	if err != nil {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	f := tiny.File(t, tiny.Config{Arch: "llama"})
	model, plain := unfused(t, f, 3), FromFile(f)
	small := func(w *graph.Value, first, end int) ([]float32, error) {
		_, cols := extents(w.Type)
		return make([]float32, (end-first)*cols), nil
	}
	broken := errors.New("a broken disk")
	for _, c := range []struct {
		name    string
		g       *graph.Graph
		weights Weights
		ids     []int32
		want    string
		words   string
	}{
		{"no tokens", model, plain, nil, "logits", "no tokens"},
		{"token beyond the vocabulary", model, plain, []int32{1, 300}, "logits", "node embd (get_rows): token 1 is 300, expected 0 ≤ token < 300"},
		{"negative token", model, plain, []int32{-1}, "logits", "token 0 is -1"},
		{"unknown value", model, plain, []int32{1}, "blk.9.out", `has no f32 matrix "blk.9.out"`},
		{"value that is no matrix", model, plain, []int32{1}, "blk.0.scores", `has no f32 matrix "blk.0.scores"`},
		{"weights", model, func(*graph.Value, int, int) ([]float32, error) { return nil, broken }, []int32{1}, "logits", "node embd (get_rows): a broken disk"},
		{"other model", model, FromFile(tiny.File(t, tiny.Config{Arch: "llama", Layers: 1})), []int32{1}, "logits", `node blk.1.attn_norm (rms_norm): tiny.gguf: has no tensor "blk.1.attn_norm.weight"`},
		{"smaller model", model, FromFile(tiny.File(t, tiny.Config{Arch: "llama", Embd: 32})), []int32{299}, "logits", `tensor "token_embd.weight": has dims [32 300], but the graph reads 300 rows of 64`},
		{"a graph that does not verify", parse(t, "  %y : f32[T, 4] = matmul %x, @one, _\n  output %y\n"), small, []int32{1}, "y", "y"},
		{"fused op", parse(t, "  %y : f32[T, 8] = gated_mlp %x, @gate, @up {act: \"silu\"}\n  output %y\n"), small, []int32{1}, "y",
			"node y (gated_mlp): the op has no row in the table of conformance/gorgoniaref/ops.go"},
		{"extent of 1", parse(t, "  %y : f32[T, 1] = matmul %x, @one, _\n  output %y\n"), small, []int32{1}, "y", "node y (matmul): shape [1 1 4] has an extent of 1"},
		{"empty cache", parse(t, "  %k : kv[C, 4] = state {width: 4}\n  %y : f32[T, 1, C] = attn_scores %x, %k, %pos, %seq {head_dim: 4, heads: 1, kv_heads: 1, scale: 1.0}\n  output %y\n"), small, []int32{1}, "x",
			"node y (attn_scores): operand %k has no value: the sequence begins at position 0"},
	} {
		_, err := compute(c.g, c.weights, c.ids, []string{c.want})
		if err == nil || !strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, expected %q", c.name, err, c.words)
		}
	}
	if err := Run(context.Background(), model, plain, []int32{1}, []string{"logits"}, func(Value) error { return broken }); err != broken {
		t.Errorf("error %v, expected that of visit", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var visited []string
	err := Run(ctx, model, plain, []int32{1}, []string{"blk.0.out", "logits"}, func(v Value) error {
		visited = append(visited, v.Name)
		cancel()
		return nil
	})
	if err != context.Canceled || len(visited) != 1 {
		t.Errorf("error %v after %v, expected an end behind the first value", err, visited)
	}
}

// TestFileCutShort checks that a model which another process truncates causes an error, not a
// fault.
func TestFileCutShort(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows does not let a mapped file shrink")
	}
	f := tiny.Mapped(t, tiny.Config{Arch: "llama", FF: 2048}) // several pages for each block
	g := unfused(t, f, 2)
	if err := os.Truncate(f.Path, f.Size/4); err != nil {
		t.Fatal(err)
	}
	if _, err := compute(g, FromFile(f), []int32{1, 2}, []string{"logits"}); err == nil || !strings.Contains(err.Error(), f.Path+": became shorter while it was read") {
		t.Errorf("a file cut short: error %v", err)
	}
}

// TestTable checks that the table has every op of unfused graphs once, and no fused op.
func TestTable(t *testing.T) {
	rows := map[*graph.Op]int{}
	for _, r := range table {
		rows[r.op]++
		if ops.Of(r.op).Expand != nil {
			t.Errorf("%s is a fused op", r.op.Name)
		}
	}
	for _, arch := range frontend.Architectures() {
		for _, n := range unfused(t, tiny.File(t, tiny.Config{Arch: arch}), 2).Nodes {
			if rows[n.Op] != 1 {
				t.Errorf("%s: %s has %d rows", arch, n.Op.Name, rows[n.Op])
			}
		}
	}
}

// TestForce checks that a value is computed from the data that visit returned for those before it.
func TestForce(t *testing.T) {
	f := tiny.File(t, tiny.Config{Arch: "llama"})
	for _, n := range []int{1, 5} {
		g, ids := unfused(t, f, n), tokens(n, 256)
		names := matrices(g)
		free, err := compute(g, FromFile(f), ids, names)
		if err != nil {
			t.Fatal(err)
		}
		for _, force := range []func(context.Context, *graph.Graph, Weights, []int32, []string, func(Value) ([]float32, error)) error{Force, ForceFloat32} {
			// The first block's result becomes zero, so what the second computes from it does too.
			changed := false
			err = force(context.Background(), g, FromFile(f), ids, names, func(v Value) ([]float32, error) {
				for i, x := range v.Data {
					want := free[v.Name].Data[i]
					if changed && strings.HasPrefix(v.Name, "blk.1.") {
						want = 0
					}
					if (!changed || strings.HasPrefix(v.Name, "blk.1.")) && !(math.Abs(x-want) <= 1e-5*(1+math.Abs(want))) {
						return nil, fmt.Errorf("%s: element %d is %v, expected %v", v.Name, i, x, want)
					}
				}
				if v.Name == "blk.0.out" {
					changed = true
					return make([]float32, len(v.Data)), nil
				}
				return nil, nil
			})
			if err != nil || !changed {
				t.Errorf("%d tokens: %v", n, err)
			}
			err = force(context.Background(), g, FromFile(f), ids, names, func(v Value) ([]float32, error) { return make([]float32, 3), nil })
			if want := fmt.Sprintf("found 3 elements in place of the computed ones, expected %d", 64*n); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%d tokens: error %v, expected %q", n, err, want)
			}
		}
	}
}
