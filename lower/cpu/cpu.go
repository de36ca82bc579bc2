// Package cpu is what the CPU target offers to lowering: matmul kernels by weight type and
// activation format, the kernel for each op with its operands and parameters, and the schedule
// templates of the programs.
//
// It imports graph, ops and exec/plan. It knows nothing of how kernels are written; a test in
// package conformance holds its tables against the executor's.
//
// How to add a row to Kernels, Reference or integerTypes is told where the kernel is written:
// package exec/cpu/kernel.
package cpu

import (
	"pesti/exec/plan"
	"pesti/graph"
	"pesti/ops"
)

// Activation formats of matmul kernels.
const (
	F32  = "f32"  // exact: weights dequantised, products in float32
	Q8x2 = "q8x2" // fast: integer products with activations in two int8 planes
	BF16 = "bf16" // fast: products in tiles, for whole chunks of tokens
)

// integerTypes are the weight types that have kernels on integer activations. Every type has
// one on float32.
var integerTypes = map[graph.DType]bool{
	"q4_0": true, "q4_1": true, "q5_0": true, "q5_1": true, "q8_0": true,
	"q4_k": true, "q5_k": true, "q6_k": true,
}

// Integer reports whether weights of that type can be multiplied with integer activations.
func Integer(t graph.DType) bool { return integerTypes[t] }

// layouts is the layout that the kernels of an instruction set want weights in.
var layouts = map[string]string{"neondot": "r16", "avx2": "r16", "avx512vnni": "r16", "amx": "r16"}

// packedTypes are the weight types that have kernels for weights in such a layout, by the format of
// the activations.
var packedTypes = map[string]map[graph.DType]bool{
	Q8x2: integerTypes,
	F32:  layoutTypes,
	BF16: layoutTypes,
}

// layoutTypes are the weight types that have a layout.
var layoutTypes = map[graph.DType]bool{
	"f32": true, "f16": true, "bf16": true, "q4_0": true, "q4_1": true, "q5_0": true, "q5_1": true,
	"q8_0": true, "q4_k": true, "q5_k": true, "q6_k": true,
}

// Layout returns the layout in which products on an instruction set read weights of a type, "" for
// that of the file.
func Layout(isa string, t graph.DType, activations string) string {
	if !packedTypes[activations][t] {
		return ""
	}
	return layouts[isa]
}

// Tiles reports whether weights of that type and row length can be multiplied with bf16 activations:
// there are kernels for types with a layout, and for whole tiles of 32 elements.
func Tiles(t graph.DType, k int64) bool { return layoutTypes[t] && k%32 == 0 }

// A Program is a schedule template.
type Program struct {
	Name      string
	MaxTokens int64
	Chunk     int64  // tokens that it takes at a time, of products in tiles; 0 for any number
	Matmul    string // family of matmul kernels: gemv streams weights, gemm works on blocks of tokens
	// Each is the largest number of rows for which a norm or a quantisation is computed whole by
	// every worker, into memory of its own, which saves a barrier. For more rows the work is
	// split by tokens.
	Each int64
}

// smallTokens is the most tokens of the program "small"; above it tile kernels pay.
const smallTokens = 31

// Chunk is how many tokens the program "tiles" takes at a time. Turning weights into bf16 costs as
// much as multiplying them with some 64 tokens.
const Chunk = 64

// Programs returns the templates for the given bounds, by increasing number of tokens, and that of
// "tiles" last, where there are to be tiles. A program that would hold no more tokens than the one
// before it is left out.
func Programs(ubatch, sequences int64, tiles bool) []Program {
	all := []Program{
		{Name: "decode", MaxTokens: min(sequences, ubatch), Matmul: "gemv", Each: smallTokens},
		{Name: "small", MaxTokens: min(smallTokens, ubatch), Matmul: "gemv", Each: smallTokens},
		{Name: "prefill", MaxTokens: ubatch, Matmul: "gemm", Each: smallTokens},
	}
	var list []Program
	for _, p := range all {
		if len(list) == 0 || p.MaxTokens > list[len(list)-1].MaxTokens {
			list = append(list, p)
		}
	}
	if whole := ubatch / Chunk * Chunk; tiles && whole > 0 {
		list = append(list, Program{Name: "tiles", MaxTokens: whole, Chunk: Chunk, Matmul: "gemm", Each: smallTokens})
	}
	return list
}

