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
// A basic op, say relu, takes eight files, and its tests. SiLU is the pattern in each of them:
//
//  1. ops/ref/act.go or another file there: the function on slices, with its formula and source, and a
//     case in ref_test.go whose expected values come from elsewhere.
//  2. ops/elementwise.go or another file here: the op, made by define from specs (see [spec]) or by unary
//     or binary, with its attributes, and its eval function. Name in alias the operands whose place in
//     memory a result may take, in writes the states that it writes.
//  3. ops/table.go: a row, with the kind by which pictures color the op.
//  4. graph/graphtest/recipes.go: a recipe that draws it, in the list recipes.
//  5. exec/plan/kernels.go: the signature of its reference kernel, ref.relu (refUnary, refBinary or a row
//     of its own), with the range of each parameter and, in cost, its operation count. An attribute is a
//     parameter of the same name.
//  6. exec/cpu/kernel/reference.go: the kernel, in referenceRows, and a case in rowCases of rows_test.go. If
//     the result may take an operand's place, add the kernel to the map in testInPlace there; no test asks
//     for it.
//  7. lower/cpu/cpu.go: a row in Reference.
//  8. conformance/gorgoniaref/ops.go: a row that computes it with gorgonia, written from the source of the op
//     and not from step 1.
//
// The frontend that emits it (frontend/blocks.go) is a change of its own, with the same computation in
// conformance/oracle/blocks.py.
//
// A fused op has expand instead of eval: basic nodes with the same meaning. Instead of steps 1 and 5
// to 8 it needs a kernel (how: package exec/cpu/kernel) with a row in Kernels of lower/cpu/cpu.go,
// and a pass that makes it (how: package graph/pass). If it multiplies by weights, it takes the
// attribute kernels and a case in matmulWeights of lower/passes.go.
//
// Then run
//
//	go test ./ops/... ./graph/... ./lower/... ./exec/plan ./exec/cpu/kernel
//	go test ./conformance/gorgoniaref
//	go test ./conformance -run 'TablesAgree|EveryOpLowers'
//
// in which TestRecipes, TestEverythingHasAKind, TestEveryOpLowers, TestCostModels (the
// operation count) and TestRandomGraphs (gorgonia) name a step that was left out.
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

// A Row has everything about one op. A basic op has Eval, a fused op Expand; input and state, whose
// values come from outside, have neither.
type Row struct {
	Op   *graph.Op
	Kind string // the family by which pictures color the op, a name in the table of graph/draw/kind.go
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
	{Op: Input, Kind: "input"},
	{Op: State, Kind: "KV cache"},
	{Op: GetRows, Kind: "embed", Eval: evalGetRows},
	{Op: Scale, Kind: "elementwise", Eval: evalScale},
	{Op: RMSNorm, Kind: "norm", Eval: evalRMSNorm, FLOPs: perElement(4)},
	{Op: Matmul, Kind: "matmul", Eval: evalMatmul, FLOPs: matmulFLOPs},
	{Op: AddBias, Kind: "elementwise", Eval: evalAddBias},
	{Op: Add, Kind: "elementwise", Eval: evalAdd},
	{Op: Mul, Kind: "elementwise", Eval: evalMul},
	{Op: SiLU, Kind: "elementwise", Eval: evalSiLU, FLOPs: perElement(4)},
	{Op: GELUTanh, Kind: "elementwise", Eval: evalGELUTanh, FLOPs: perElement(8)},
	{Op: GELUErf, Kind: "elementwise", Eval: evalGELUErf, FLOPs: perElement(8)},
	{Op: Rope, Kind: "attention", Eval: evalRope, FLOPs: perElement(3)},
	{Op: KVWrite, Kind: "KV cache", Eval: evalKVWrite, FLOPs: noFLOPs},
	{Op: AttnScores, Kind: "attention", Eval: evalAttnScores, FLOPs: scoresFLOPs},
	{Op: Softmax, Kind: "attention", Eval: evalSoftmax, FLOPs: perElement(4)},
	{Op: AttnValues, Kind: "attention", Eval: evalAttnValues, FLOPs: scoresFLOPs},
	{Op: SelectRows, Kind: "rows", Eval: evalSelectRows, FLOPs: noFLOPs},
	{Op: Transfer, Kind: "transfer", Eval: evalTransfer, FLOPs: noFLOPs},
	{Op: GetPart, Kind: "embed", Eval: evalGetPart},
	{Op: Sum, Kind: "transfer", Eval: evalSum, FLOPs: sumFLOPs},
	{Op: Concat, Kind: "transfer", Eval: evalConcat, FLOPs: noFLOPs},

	{Op: QKV, Kind: "matmul", Expand: expandQKV, FLOPs: matmulFLOPs},
	{Op: GatedMLP, Kind: "matmul", Expand: expandGatedMLP, FLOPs: matmulFLOPs},
	{Op: Attention, Kind: "attention", Expand: expandAttention, FLOPs: attentionFLOPs},

	{Op: Quantize, Kind: "quantise", Eval: evalQuantize},
	{Op: NormQuantize, Kind: "norm", Expand: expandNormQuantize, FLOPs: perElement(5)},
	{Op: QuantizeQ8, Kind: "quantise", Eval: evalQuantizeQ8},
	{Op: NormQuantizeQ8, Kind: "norm", Expand: expandNormQuantizeQ8, FLOPs: perElement(5)},
	{Op: Round, Kind: "quantise", Eval: evalRound},
	{Op: NormRound, Kind: "norm", Expand: expandNormRound, FLOPs: perElement(5)},
	{Op: GatedMLPQuantize, Kind: "matmul", Expand: expandGatedMLPQuantize, FLOPs: matmulFLOPs},
	{Op: GatedMLPQuantizeQ8, Kind: "matmul", Expand: expandGatedMLPQuantizeQ8, FLOPs: matmulFLOPs},
	{Op: GatedMLPRound, Kind: "matmul", Expand: expandGatedMLPRound, FLOPs: matmulFLOPs},
	{Op: NormAdd, Kind: "norm", Expand: expandNormAdd, FLOPs: perElement(5)},
	{Op: NormMatmul, Kind: "matmul", Expand: expandNormMatmul, FLOPs: matmulFLOPs},
	{Op: NormQKV, Kind: "matmul", Expand: expandNormQKV, FLOPs: matmulFLOPs},
	{Op: NormGatedMLP, Kind: "matmul", Expand: expandNormGatedMLP, FLOPs: matmulFLOPs},
}
