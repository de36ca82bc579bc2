// Package gorgoniaref computes an unfused graph on an independent executor: the tape machine of
// gorgonia.org/gorgonia. It runs in float64, so that its own rounding lies far below that of what it
// checks, or in float32, to show how much that precision loses.
//
// It contains the translation: a table with one row for each op that frontends emit, which builds
// the op from gorgonia's operations. It must not import ops/ref, lower or exec: it shares no
// arithmetic with what it checks. Only the weights come through our own reader and its
// dequantization, which other tests prove byte by byte.
//
// It computes one sequence from position 0 on, as a single step: the cache is what the step writes,
// as if no step had come before. Time and memory grow with the square of the number of tokens; a
// few hundred are sensible. It keeps the weights of one block in memory at a time, and computes with
// a large matrix, such as the vocabulary's, in slices.
package gorgoniaref

import (
	"context"
	"fmt"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"pesti/gguf/dense"
	"pesti/graph"
	"pesti/ops"
)

// A Value is a value of the graph as gorgonia computed it, with one row per token.
type Value struct {
	Name       string
	Rows, Cols int
	Data       []float64 // Rows · Cols, row-major
}

// Run computes g for the tokens ids, and calls visit with each wanted value in the order of the
// graph. A wanted value is a matrix with one row per token: a residual stream such as blk.0.out, or
// the logits of all rows. It returns the error of visit, or an error that names the node which it
// cannot compute.
func Run(ctx context.Context, g *graph.Graph, weights Weights, ids []int32, want []string, visit func(Value) error) error {
	r := &run{weights: weights, most: sliceElements, tokens: len(ids), ids: ids}
	return r.graph(ctx, g, want, keep(visit))
}

// RunFloat32 is Run in float32. The difference between its values and those of Run shows how much
// any float32 program may lose.
func RunFloat32(ctx context.Context, g *graph.Graph, weights Weights, ids []int32, want []string, visit func(Value) error) error {
	r := &run{narrow: true, weights: weights, most: sliceElements, tokens: len(ids), ids: ids}
	return r.graph(ctx, g, want, keep(visit))
}

// Force computes g as Run does, but continues with the data that visit returns in place of each wanted
// value. So it computes each wanted value from those returned for the values before it, and the
// difference between the two is that of one step (teacher forcing). Nil keeps the computed data.
func Force(ctx context.Context, g *graph.Graph, weights Weights, ids []int32, want []string, visit func(Value) ([]float32, error)) error {
	r := &run{weights: weights, most: sliceElements, tokens: len(ids), ids: ids}
	return r.graph(ctx, g, want, visit)
}

// ForceFloat32 is Force in float32.
func ForceFloat32(ctx context.Context, g *graph.Graph, weights Weights, ids []int32, want []string, visit func(Value) ([]float32, error)) error {
	r := &run{narrow: true, weights: weights, most: sliceElements, tokens: len(ids), ids: ids}
	return r.graph(ctx, g, want, visit)
}

// keep makes a visitor that keeps all data.
func keep(visit func(Value) error) func(Value) ([]float32, error) {
	return func(v Value) ([]float32, error) { return nil, visit(v) }
}

// A run is one pass over a graph.
type run struct {
	narrow  bool // compute in float32
	weights Weights
	most    int // weights of one product in memory at a time
	tokens  int // requested by the caller
	ids     []int32
	wanted  map[*graph.Value]bool
	ints    map[*graph.Value][]int32       // inputs
	live    map[*graph.Value]*tensor.Dense // values that later parts need

	// Matrices of weights are in memory that the next part uses again.
	arena []float64
	used  int // of arena by the current part, or more than there is
}

// memory returns room for a matrix of weights of the current part.
func (r *run) memory(n int) []float64 {
	r.used += n
	if r.used > len(r.arena) {
		return make([]float64, n)
	}
	return r.arena[r.used-n : r.used : r.used]
}

// nextPart frees the memory of the current part's weights.
func (r *run) nextPart() {
	if r.used > len(r.arena) {
		r.arena = nil // before there is another one
		r.arena = make([]float64, r.used)
	}
	r.used = 0
}

func (r *run) graph(ctx context.Context, g *graph.Graph, want []string, visit func(Value) ([]float32, error)) error {
	if err := graph.Verify(g); err != nil {
		return err
	}
	if r.tokens == 0 {
		return fmt.Errorf("graph %s: no tokens, expected at least one", g.Name)
	}
	// gorgonia treats a matrix of one row as a vector. A second token after a single one does not
	// change the values of the first.
	if r.tokens == 1 {
		r.ids = []int32{r.ids[0], r.ids[0]}
	}
	r.ints, r.live = map[*graph.Value][]int32{}, map[*graph.Value]*tensor.Dense{}
	if err := r.want(g, want); err != nil {
		return err
	}
	last := map[*graph.Value]int{}
	for i, n := range g.Nodes {
		for _, v := range n.In {
			last[v] = i
		}
	}
	for i := 0; i < len(g.Nodes); {
		if err := ctx.Err(); err != nil {
			return err
		}
		end := r.partEnd(g.Nodes, i)
		if err := r.part(g.Nodes[i:end], func(v *graph.Value) bool { return r.wanted[v] || last[v] >= end }); err != nil {
			return err
		}
		// Only the last node of a part can have a wanted value.
		if v := g.Nodes[end-1].Out[0]; r.wanted[v] {
			instead, err := visit(r.value(v))
			if err == nil && instead != nil {
				err = r.replace(v, instead)
			}
			if err != nil {
				return err
			}
		}
		for v := range r.live {
			if last[v] < end {
				delete(r.live, v)
			}
		}
		i = end
	}
	return nil
}