// RowUnit is the smallest share of a matmul's output rows that a worker takes.
const RowUnit = 16

// A Lowering says which kernel computes an op and how operands become its arguments. A role of
// "" is not passed on: states written in place, or what the kernel knows otherwise.
type Lowering struct {
	Op     *graph.Op
	Kernel string
	In     []string
	Out    []string
	Split  plan.Split
	Small  bool // cheap enough for every worker to compute whole, see Program.Each
	Params func(n *graph.Node, env Env) []plan.Param
	// Matmuls names the weights that take a matmul kernel from the node's attribute "kernels".
	Matmuls []string
}

// An Env gives what parameters need beyond the node: the storage of the states.
type Env struct {
	Positions func(state *graph.Value) (positions int64, ring bool)
}

var (
	byRows   = plan.Split{By: "rows", Unit: RowUnit}
	byBlocks = plan.Split{By: "rows", Unit: 2 * RowUnit} // rows of a result that is rounded by blocks of 32
	byHeads  = plan.Split{By: "heads", Unit: 1}
	byTokens = plan.Split{By: "tokens", Unit: 1}
	one      = plan.Split{By: "one", Unit: 1}
)

// Kernels is the table of ops that have a kernel of their own on this target.
var Kernels = []Lowering{
	{Op: ops.GetRows, Kernel: "embed", In: []string{"table", "tokens"}, Out: []string{"y"}, Split: byTokens, Small: true, Params: embedParams},
	{Op: ops.RMSNorm, Kernel: "norm", In: []string{"x", "w"}, Out: []string{"y"}, Split: byTokens, Small: true, Params: normParams},
	{Op: ops.NormQuantise, Kernel: "norm", In: []string{"x", "w"}, Out: []string{"y"}, Split: byTokens, Small: true, Params: normParams},
	{Op: ops.NormAdd, Kernel: "norm_add", In: []string{"d", "w", "x"}, Out: []string{"y"}, Split: byTokens, Small: true, Params: normParams},
	{Op: ops.Quantise, Kernel: "quantise", In: []string{"x"}, Out: []string{"y"}, Split: byTokens, Small: true, Params: widthParam},
	{Op: ops.Round, Kernel: "quantise", In: []string{"x"}, Out: []string{"y"}, Split: byTokens, Small: true, Params: widthParam},
	{Op: ops.NormRound, Kernel: "norm", In: []string{"x", "w"}, Out: []string{"y"}, Split: byTokens, Small: true, Params: normParams},
	{Op: ops.SelectRows, Kernel: "select", In: []string{"x", "rows"}, Out: []string{"y"}, Split: byTokens, Small: true, Params: widthParam},
	{Op: ops.Matmul, Kernel: "matmul_group", In: []string{"x", "w0", "res"}, Out: []string{"out0"}, Split: byRows, Params: groupParams, Matmuls: []string{"w0"}},
	{Op: ops.QKV, Kernel: "matmul_group", In: []string{"x", "w0", "w1", "w2", "bias0", "bias1", "bias2"}, Out: []string{"out0", "out1", "out2"}, Split: byRows, Params: groupParams, Matmuls: []string{"w0", "w1", "w2"}},
	{Op: ops.SwiGLU, Kernel: "gated", In: []string{"x", "w0", "w1"}, Out: []string{"y"}, Split: byRows, Params: gatedParams, Matmuls: []string{"w0", "w1"}},
	{Op: ops.SwiGLUQuantise, Kernel: "gated", In: []string{"x", "w0", "w1"}, Out: []string{"y"}, Split: byBlocks, Params: gatedParams, Matmuls: []string{"w0", "w1"}},
	{Op: ops.SwiGLURound, Kernel: "gated", In: []string{"x", "w0", "w1"}, Out: []string{"y"}, Split: byBlocks, Params: gatedParams, Matmuls: []string{"w0", "w1"}},
	{Op: ops.Attention, Kernel: "attention", In: []string{"q", "k", "v", "pos", "seq", "kcache", "vcache", "qnorm", "knorm", "freqs"}, Out: []string{"out", "", ""}, Split: byHeads, Params: attentionParams},
}

