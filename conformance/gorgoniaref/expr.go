package gorgoniaref

import (
	"fmt"
	"slices"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"pesti/gguf/dense"
	"pesti/graph"
)

// An expr is the expression of one part in terms of gorgonia. It records the first error, so that
// the code of an op reads like its formula. Activations are matrices with one row per token;
// attention scores have one row per head and token.
type expr struct {
	run    *run
	slice  *slice // rows of the weights, or nil for all
	g      *G.ExprGraph
	nodes  map[*graph.Value]*G.Node
	leaves int
	err    error
}

// add adds one node.
func (e *expr) add(n *graph.Node) error {
	for i := range table {
		if table[i].op != n.Op {
			continue
		}
		if x := table[i].write(e, n); x != nil {
			e.nodes[n.Out[0]] = x
		}
		return e.err
	}
	return fmt.Errorf("the op has no row in the table of conformance/gorgoniaref/ops.go, which has the ops of unfused graphs")
}

// fail records the first error.
func (e *expr) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, args...)
	}
}

// keep takes the result of a function of gorgonia.
func (e *expr) keep(n *G.Node, err error) *G.Node {
	if err != nil {
		e.fail("gorgonia: %w", err)
		return nil
	}
	return n
}

// leaf is a constant of the expression. It needs a unique name, because gorgonia treats leaves with
// the same name and shape as one.
func (e *expr) leaf(data []float64, shape ...int) *G.Node {
	if e.err != nil || !e.broad(shape) {
		return nil
	}
	return e.dense(e.run.dense(data, shape...))
}

// broad checks a shape. gorgonia treats a matrix with an extent of 1 as a vector, and a vector of
// one element as a scalar, and fails in both cases.
func (e *expr) broad(shape []int) bool {
	if slices.Contains(shape[max(len(shape)-2, 0):], 1) {
		e.fail("shape %v has an extent of 1, expected 2 or more, since gorgonia takes it for another", shape)
	}
	return e.err == nil
}

func (e *expr) dense(x *tensor.Dense) *G.Node {
	e.leaves++
	return G.NodeFromAny(e.g, x, G.WithName(fmt.Sprint("leaf ", e.leaves)))
}

// value is an operand that a node or an earlier part computed.
func (e *expr) value(v *graph.Value) *G.Node {
	if e.err != nil {
		return nil
	}
	if e.nodes[v] == nil {
		x := e.run.live[v]
		if x == nil {
			e.fail("operand %s has no value: the sequence begins at position 0, with an empty cache", v)
			return nil
		}
		e.nodes[v] = e.dense(x.Clone().(*tensor.Dense)) // the tape machine may reuse its memory
	}
	return e.nodes[v]
}

// ints returns the elements of an input.
func (e *expr) ints(v *graph.Value) []int32 {
	x, ok := e.run.ints[v]
	if !ok {
		e.fail("operand %s is no input", v)
	}
	return x
}

// rows reads rows of a weight as float64.
func (e *expr) rows(w *graph.Value, first, end int) []float64 {
	x := e.weights(w, first, end)
	wide := make([]float64, len(x))
	for i, v := range x {
		wide[i] = float64(v)
	}
	return wide
}

// weights reads rows of a weight.
func (e *expr) weights(w *graph.Value, first, end int) []float32 {
	if e.err != nil {
		return nil
	}
	if !w.IsWeight() {
		e.fail("operand %s is no weight", w)
		return nil
	}
	x, err := e.run.weights(w, first, end)
	if err != nil {
		e.fail("%w", err)
		return nil
	}
	return x
}

// vector is a weight with one dim.
func (e *expr) vector(w *graph.Value) *G.Node {
	_, n := extents(w.Type)
	return e.leaf(e.rows(w, 0, 1), n)
}

// matrix is a weight with two dims, or the slice of it that the part computes, as a batch of one.
func (e *expr) matrix(w *graph.Value) *G.Node {
	rows, cols := extents(w.Type)
	s := slice{0, rows}
	if e.slice != nil {
		s = *e.slice
	}
	x, shape := e.weights(w, s.first, s.end), []int{1, s.end - s.first, cols}
	if e.err != nil || !e.broad(shape) {
		return nil
	}
	if e.run.narrow {
		return e.dense(dense.New(x, shape...))
	}
	wide := e.run.memory(len(x))
	for i, v := range x {
		wide[i] = float64(v)
	}
	return e.dense(dense.New(wide, shape...))
}

// number is a scalar.
func (e *expr) number(x float64) *G.Node {
	if e.err != nil {
		return nil
	}
	if e.run.narrow {
		return G.NewConstant(float32(x))
	}
	return G.NewConstant(x)
}

func (e *expr) unary(f func(*G.Node) (*G.Node, error), x *G.Node) *G.Node {
	if e.err != nil {
		return nil
	}
	return e.keep(f(x))
}

func (e *expr) binary(f func(a, b *G.Node) (*G.Node, error), a, b *G.Node) *G.Node {
	if e.err != nil {
		return nil
	}
	return e.keep(f(a, b))
}

// broadcasting is a function of gorgonia that repeats operands along axes.
type broadcasting func(a, b *G.Node, left, right []byte) (*G.Node, error)

// eachRow applies f to every row of the matrix x and the vector v.
func (e *expr) eachRow(f broadcasting, x, v *G.Node) *G.Node {
	v = e.shaped(v, []int{1, -1})
	if e.err != nil {
		return nil
	}
	return e.keep(f(x, v, nil, []byte{0}))
}

// eachCol applies f to every column of the matrix x and the vector v.
func (e *expr) eachCol(f broadcasting, x, v *G.Node) *G.Node {
	v = e.shaped(v, []int{-1, 1})
	if e.err != nil {
		return nil
	}
	return e.keep(f(x, v, nil, []byte{1}))
}

// reduce applies f, a sum or a maximum, to each row of the matrix x.
func (e *expr) reduce(f func(x *G.Node, along ...int) (*G.Node, error), x *G.Node) *G.Node {
	if e.err != nil {
		return nil
	}
	return e.keep(f(x, 1))
}

// reshape returns a copy of x with another shape. Without the copy both would share memory. The
// tape machine does not know that, so an in-place operation on one would change the other.
func (e *expr) reshape(x *G.Node, shape ...int) *G.Node {
	if e.err != nil || !e.broad(shape) {
		return nil
	}
	return e.shaped(x, shape)
}

func (e *expr) shaped(x *G.Node, shape []int) *G.Node {
	x = e.binary(G.HadamardProd, x, e.number(1))
	if e.err != nil {
		return nil
	}
	return e.keep(G.Reshape(x, shape))
}

// swap exchanges the first two of three dims.
func (e *expr) swap(x *G.Node) *G.Node {
	if e.err != nil {
		return nil
	}
	return e.keep(G.Transpose(x, 1, 0, 2))
}

// product is a·b for each matrix of a batch, or a·bᵀ.
func (e *expr) product(a, b *G.Node, transposed bool) *G.Node {
	if e.err != nil {
		return nil
	}
	return e.keep(G.BatchedMatMul(a, b, false, transposed))
}

// linear is x·wᵀ for a matrix x and a batch w of one matrix.
func (e *expr) linear(x, w *G.Node) *G.Node {
	if e.err != nil {
		return nil
	}
	s := x.Shape()
	return e.reshape(e.product(e.reshape(x, 1, s[0], s[1]), w, true), s[0], w.Shape()[1])
}
