package ops

import (
	"pesti/graph"
	"pesti/ops/ref"
)

// kernels is the attribute in which lowering records the matmul kernel of each weight of a node,
// separated by commas. It does not change the node's meaning.
var kernels = may("kernels", "")

// Matmul is x·wᵀ, plus res if it is present.
var Matmul = alias(define("matmul",
	[]spec{{"x", activation, "M k"}, {"w", weight, "n k"}, {"res?", graph.F32, "M n"}},
	[]spec{{"y", graph.F32, "M n"}},
	[]graph.AttrSpec{kernels}, nil), [2]int{0, 2})

func evalMatmul(_ *graph.Node, in, out []*Value) error {
	ref.Matmul(out[0].F32, in[0].F32, in[1].F32, in[0].last())
	if in[2] != nil {
		ref.Add(out[0].F32, out[0].F32, in[2].F32)
	}
	return nil
}

// QKV is three matmuls of one x, each with an optional bias.
var QKV = define("qkv",
	[]spec{{"x", activation, "M k"},
		{"wq", weight, "nq k"}, {"wk", weight, "nk k"}, {"wv", weight, "nv k"},
		{"bq?", graph.F32, "nq"}, {"bk?", graph.F32, "nk"}, {"bv?", graph.F32, "nv"}},
	[]spec{{"q", graph.F32, "M nq"}, {"k", graph.F32, "M nk"}, {"v", graph.F32, "M nv"}},
	[]graph.AttrSpec{kernels}, nil)

func expandQKV(e *expander, n *graph.Node) []*graph.Value {
	return e.qkv(n, n.Operand("x"))
}

// qkv adds the matmuls of x in n's expansion.
func (e *expander) qkv(n *graph.Node, x *graph.Value) []*graph.Value {
	out := make([]*graph.Value, 3)
	for i, part := range []string{"q", "k", "v"} {
		name, w, bias := n.Out[i].Name, n.Operand("w"+part), n.Operand("b"+part)
		if bias == nil {
			out[i] = e.add(Matmul, nil, name, x, w)
			continue
		}
		product := e.add(Matmul, nil, name+".matmul", x, w)
		out[i] = e.add(AddBias, nil, name, product, bias)
	}
	return out
}

// GatedMLP is act(x·gateᵀ) ⊙ (x·upᵀ) (Shazeer 2020), with any of the three activations. With SiLU it is SwiGLU.
var GatedMLP = define("gated_mlp",
	[]spec{{"x", activation, "M k"}, {"gate", weight, "n k"}, {"up", weight, "n k"}},
	[]spec{{"y", graph.F32, "M n"}},
	[]graph.AttrSpec{need("act", ""), kernels}, checkAct)

func checkAct(n *graph.Node) error { return oneOf(n, "act", SiLU.Name, GELUTanh.Name, GELUErf.Name) }

func expandGatedMLP(e *expander, n *graph.Node) []*graph.Value {
	return []*graph.Value{e.gatedMLP(n, n.Out[0].Name, n.Operand("x"))}
}

// gatedMLP adds the basic ops of a gated MLP of x with the activation of n; the result is called y.
func (e *expander) gatedMLP(n *graph.Node, y string, x *graph.Value) *graph.Value {
	act := SiLU
	for _, op := range []*graph.Op{GELUTanh, GELUErf} {
		if op.Name == n.Attr.Str("act") {
			act = op
		}
	}
	gate := e.add(Matmul, nil, y+".gate", x, n.Operand("gate"))
	gate = e.add(act, nil, y+".act", gate)
	up := e.add(Matmul, nil, y+".up", x, n.Operand("up"))
	return e.add(Mul, nil, y, gate, up)
}

// matmulFLOPs counts the products of x with every weight matrix of the node.
func matmulFLOPs(n *graph.Node, size func(graph.Dim) int64) int64 {
	total := int64(0)
	for _, v := range n.In {
		if v != nil && v.IsWeight() && len(v.Type.Shape) == 2 {
			total += 2 * size(n.Operand("x").Type.Shape[0]) * size(v.Type.Shape[0]) * size(v.Type.Shape[1])
		}
	}
	return total
}
