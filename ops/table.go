// Package ops is the op table: for each operation its operands, attributes and shape inference,
// its reference semantics (from ops/ref), the expansion of fused ops into basic ones, what a
// result may alias, and its cost. It imports gguf/numfmt, graph and ops/ref, and no other package of this
// module.
//
// A matrix of weights has one row for each output, so that matmul is x·wᵀ. M is the number of
// rows of a step: T or R.
//
// Code reads the operands of a node by their names in the op's specs, with Node.Operand, so that an op can gain an
// operand. Only loops over all operands use their positions.
//
// # How to add an op
//
// For a basic op, say relu (follow SiLU in every file named here, and Scale for an attribute):
//
//  1. ops/ref: the function on slices, with its formula and source, and a case in ref_test.go
//     whose expected values come from elsewhere.
//  2. Here: the op, made by define from specs (see [spec]) or by unary or binary, and its eval
//     function. List in alias the operands whose memory a result may take, and in writes the
//     states that it writes. unary and binary check no attribute: an op that refuses some values,
//     or NaN or an infinity, uses define with a check, which returns what was found and what was
//     expected, and has a case for each in TestInferErrors of ops_test.go.
//  3. A row in the table below, with the family by which pictures color it (the names are in
//     graph/draw/kind.go) and its operation count, if it is not one for each element.
//  4. graph/graphtest/recipes.go: a recipe that draws it, with a few values of each attribute, in
//     the list recipes. An op whose result can be larger than a multiple of its operands, like a
//     square, takes its operand from tame and has its degree in addNamed of graphtest.go.
//  5. exec/plan/kernels.go: the signature of its reference kernel, ref.relu (refUnary, refBinary or
//     a row of its own), with a parameter for each attribute, which has the attribute's name, and
//     the operation count, where an exponential counts as 10. A plan with a value outside the
//     parameter's range is refused, so the range contains all that a model may need.
//  6. exec/cpu/kernel/reference.go: the function with its row in referenceRows, and a case in
//     rowCases of rows_test.go.
//  7. lower/cpu/cpu.go: a row in Reference. CUDA plans compute the op on the host by the same row.
//  8. conformance/gorgoniaref/ops.go: a row, for pesti check and tests.
//
// The text forms of graphs and plans follow from these rows, and the random graphs of step 4 test
// them. The pass that splits products between devices stops at an op that it does not know. To
// split an op that works on elements alone, add it to elementwise in graph/pass/split_tensor.go and,
// if it has attributes, to splitKnows there.
//
// The frontend that emits the op is a change of its own. It needs the step in
// conformance/oracle/blocks.py, written from the source of the op and not from step 1.
//
// A fused op has Expand instead of Eval: basic nodes with the same meaning. Instead of steps 1 and
// 5 to 8 it needs a kernel (see package exec/cpu/kernel) with a row in Kernels of lower/cpu/cpu.go,
// and a pass that creates it (see package graph/pass). If it multiplies by weights, it takes the
// attribute kernels and a case in matmulWeights of lower/passes.go.
//
// Then run
//
//	go test ./ops/... ./graph/... ./lower/... ./exec/plan ./exec/cpu/kernel
//	go test ./conformance/gorgoniaref
//	go test ./conformance -run 'TablesAgree|EveryOpLowers'
//	go test ./exec -run TestRandomGraphs
//
// The last one compiles random graphs, runs them, and compares them with the eval functions. The
// tests of exec/cpu/kernel take longest; while you work, -run 'Table|Row|InPlace|EveryKernel' is
// enough there. These tests fail for a step that you left out, and name it: TestPrintParse (3: the
// row), TestEverythingHasAKind (3: the family), TestRecipes (4), TestTable of the kernels (5, 6),
// TestCostModels (5: the operation count), TestRandomGraphs of exec (5: a parameter),
// TestEveryKernelHasACase (6: the case), TestEveryOpLowers (7) and TestRandomGraphs of gorgoniaref (8).
//
// Traps:
//   - The shapes determine whether an op is row-wise, and sink_rows relies on them. An op whose row
//     m reads other rows must have an operand whose first extent is T, like select_rows.
//   - An absent optional attribute has the default of its row. Read an attribute whose default is
//     not zero by Node.Float or Node.Attribute, since Attrs.Float and similar methods ignore
//     defaults.
//   - A number is written 30.0 in the text form, since 30 is an integer.
//   - A kernel runs in place wherever alias of its signature allows it. TestInPlace tests the kernels
//     in rowCases.
//   - Names of ops and attributes are part of the text form, and occur in golden files.
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
	// Expand builds basic nodes with the same meaning and returns their final results, which have
	// the names of n's results.
	Expand func(e *expander, n *graph.Node) []*graph.Value
	// FLOPs counts floating-point operations, a multiply-add as two; nil: one for each element
	// of the results.
	FLOPs func(n *graph.Node, size func(graph.Dim) int64) int64
}

// Table returns all rows. Callers must not change them.
func Table() []Row { return table }

// Of returns the row of an op, or nil if the table does not have it.
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

	{Op: Quantize, Kind: "quantize", Eval: evalQuantize},
	{Op: NormQuantize, Kind: "norm", Expand: expandNormQuantize, FLOPs: perElement(5)},
	{Op: QuantizeQ8, Kind: "quantize", Eval: evalQuantizeQ8},
	{Op: NormQuantizeQ8, Kind: "norm", Expand: expandNormQuantizeQ8, FLOPs: perElement(5)},
	{Op: Round, Kind: "quantize", Eval: evalRound},
	{Op: NormRound, Kind: "norm", Expand: expandNormRound, FLOPs: perElement(5)},
	{Op: GatedMLPQuantize, Kind: "matmul", Expand: expandGatedMLPQuantize, FLOPs: matmulFLOPs},
	{Op: GatedMLPQuantizeQ8, Kind: "matmul", Expand: expandGatedMLPQuantizeQ8, FLOPs: matmulFLOPs},
	{Op: GatedMLPRound, Kind: "matmul", Expand: expandGatedMLPRound, FLOPs: matmulFLOPs},
	{Op: NormAdd, Kind: "norm", Expand: expandNormAdd, FLOPs: perElement(5)},
	{Op: NormMatmul, Kind: "matmul", Expand: expandNormMatmul, FLOPs: matmulFLOPs},
	{Op: NormQKV, Kind: "matmul", Expand: expandNormQKV, FLOPs: matmulFLOPs},
	{Op: NormGatedMLP, Kind: "matmul", Expand: expandNormGatedMLP, FLOPs: matmulFLOPs},
}
