package gorgoniaref

import (
	"math"

	G "gorgonia.org/gorgonia"

	"pesti/gguf/dense"
	"pesti/graph"
	"pesti/ops"
)

// A row builds an op from operations of gorgonia. It returns nil for an op whose result is not
// computed: the elements of an input are known, and a cache is empty before it is written.
type row struct {
	op    *graph.Op
	write func(e *expr, n *graph.Node) *G.Node
}

// table has the ops of unfused graphs.
var table = []row{
	{ops.Input, input},
	{ops.State, func(*expr, *graph.Node) *G.Node { return nil }},
	{ops.GetRows, getRows},
	{ops.Scale, func(e *expr, n *graph.Node) *G.Node {
		return scaled(e, e.value(n.Operand("x")), n.Attr.Float("factor"))
	}},
	{ops.RMSNorm, rmsNorm},
	{ops.Matmul, matmul},
	{ops.AddBias, func(e *expr, n *graph.Node) *G.Node {
		return e.eachRow(G.BroadcastAdd, e.value(n.Operand("x")), e.vector(n.Operand("b")))
	}},
	{ops.Add, elementwise(G.Add)},
	{ops.Mul, elementwise(G.HadamardProd)},
	{ops.SiLU, silu},
	{ops.GELUTanh, geluTanh},
	{ops.Rope, rope},
	{ops.KVWrite, func(e *expr, n *graph.Node) *G.Node { return e.value(n.Operand("x")) }}, // row t is position t
	{ops.AttnScores, attnScores},
	{ops.Softmax, softmax},
	{ops.AttnValues, attnValues},
	{ops.SelectRows, selectRows},
}

// input returns the input for one sequence that begins at position 0, with all rows wanted.
func input(e *expr, n *graph.Node) *G.Node {
	x := make([]int32, len(e.run.ids))
	switch n.Name() {
	case "tokens":
		copy(x, e.run.ids)
	case "pos", "rows":
		for t := range x {
			x[t] = int32(t)
		}
	case "seq": // 0
	default:
		e.fail("the input is none of tokens, pos, seq and rows")
	}
	e.run.ints[n.Out[0]] = x
	return nil
}

// getRows reads only the wanted rows of the table.
func getRows(e *expr, n *graph.Node) *G.Node {
	rows, cols := extents(n.Operand("table").Type)
	ids := e.ints(n.Operand("ids"))
	var data []float64
	for i, id := range ids {
		if id < 0 || int(id) >= rows {
			e.fail("token %d is %d, expected 0 ≤ token < %d", i, id, rows)
			return nil
		}
		data = append(data, e.rows(n.Operand("table"), int(id), int(id)+1)...)
	}
	return scaled(e, e.leaf(data, len(ids), cols), n.Float("scale"))
}

func scaled(e *expr, x *G.Node, factor float64) *G.Node {
	return e.binary(G.HadamardProd, x, e.number(factor))
}

func elementwise(f func(a, b *G.Node) (*G.Node, error)) func(e *expr, n *graph.Node) *G.Node {
	return func(e *expr, n *graph.Node) *G.Node {
		return e.binary(f, e.value(n.Operand("a")), e.value(n.Operand("b")))
	}
}

func rmsNorm(e *expr, n *graph.Node) *G.Node {
	w, x := e.vector(n.Operand("w")), e.value(n.Operand("x"))
	if e.err != nil {
		return nil
	}
	rows, cols, group := x.Shape()[0], x.Shape()[1], w.Shape()[0]
	x = e.reshape(x, -1, group)
	mean := scaled(e, e.reduce(G.Sum, e.unary(G.Square, x)), 1/float64(group))
	root := e.unary(G.Sqrt, e.binary(G.Add, mean, e.number(n.Attr.Float("eps"))))
	x = e.eachCol(G.BroadcastHadamardDiv, x, root)
	return e.reshape(e.eachRow(G.BroadcastHadamardProd, x, w), rows, cols)
}

func matmul(e *expr, n *graph.Node) *G.Node {
	y := e.linear(e.value(n.Operand("x")), e.matrix(n.Operand("w")))
	if n.Operand("res") == nil {
		return y
	}
	return e.binary(G.Add, y, e.value(n.Operand("res")))
}

// silu is x / (1 + exp(−x)).
func silu(e *expr, n *graph.Node) *G.Node {
	x := e.value(n.Operand("x"))
	return e.binary(G.HadamardDiv, x, e.binary(G.Add, e.unary(G.Exp, e.unary(G.Neg, x)), e.number(1)))
}

// geluTanh is x/2 · (1 + tanh(√(2/π) · x · (1 + 0.044715·x²))).
func geluTanh(e *expr, n *graph.Node) *G.Node {
	x := e.value(n.Operand("x"))
	inner := e.binary(G.Add, scaled(e, e.unary(G.Square, x), 0.044715), e.number(1))
	tanh := e.unary(G.Tanh, scaled(e, e.binary(G.HadamardProd, x, inner), math.Sqrt(2/math.Pi)))
	return e.binary(G.HadamardProd, scaled(e, x, 0.5), e.binary(G.Add, tanh, e.number(1)))
}