// want records the values called names. Parts end at these values.
func (r *run) want(g *graph.Graph, names []string) error {
	r.wanted = map[*graph.Value]bool{}
	for _, name := range names {
		v := g.Value(name)
		if v == nil || v.Type.DType != graph.F32 || len(v.Type.Shape) != 2 {
			return fmt.Errorf("graph %s: has no f32 matrix %q to compute", g.Name, name)
		}
		r.wanted[v] = true
	}
	return nil
}

// partEnd returns the end of the part that begins with node i. A part ends after a wanted value, so
// that only the weights of one block are in memory at a time. A large product is a part of its own,
// because it is computed in slices.
func (r *run) partEnd(nodes []*graph.Node, i int) int {
	if r.large(nodes[i]) {
		return i + 1
	}
	for ; i < len(nodes) && !r.large(nodes[i]); i++ {
		if r.wanted[nodes[i].Out[0]] {
			return i + 1
		}
	}
	return i
}

// sliceElements is the number of weights of one product in memory at a time: 128 MiB.
const sliceElements = 1 << 24

func (r *run) large(n *graph.Node) bool {
	if n.Op != ops.Matmul || n.Operand("res") != nil {
		return false
	}
	rows, cols := extents(n.Operand("w").Type)
	return rows*cols > r.most
}

// extents returns the extents of a weight as rows and columns; a vector is one row.
func extents(t graph.Type) (rows, cols int) {
	rows = 1
	for _, d := range t.Shape[:len(t.Shape)-1] {
		rows *= int(d.N)
	}
	return rows, int(t.Shape[len(t.Shape)-1].N)
}

// part computes nodes as one part, and keeps the values that are needed later.
func (r *run) part(nodes []*graph.Node, keep func(*graph.Value) bool) error {
	if !r.large(nodes[0]) {
		return r.evaluate(nodes, nil, keep)
	}
	out := nodes[0].Out[0]
	rows, cols := extents(nodes[0].Operand("w").Type)
	step := max(r.most/cols, 2)
	whole := make([]float64, len(r.ids)*rows)
	for first := 0; first < rows; first += step {
		// gorgonia would treat a last slice of one row as a vector, so that slice begins one row earlier.
		s := &slice{min(first, max(rows-2, 0)), min(first+step, rows)}
		if err := r.evaluate(nodes, s, func(v *graph.Value) bool { return v == out }); err != nil {
			return err
		}
		data, n := float64s(r.live[out]), s.end-s.first
		for t := range r.ids {
			copy(whole[t*rows+s.first:], data[t*n:(t+1)*n])
		}
	}
	r.live[out] = r.dense(whole, len(r.ids), rows)
	return nil
}

// A slice is a range of rows of the weights of a part.
type slice struct{ first, end int }

// evaluate builds an expression from nodes, computes it on a tape machine, and keeps the values
// that are needed later.
func (r *run) evaluate(nodes []*graph.Node, s *slice, keep func(*graph.Value) bool) (err error) {
	r.nextPart()
	name := nodes[len(nodes)-1].Name()
	// gorgonia should not panic on verified graphs with checked shapes. If it panics while it builds or
	// compiles an expression, the program must not end.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("node %s: gorgonia: %v", name, p)
		}
	}()
	e := &expr{run: r, slice: s, g: G.NewGraph(), nodes: map[*graph.Value]*G.Node{}}
	results := map[*graph.Value]*G.Value{}
	for _, n := range nodes {
		name = n.Name()
		if err := e.add(n); err != nil {
			return fmt.Errorf("node %s (%s): %w", name, n.Op.Name, err)
		}
		for _, v := range n.Out {
			if x := e.nodes[v]; x != nil && keep(v) {
				results[v] = new(G.Value)
				G.Read(x, results[v])
			}
		}
	}
	machine := G.NewTapeMachine(e.g)
	defer machine.Close()
	if err := machine.RunAll(); err != nil {
		return fmt.Errorf("nodes up to %s: gorgonia: %w", name, err)
	}
	for v, x := range results {
		dense, ok := (*x).(*tensor.Dense)
		if !ok {
			return fmt.Errorf("node %s: gorgonia gives a %T, expected a matrix", v.Name, *x)
		}
		r.live[v] = dense
	}
	return nil
}

// value returns v without the second row that was added for a single token.
func (r *run) value(v *graph.Value) Value {
	x := r.live[v]
	cols := x.Shape()[1]
	return Value{v.Name, r.tokens, cols, float64s(x)[:r.tokens*cols]}
}

// replace sets the data of a wanted value.
func (r *run) replace(v *graph.Value, data []float32) error {
	cols := r.live[v].Shape()[1]
	if len(data) != r.tokens*cols {
		return fmt.Errorf("node %s: found %d elements in place of the computed ones, expected %d", v.Name, len(data), r.tokens*cols)
	}
	wide := make([]float64, len(r.ids)*cols)
	for i := range wide {
		wide[i] = float64(data[i%len(data)]) // the row that was added for a single token is the same
	}
	r.live[v] = r.dense(wide, len(r.ids), cols)
	return nil
}

// dense returns a tensor in the precision of the run.
func (r *run) dense(data []float64, shape ...int) *tensor.Dense {
	if !r.narrow {
		return dense.New(data, shape...)
	}
	x := make([]float32, len(data))
	for i, v := range data {
		x[i] = float32(v)
	}
	return dense.New(x, shape...)
}

// float64s returns the elements of a tensor of either precision.
func float64s(x *tensor.Dense) []float64 {
	if x.Dtype() == tensor.Float64 {
		return x.Float64s()
	}
	wide := make([]float64, x.DataSize())
	for i, v := range x.Float32s() {
		wide[i] = float64(v)
	}
	return wide
}
