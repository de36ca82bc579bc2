// Package ops is the op table: for each operation its operands, attributes and shape inference,
// its reference semantics (from ops/ref), the expansion of fused ops into basic ones, what a
// result may alias, and its cost. It imports gguf/numfmt, graph and ops/ref, and no other package of this
// module.
//
// A matrix of weights has one row for each output, so that matmul is x·wᵀ. M is the number of
// rows of a step: T or R.
//
// # How to add an op
//
// A basic op, say relu, of which SiLU is the pattern in every file named here:
//
//  1. ops/ref: the function on slices, with its formula and source, and a case in ref_test.go
//     whose expected values come from elsewhere.
//  2. Here: the op, made by define from specs (see [spec]) or by unary or binary, its eval function,
//     and a row in the table below. Name in alias the operands whose place in memory a result may
//     take, in writes the states that it writes.
//  3. graph/graphtest/recipes.go: a recipe that draws it, in the list recipes.
//  4. Its reference kernel, ref.relu: the signature in exec/plan/kernels.go (refUnary, refBinary or
//     a row of its own) with its range of each parameter, its operation count in exec/plan/cost.go,
//     the function in exec/cpu/kernel/reference.go with its row in kernel.go and a case in rowCases
//     of rows_test.go, and a row in Reference of lower/cpu/cpu.go. If the result may take an
//     operand's place, add the kernel to the map in testInPlace of rows_test.go; no test asks for it.
//  5. graph/draw/kind.go: its name among those of a colour.
//  6. If a frontend emits it: a row in conformance/gorgoniaref/ops.go, and the step in
//     conformance/oracle/blocks.py, written from the source of the op and not from step 1.
//
// A fused op has expand in place of eval: basic nodes that mean the same. In place of steps 1, 4
// and 6 it needs a kernel (how: package exec/cpu/kernel) with a row in Kernels of lower/cpu/cpu.go,
// and a pass that makes it (how: package graph/pass). If it multiplies by weights, it takes the
// attribute kernels and a case in matmulWeights of lower/passes.go.
//
// Then run
//
//	go test ./ops/... ./graph/... ./lower/... ./exec/plan ./exec/cpu/kernel
//	go test ./conformance/gorgoniaref
//	go test ./conformance -run 'TablesAgree|EveryOpLowers'
//
// in which TestRecipes, TestEverythingHasAKind, TestEveryOpLowers and TestWorks (the operation
// count) name a step that was left out.
//
// Traps:
//   - The shapes say whether an op is row-wise, and sink_rows believes them. One whose row m reads
//     other rows must have an operand whose first extent is T, as select_rows has.
//   - An absent optional attribute has the default of its row. Read one whose default is not zero by
//     Node.Float or Node.Attribute, since Attrs.Float and the like know no defaults.
//   - A kernel runs in place wherever alias allows it: TestInPlace shows how that is tested.
//   - Names of ops and attributes are the text form, and stand in golden files.
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
	{Op: Transfer, Eval: evalTransfer, FLOPs: noFLOPs},
	{Op: GetPart, Eval: evalGetPart},
	{Op: Sum, Eval: evalSum, FLOPs: sumFLOPs},
	{Op: Concat, Eval: evalConcat, FLOPs: noFLOPs},

	{Op: QKV, Expand: expandQKV, FLOPs: matmulFLOPs},
	{Op: GatedMLP, Expand: expandGatedMLP, FLOPs: matmulFLOPs},
	{Op: Attention, Expand: expandAttention, FLOPs: attentionFLOPs},

	{Op: Quantize, Eval: evalQuantize},
	{Op: NormQuantize, Expand: expandNormQuantize, FLOPs: perElement(5)},
	{Op: QuantizeQ8, Eval: evalQuantizeQ8},
	{Op: NormQuantizeQ8, Expand: expandNormQuantizeQ8, FLOPs: perElement(5)},
	{Op: Round, Eval: evalRound},
	{Op: NormRound, Expand: expandNormRound, FLOPs: perElement(5)},
	{Op: GatedMLPQuantize, Expand: expandGatedMLPQuantize, FLOPs: matmulFLOPs},
	{Op: GatedMLPQuantizeQ8, Expand: expandGatedMLPQuantizeQ8, FLOPs: matmulFLOPs},
	{Op: GatedMLPRound, Expand: expandGatedMLPRound, FLOPs: matmulFLOPs},
	{Op: NormAdd, Expand: expandNormAdd, FLOPs: perElement(5)},
	{Op: NormMatmul, Expand: expandNormMatmul, FLOPs: matmulFLOPs},
	{Op: NormQKV, Expand: expandNormQKV, FLOPs: matmulFLOPs},
	{Op: NormGatedMLP, Expand: expandNormGatedMLP, FLOPs: matmulFLOPs},
}
