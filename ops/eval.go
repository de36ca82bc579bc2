package ops

import (
	"fmt"
	"slices"

	"pesti/graph"
	"pesti/ops/ref"
)

// A Value is the interpreter's value for one value of a graph. Exactly one of F32, I32 and KV is
// set. A q8x2 or q8 value is in F32, as the dequantized numbers.
type Value struct {
	Shape []int
	F32   []float32
	I32   []int32
	KV    *ref.KV
}

// last returns the length of a row.
func (v *Value) last() int { return v.Shape[len(v.Shape)-1] }

// An Env is the environment of an evaluation. Its caches persist, so that a prompt can be evaluated
// in chunks.
type Env struct {
	// Inputs holds the input values by name; their lengths give T, S and R.
	Inputs map[string][]int32
	// Weights returns the dequantized elements of a whole tensor, row-major. It is never called for
	// a part.
	Weights func(w *graph.Value) ([]float32, error)
	// Context is the number of cached positions that scores are computed for, rounded up to whole
	// pages; 0 means the graph's bound of C.
	Context int
	// Sequences is the number of sequences in the caches; 0 means the graph's bound of S.
	Sequences int
	// F16 stores caches in float16. It applies to a cache at its first use.
	F16 bool

	states map[string]*ref.KV
}

// Reset clears the caches.
func (e *Env) Reset() { e.states = nil }

// Eval interprets g once and returns the values named in want, or all values if want is empty.
// Values are float32; sums inside ops are float64. A fused node is evaluated by its expansion,
// whose values are included.
func Eval(g *graph.Graph, env *Env, want ...string) (map[string]*Value, error) {
	basic, err := ExpandAll(g)
	if err != nil {
		return nil, err
	}
	in := interpreter{g: basic, env: env, values: make(map[*graph.Value]*Value), size: make(map[graph.Sym]int)}
	if err := in.bind(); err != nil {
		return nil, err
	}
	found := make(map[string]*Value)
	lastUse := make(map[*graph.Value]*graph.Node)
	for _, n := range basic.Nodes {
		for _, v := range n.In {
			lastUse[v] = n
		}
	}
	for _, n := range basic.Nodes {
		if err := in.node(n); err != nil {
			return nil, fmt.Errorf("node %s (%s): %w", n.Name(), n.Op.Name, err)
		}
		for _, v := range n.Out {
			if len(want) == 0 || slices.Contains(want, v.Name) {
				found[v.Name] = in.values[v]
			}
		}
		for _, v := range n.In { // free dead values, since all activations of a large model may not fit
			if lastUse[v] == n {
				delete(in.values, v)
			}
		}
	}
	for _, name := range want {
		if found[name] == nil {
			return nil, fmt.Errorf("graph %s: has no value %q to evaluate", g.Name, name)
		}
	}
	return found, nil
}

type interpreter struct {
	g      *graph.Graph
	env    *Env
	values map[*graph.Value]*Value
	size   map[graph.Sym]int
}

// bind sets the extents of symbols from the inputs and the environment, and checks that positions
// and sequences are inside the caches.
func (in *interpreter) bind() error {
	env := in.env
	in.size[graph.C] = roundUp(orBound(env.Context, in.g, graph.C), ref.PageTokens)
	in.size[graph.S] = orBound(env.Sequences, in.g, graph.S)
	for _, n := range in.g.Nodes {
		if n.Op != Input {
			continue
		}
		x, ok := env.Inputs[n.Name()]
		if !ok {
			return fmt.Errorf("input %s: has no value", n.Name())
		}
		sym := graph.Sym(n.Attr.Str("sym"))
		if size, known := in.size[sym]; known && size != len(x) {
			return fmt.Errorf("input %s: has %d elements, expected %s = %d", n.Name(), len(x), sym, size)
		}
		in.size[sym] = len(x)
	}
	for name, limit := range map[string]int{"pos": in.size[graph.C], "seq": in.size[graph.S]} {
		for _, x := range env.Inputs[name] {
			if x < 0 || int(x) >= limit {
				return fmt.Errorf("input %s: holds %d, expected 0 ≤ %s < %d", name, x, name, limit)
			}
		}
	}
	return nil
}

func orBound(n int, g *graph.Graph, s graph.Sym) int {
	if n == 0 {
		return int(g.Max(s))
	}
	return n
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// node computes the results of one node.
func (in *interpreter) node(n *graph.Node) error {
	row := Of(n.Op)
	switch {
	case row == nil:
		return fmt.Errorf("the op is not in this table")
	case n.Op == Input:
		x := in.env.Inputs[n.Name()]
		in.values[n.Out[0]] = &Value{Shape: []int{len(x)}, I32: x}
		return nil
	case n.Op == State:
		in.values[n.Out[0]] = in.state(n)
		return nil
	}
	args := make([]*Value, len(n.In))
	for i, v := range n.In {
		if v == nil {
			continue
		}
		if v.IsWeight() && in.values[v] == nil {
			if err := in.load(v); err != nil {
				return err
			}
		}
		args[i] = in.values[v]
	}
	out := make([]*Value, len(n.Out))
	for i, v := range n.Out {
		out[i] = in.alloc(v.Type)
	}
	for _, w := range n.Op.Writes {
		out[w[0]] = args[w[1]]
	}
	if err := row.Eval(n, args, out); err != nil {
		return err
	}
	for i, v := range n.Out {
		in.values[v] = out[i]
	}
	return nil
}

// load asks the environment for a weight.
func (in *interpreter) load(w *graph.Value) error {
	tensor := w.Tensor()
	x, err := in.env.Weights(tensor)
	if err != nil {
		return err
	}
	shape, size := in.shape(tensor.Type)
	if len(x) != size {
		return fmt.Errorf("weight %s has %d elements, expected %d for %v", tensor.Name, len(x), size, tensor.Type)
	}
	if p := w.Part; p != nil {
		width, _ := in.shape(w.Type)
		from, to := int(p.From), int(p.From)+width[p.Axis]
		if p.Axis == 0 {
			row := size / max(1, shape[0])
			x = x[from*row : to*row]
		} else {
			x = ref.Columns(x, shape[1], from, to)
		}
		shape = width
	}
	in.values[w] = &Value{Shape: shape, F32: x}
	return nil
}

// state returns the cache of a node's name, and creates it at its first use.
func (in *interpreter) state(n *graph.Node) *Value {
	kv := in.env.states[n.Name()]
	if kv == nil {
		kv = &ref.KV{Width: int(n.Attr.Int("width")), Positions: in.size[graph.C]}
		size := in.size[graph.S] * kv.Positions * kv.Width
		if in.env.F16 {
			kv.F16 = make([]uint16, size)
		} else {
			kv.F32 = make([]float32, size)
		}
		if in.env.states == nil {
			in.env.states = make(map[string]*ref.KV)
		}
		in.env.states[n.Name()] = kv
	}
	return &Value{Shape: []int{kv.Positions, kv.Width}, KV: kv}
}

func (in *interpreter) alloc(t graph.Type) *Value {
	shape, size := in.shape(t)
	switch t.DType {
	case graph.I32:
		return &Value{Shape: shape, I32: make([]int32, size)}
	case graph.KV:
		return nil // the written operand's own value
	}
	return &Value{Shape: shape, F32: make([]float32, size)}
}

func (in *interpreter) shape(t graph.Type) (shape []int, size int) {
	size = 1
	for _, d := range t.Shape {
		n := int(d.N)
		if d.Sym != graph.Const {
			n = in.size[d.Sym]
		}
		shape = append(shape, n)
		size *= n
	}
	return shape, size
}
