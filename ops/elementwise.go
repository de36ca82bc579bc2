package ops

import (
	"pesti/graph"
	"pesti/ops/ref"
)

// Scale multiplies by a constant.
var Scale = unary("scale", need("factor", 0.0))

func evalScale(n *graph.Node, in, out []*Value) error {
	ref.Scale(out[0].F32, in[0].F32, n.Attr.Float("factor"))
	return nil
}

// AddBias adds b to every row.
var AddBias = alias(define("add_bias",
	[]spec{{"x", graph.F32, "M n"}, {"b", graph.F32, "n"}},
	[]spec{{"y", graph.F32, "M n"}}, nil, nil), [2]int{0, 0})

func evalAddBias(_ *graph.Node, in, out []*Value) error {
	ref.AddBias(out[0].F32, in[0].F32, in[1].F32)
	return nil
}

// Add and Mul work element by element.
var (
	Add = binary("add")
	Mul = binary("mul")
)

func evalAdd(_ *graph.Node, in, out []*Value) error {
	ref.Add(out[0].F32, in[0].F32, in[1].F32)
	return nil
}

func evalMul(_ *graph.Node, in, out []*Value) error {
	ref.Mul(out[0].F32, in[0].F32, in[1].F32)
	return nil
}

// The activation functions: SiLU is x·σ(x) (Elfwing et al. 2018); GELU (Hendrycks & Gimpel 2016)
// is x·Φ(x), exactly or by the paper's tanh approximation.
var (
	SiLU     = unary("silu")
	GELUTanh = unary("gelu_tanh")
	GELUErf  = unary("gelu_erf")
)

func evalSiLU(_ *graph.Node, in, out []*Value) error {
	ref.SiLU(out[0].F32, in[0].F32)
	return nil
}

func evalGELUTanh(_ *graph.Node, in, out []*Value) error {
	ref.GELUTanh(out[0].F32, in[0].F32)
	return nil
}

func evalGELUErf(_ *graph.Node, in, out []*Value) error {
	ref.GELUErf(out[0].F32, in[0].F32)
	return nil
}

func unary(name string, attrs ...graph.AttrSpec) *graph.Op {
	return alias(define(name, []spec{{"x", graph.F32, "M n"}}, []spec{{"y", graph.F32, "M n"}}, attrs, nil), [2]int{0, 0})
}

func binary(name string) *graph.Op {
	return alias(define(name, []spec{{"a", graph.F32, "M n"}, {"b", graph.F32, "M n"}}, []spec{{"y", graph.F32, "M n"}}, nil, nil), [2]int{0, 0})
}