// rope is x ⊙ cos + (x·turn) ⊙ sin for each head. turn maps (a, b) to (−b, a) for the two dims of
// each pair.
func rope(e *expr, n *graph.Node) *G.Node {
	x, pos := e.value(n.Operand("x")), e.ints(n.Operand("pos"))
	heads, dim, rot := int(n.Attr.Int("heads")), int(n.Attr.Int("head_dim")), int(n.Attr.Int("rot"))
	speeds, magnitude := e.speeds(n), n.Float("magnitude")
	cos, sin := make([]float64, len(pos)*heads*dim), make([]float64, len(pos)*heads*dim)
	for i := range cos {
		cos[i] = 1 // dims from rot on are not rotated
	}
	turn := make([]float64, dim*dim)
	for i, speed := range speeds {
		a, b := 2*i, 2*i+1
		if n.Attr.Str("layout") == ops.Halves {
			a, b = i, i+rot/2
		}
		turn[a*dim+b], turn[b*dim+a] = -1, 1
		for t, p := range pos {
			s, c := math.Sincos(float64(p) * speed)
			s, c = s*magnitude, c*magnitude
			for h := t * heads; h < (t+1)*heads; h++ {
				sin[h*dim+a], sin[h*dim+b] = s, s
				cos[h*dim+a], cos[h*dim+b] = c, c
			}
		}
	}
	x = e.reshape(x, -1, dim)
	still := e.binary(G.HadamardProd, x, e.leaf(cos, len(pos)*heads, dim))
	turned := e.binary(G.HadamardProd, e.linear(x, e.leaf(turn, 1, dim, dim)), e.leaf(sin, len(pos)*heads, dim))
	return e.reshape(e.binary(G.Add, still, turned), -1, heads*dim)
}

// speeds returns the angle per position of each pair of dims: base^(−2i/rot), multiplied by
// freq_scale in full or, with a ramp (YaRN), in part.
func (e *expr) speeds(n *graph.Node) []float64 {
	rot, slow := n.Attr.Int("rot"), n.Float("freq_scale")
	low, high := n.Attr.Float("ramp_low"), n.Attr.Float("ramp_high")
	speeds := make([]float64, rot/2)
	for i := range speeds {
		part := 1.0
		if high > 0 {
			part = min(max((float64(i)-low)/(high-low), 0), 1)
		}
		speeds[i] = math.Pow(n.Attr.Float("base"), -2*float64(i)/float64(rot)) * (1 - part + part*slow)
	}
	if n.Operand("freqs") != nil {
		for i, f := range e.rows(n.Operand("freqs"), 0, 1) {
			speeds[i] /= f
		}
	}
	return speeds
}

// byHead converts one row per token with all heads into one matrix per head.
func byHead(e *expr, x *G.Node, dim int) *G.Node {
	return e.swap(e.reshape(x, len(e.run.ids), -1, dim))
}

// attnScores multiplies the queries of each group of heads with the keys of the group, and masks
// the positions that a token does not attend to.
func attnScores(e *expr, n *graph.Node) *G.Node {
	heads, kv, dim, window := int(n.Attr.Int("heads")), int(n.Attr.Int("kv_heads")), int(n.Attr.Int("head_dim")), int(n.Attr.Int("window"))
	q := e.reshape(byHead(e, e.value(n.Operand("q")), dim), kv, -1, dim)
	scores := e.product(q, byHead(e, e.value(n.Operand("cache")), dim), true)
	tokens := len(e.run.ids)
	hidden := make([]float64, heads*tokens*tokens)
	for i := range hidden {
		t, j := i/tokens%tokens, i%tokens
		if j > t || window > 0 && j <= t-window {
			hidden[i] = math.Inf(-1)
		}
	}
	scores = scaled(e, e.reshape(scores, heads*tokens, tokens), n.Attr.Float("scale"))
	return e.binary(G.Add, scores, e.leaf(hidden, heads*tokens, tokens))
}

// softmax is built from basic operations. gorgonia's own subtracts nearly the maximum of the first
// row from all rows, and overflows if another row has a larger one.
func softmax(e *expr, n *graph.Node) *G.Node {
	x := e.value(n.Operand("x"))
	x = e.unary(G.Exp, e.eachCol(G.BroadcastSub, x, e.reduce(G.Max, x)))
	return e.eachCol(G.BroadcastHadamardDiv, x, e.reduce(G.Sum, x))
}

func attnValues(e *expr, n *graph.Node) *G.Node {
	heads, kv, dim := int(n.Attr.Int("heads")), int(n.Attr.Int("kv_heads")), int(n.Attr.Int("head_dim"))
	probs := e.reshape(e.value(n.Operand("probs")), kv, -1, len(e.run.ids))
	y := e.product(probs, byHead(e, e.value(n.Operand("cache")), dim), false)
	return e.reshape(e.swap(e.reshape(y, heads, len(e.run.ids), dim)), len(e.run.ids), heads*dim)
}

func selectRows(e *expr, n *graph.Node) *G.Node {
	x, wanted := e.value(n.Operand("x")), e.ints(n.Operand("rows"))
	if e.err != nil {
		return nil
	}
	rows := make([]int, len(wanted))
	for i, r := range wanted {
		rows[i] = int(r)
	}
	index := e.dense(dense.New(rows, len(rows)))
	return e.keep(G.ByIndices(x, index, 0))
}
