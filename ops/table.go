// Package ops is the op table: for each operation its operands, attributes and shape inference,
// its reference semantics (from ops/ref), the expansion of fused ops into basic ones, what a
// result may alias, and its cost. A new op is one row here and its file.
//
// A matrix of weights has one row for each output, so that matmul is x·wᵀ. M is the number of
// rows of a step: T or R. It imports graph and ops/ref, and no other package of this module.
package ops

import "pesti/graph"

// A Row tells all about one op. A basic op has Eval, a fused op Expand; input and state, whose
// values come from outside, have neither.
type Row struct {
	Op *graph.Op
	// Eval computes the results from the operands; in[i] is nil for an absent operand. Results
	// come allocated, and a written state is the operand's, in place.
	Eval func(n *graph.Node, in, out []*Value) error
	// Expand builds basic nodes with the same meaning, whose last results have the names of
	// n's, and returns those.
	Expand func(e *expander, n *graph.Node) []*graph.Value
	// FLOPs counts floating-point operations, a multiply-add as two; nil: one for each element
	// of the results.
	FLOPs func(n *graph.Node, size func(graph.Dim) int64) int64
}

// Table returns all rows. Callers must not change them.
func Table() []Row { return table }

// Of returns the row of an op, or nil for an op of another table.
func Of(op *graph.Op) *Row {
	for i := range table {
		if table[i].Op == op {
			return &table[i]
		}
	}
	return nil
}

// Lookup finds an op by the name that graphs are printed with.
func Lookup(name string) (*graph.Op, bool) {
	for i := range table {
		if table[i].Op.Name == name {
			return table[i].Op, true
		}
	}
	return nil, false
}

var table = []Row{
	{Op: Input},
	{Op: State},
	{Op: GetRows, Eval: evalGetRows},
	{Op: Scale, Eval: evalScale},
	{Op: RMSNorm, Eval: evalRMSNorm, FLOPs: perElement(4)},
	{Op: Matmul, Eval: evalMatmul, FLOPs: matmulFLOPs},
	{Op: AddBias, Eval: evalAddBias},
	{Op: Add, Eval: evalAdd},
	{Op: Mul, Eval: evalMul},
	{Op: SiLU, Eval: evalSiLU, FLOPs: perElement(4)},
	{Op: GELUTanh, Eval: evalGELUTanh, FLOPs: perElement(8)},
	{Op: GELUErf, Eval: evalGELUErf, FLOPs: perElement(8)},
	{Op: Rope, Eval: evalRope, FLOPs: perElement(3)},
	{Op: KVWrite, Eval: evalKVWrite, FLOPs: noFLOPs},
	{Op: AttnScores, Eval: evalAttnScores, FLOPs: scoresFLOPs},
	{Op: Softmax, Eval: evalSoftmax, FLOPs: perElement(4)},
	{Op: AttnValues, Eval: evalAttnValues, FLOPs: scoresFLOPs},
	{Op: SelectRows, Eval: evalSelectRows, FLOPs: noFLOPs},

	{Op: QKV, Expand: expandQKV, FLOPs: matmulFLOPs},
	{Op: SwiGLU, Expand: expandSwiGLU, FLOPs: matmulFLOPs},
	{Op: Attention, Expand: expandAttention, FLOPs: attentionFLOPs},

	{Op: Quantise, Eval: evalQuantise},
	{Op: NormQuantise, Expand: expandNormQuantise, FLOPs: perElement(5)},
	{Op: NormAdd, Expand: expandNormAdd, FLOPs: perElement(5)},
}
