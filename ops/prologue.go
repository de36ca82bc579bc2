package ops

import "pesti/graph"

// Products that first compute a norm of x. A kernel that computes the norm in its prologue saves a
// step and the memory for the norm's result; in return every block of the kernel repeats the norm.

// NormMatmul is matmul(rms_norm(x, norm), w).
var NormMatmul = define("norm_matmul",
	[]spec{{"x", graph.F32, "M k"}, {"norm", graph.F32, "k"}, {"w", weight, "n k"}},
	[]spec{{"y", graph.F32, "M n"}},
	[]graph.AttrSpec{need("eps", 0.0), kernels}, nil)

func expandNormMatmul(e *expander, n *graph.Node) []*graph.Value {
	y := n.Out[0].Name
	return []*graph.Value{e.add(Matmul, nil, y, e.normed(n, y), n.Operand("w"))}
}

// NormQKV is qkv(rms_norm(x, norm), wq, wk, wv, bq, bk, bv).
var NormQKV = define("norm_qkv",
	[]spec{{"x", graph.F32, "M k"}, {"norm", graph.F32, "k"},
		{"wq", weight, "nq k"}, {"wk", weight, "nk k"}, {"wv", weight, "nv k"},
		{"bq?", graph.F32, "nq"}, {"bk?", graph.F32, "nk"}, {"bv?", graph.F32, "nv"}},
	[]spec{{"q", graph.F32, "M nq"}, {"k", graph.F32, "M nk"}, {"v", graph.F32, "M nv"}},
	[]graph.AttrSpec{need("eps", 0.0), kernels}, nil)

func expandNormQKV(e *expander, n *graph.Node) []*graph.Value {
	return e.qkv(n, e.normed(n, n.Out[0].Name))
}

// NormGatedMLP is gated_mlp(rms_norm(x, norm), gate, up).
var NormGatedMLP = define("norm_gated_mlp",
	[]spec{{"x", graph.F32, "M k"}, {"norm", graph.F32, "k"}, {"gate", weight, "n k"}, {"up", weight, "n k"}},
	[]spec{{"y", graph.F32, "M n"}},
	[]graph.AttrSpec{need("eps", 0.0), need("act", ""), kernels}, checkAct)

func expandNormGatedMLP(e *expander, n *graph.Node) []*graph.Value {
	y := n.Out[0].Name
	return []*graph.Value{e.gatedMLP(n, y, e.normed(n, y))}
}

// normed adds the norm of a node whose first operands are x and norm.
func (e *expander) normed(n *graph.Node, y string) *graph.Value {
	return e.add(RMSNorm, graph.Attrs{"eps": n.Attr.Float("eps")}, y+".norm", n.Operand("x"), n.Operand("norm"))
}