// Reference is the table of ref.* kernels: what runs where no kernel fits.
var Reference = []Lowering{
	{Op: ops.GetRows, Kernel: "ref.get_rows", In: []string{"table", "ids"}, Out: []string{"y"}, Split: one, Params: embedParams},
	{Op: ops.Scale, Kernel: "ref.scale", In: []string{"x"}, Out: []string{"y"}, Split: one, Params: scaleParams},
	{Op: ops.RMSNorm, Kernel: "ref.rms_norm", In: []string{"x", "w"}, Out: []string{"y"}, Split: one, Params: groupNormParams},
	{Op: ops.Matmul, Kernel: "ref.matmul", In: []string{"x", "w", "res"}, Out: []string{"y"}, Split: byRows, Params: matmulParams},
	{Op: ops.AddBias, Kernel: "ref.add_bias", In: []string{"x", "bias"}, Out: []string{"y"}, Split: one, Params: widthParam},
	{Op: ops.Add, Kernel: "ref.add", In: []string{"a", "b"}, Out: []string{"y"}, Split: one, Params: widthParam},
	{Op: ops.Mul, Kernel: "ref.mul", In: []string{"a", "b"}, Out: []string{"y"}, Split: one, Params: widthParam},
	{Op: ops.SiLU, Kernel: "ref.silu", In: []string{"x"}, Out: []string{"y"}, Split: one, Params: widthParam},
	{Op: ops.GELUTanh, Kernel: "ref.gelu_tanh", In: []string{"x"}, Out: []string{"y"}, Split: one, Params: widthParam},
	{Op: ops.GELUErf, Kernel: "ref.gelu_erf", In: []string{"x"}, Out: []string{"y"}, Split: one, Params: widthParam},
	{Op: ops.Rope, Kernel: "ref.rope", In: []string{"x", "pos", "freqs"}, Out: []string{"y"}, Split: one, Params: ropeParams},
	{Op: ops.KVWrite, Kernel: "ref.kv_write", In: []string{"cache", "x", "pos", "seq"}, Out: []string{""}, Split: one, Params: writeParams},
	{Op: ops.AttnScores, Kernel: "ref.attn_scores", In: []string{"q", "kcache", "pos", "seq"}, Out: []string{"y"}, Split: one, Params: scoresParams},
	{Op: ops.Softmax, Kernel: "ref.softmax", In: []string{"x"}, Out: []string{"y"}, Split: one, Params: softmaxParams},
	{Op: ops.AttnValues, Kernel: "ref.attn_values", In: []string{"probs", "vcache", "pos", "seq"}, Out: []string{"y"}, Split: one, Params: valuesParams},
	{Op: ops.SelectRows, Kernel: "select", In: []string{"x", "rows"}, Out: []string{"y"}, Split: one, Params: widthParam},
}

// find returns the row of a table for an op.
func find(table []Lowering, op *graph.Op) *Lowering {
	for i := range table {
		if table[i].Op == op {
			return &table[i]
		}
	}
	return nil
}

// Lower returns how a node is computed: by a kernel of its own where reference is false and one
// fits, else by a ref.* kernel; nil where there is neither.
func Lower(n *graph.Node, reference bool) *Lowering {
	if !reference {
		if l := find(Kernels, n.Op); l != nil && fits(l, n) {
			return l
		}
	}
	return find(Reference, n.Op)
}

// fits reports what an op's row cannot say about a node.
func fits(l *Lowering, n *graph.Node) bool {
	if n.Op == ops.RMSNorm {
		return n.Attr.Int("group") == 0 // norms per head are the attention kernel's
	}
	return l.Matmuls == nil || n.Attr.Str("kernels") != ""
}
