// Package cpu describes the CPU target to lowering: matmul kernels by weight type and activation
// format, the kernel for each op with its operands and parameters, and the schedule templates of
// the programs.
//
// It imports graph, ops, exec/plan and lower/target. It does not import the kernels. A test in
// package conformance checks its tables against the executor's.
//
// The documentation of package exec/cpu/kernel describes how to add a row to Kernels, Reference or
// integerTypes.
package cpu

import (
	"fmt"

	"pesti/exec/plan"
	"pesti/graph"
	"pesti/lower/target"
	"pesti/ops"
)

// Target returns the row of the CPU.
func Target() *target.Target {
	return &target.Target{
		Name: "cpu", ISAs: plan.ISAs, Caches: plan.CacheFormats(), Tiles: Chunk,
		Programs: Programs, ActivationFormats: activationFormats, Integers: integers, DefaultRounding: defaultRounding, Layout: Layout,
		Kernels: Kernels, Reference: Reference, Fits: fits, Copy: "copy",
	}
}

// activationFormats are the formats of activations, best first. Tiles (bf16) are for nodes over the
// tokens of whole chunks, so the product with the vocabulary, mostly of one row, does not use them.
// Nor do the products of queries, keys and values: they are at most a sixth of all products, but a
// third of the error of bf16.
var activationFormats = []target.ActivationFormat{
	{Format: target.BF16, Rounds: true,
		For: func(p *target.Program, n *graph.Node) bool {
			return p.Chunk > 0 && target.RowsOf(n) == graph.T && n.Op != ops.QKV
		},
		WhyNot: func(_ string, w *graph.Value) string {
			if Tiles(w.Type.DType, w.Type.Shape[1].N) {
				return ""
			}
			return fmt.Sprintf("no kernel in tiles for %s of %v", w.Name, w.Type)
		}},
	{Format: target.Q8x2, Rounds: true, Integers: true, WhyNot: whyNotInteger},
	{Format: target.Q8, Rounds: true, Integers: true, WhyNot: whyNotInteger},
	{Format: target.F32, WhyNot: func(string, *graph.Value) string { return "" }},
}

// integers are the choices of integer formats for activations. The error of one plane is larger the
// fewer sums follow it; the time of a second plane is proportional to the product's elements.
// "mixed" keeps two planes for the products whose error is largest for their time.
var integers = []target.Rounding{
	target.Always(target.Q8x2),
	{Name: "mixed", Format: func(n *graph.Node, logits bool) string {
		if n.Op == ops.QKV || logits {
			return target.Q8x2
		}
		return target.Q8
	}},
	target.Always(target.Q8),
}

// defaultRounding is two planes unless the second costs more than a tenth of a token's time. That
// is so on AVX2, which needs separate instructions to multiply and to add. Later instruction sets
// do both in one instruction, and portable kernels multiply with both planes at once.
func defaultRounding(isa string) string {
	if isa == "avx2" {
		return "mixed"
	}
	return target.Q8x2
}

func whyNotInteger(_ string, w *graph.Value) string {
	if Integer(w.Type.DType) {
		return ""
	}
	return fmt.Sprintf("no integer kernel for %s of %s", w.Name, w.Type.DType)
}

// integerTypes are the weight types that have kernels on integer activations. Every type has
// kernels on float32 activations.
var integerTypes = map[graph.DType]bool{
	"q4_0": true, "q4_1": true, "q5_0": true, "q5_1": true, "q8_0": true,
	"q4_k": true, "q5_k": true, "q6_k": true,
}

// Integer reports whether a weight type has kernels on integer activations.
func Integer(t graph.DType) bool { return integerTypes[t] }

// layouts maps an instruction set to the layout in which its kernels read weights.
var layouts = map[string]string{"neondot": "panel16", "avx2": "panel16", "avx512vnni": "panel16", "amx": "panel16"}

// packedTypes are the weight types that have kernels on packed weights, by the format of the
// activations.
var packedTypes = map[string]map[graph.DType]bool{
	target.Q8x2: integerTypes,
	target.Q8:   integerTypes,
	target.F32:  layoutTypes,
	target.BF16: layoutTypes,
}

// planes are the formats of activations whose kernels multiply integers.
var planes = map[string]bool{target.Q8x2: true, target.Q8: true}

// layoutTypes are the weight types that have a packed layout.
var layoutTypes = map[graph.DType]bool{
	"f32": true, "f16": true, "bf16": true, "q4_0": true, "q4_1": true, "q5_0": true, "q5_1": true,
	"q8_0": true, "q4_k": true, "q5_k": true, "q6_k": true, "f8_e4m3": true,
}

// Layout returns the layout in which products on an instruction set read weights of a type, "" for
// the file's.
func Layout(isa string, t graph.DType, activations string) string {
	if !packedTypes[activations][t] || isa == "neondot" && !planes[activations] { // NEON has packed kernels for integers alone
		return "" // portable kernels read the file's layout faster
	}
	return layouts[isa]
}

// Tiles reports whether there are kernels on bf16 activations for weights of a type and row length
// k. They need a type with a packed layout and without row scales, and rows of whole tiles of 32
// elements.
func Tiles(t graph.DType, k int64) bool { return layoutTypes[t] && t != graph.F8E4M3 && k%32 == 0 }

// smallTokens is the largest number of tokens of the program "small". For more tokens, kernels over
// blocks of tokens (gemm) are faster.
const smallTokens = 31

// Chunk is the number of tokens in a chunk of the program "tiles". The conversion of weights to
// bf16 costs as much as their product with about 64 tokens.
const Chunk = 64

// Programs returns the templates for the given bounds by increasing number of tokens, and then the
// template of "tiles" if the bounds ask for it.
func Programs(b target.Bounds) []target.Program {
	list := target.Distinct(
		target.Program{Name: "decode", MaxTokens: min(b.Sequences, b.Ubatch), Matmul: "gemv", Each: smallTokens},
		target.Program{Name: "small", MaxTokens: min(smallTokens, b.Ubatch), Matmul: "gemv", Each: smallTokens},
		target.Program{Name: "prefill", MaxTokens: b.Ubatch, Matmul: "gemm", Each: smallTokens},
	)
	if whole := b.Ubatch / Chunk * Chunk; b.Tiles && whole > 0 {
		list = append(list, target.Program{Name: "tiles", MaxTokens: whole, Chunk: Chunk, Matmul: "gemm", Each: smallTokens})
	}
	return list
}

// HostProgram returns the template for the layers that stay on the processor in a program of
// another target. Its kernels round equally for chunks and for single tokens.
func HostProgram(p target.Program) target.Program {
	host := target.Program{Name: p.Name, MaxTokens: p.MaxTokens, Matmul: "gemv", AllRows: p.AllRows, Each: smallTokens}
	if p.MaxTokens > smallTokens {
		host.Matmul = "gemm"
	}
	return host
}

// RowUnit is the unit, in output rows, in which workers share a matmul.
const RowUnit = 16

var (
	byRows   = plan.Split{By: "rows", Unit: RowUnit}
	byBlocks = plan.Split{By: "rows", Unit: 2 * RowUnit} // for a result that is rounded in blocks of 32 elements
	byHeads  = plan.Split{By: "heads", Unit: 1}
	byTokens = plan.Split{By: "tokens", Unit: 1}
	one      = plan.Split{By: "one", Unit: 1}
)

// Kernels maps ops to this target's own kernels.
var Kernels = []target.Lowering{
	{Op: ops.GetRows, Kernel: "embed", In: []string{"table", "tokens"}, Out: []string{"y"}, Split: byTokens, Small: true, Params: target.Vocab},
	{Op: ops.RMSNorm, Kernel: "norm", In: []string{"x", "w"}, Out: []string{"y"}, Split: byTokens, Small: true},
	{Op: ops.NormQuantize, Kernel: "norm", In: []string{"x", "w"}, Out: []string{"y"}, Split: byTokens, Small: true},
	{Op: ops.NormAdd, Kernel: "norm_add", In: []string{"d", "w", "x"}, Out: []string{"y"}, Split: byTokens, Small: true},
	{Op: ops.Quantize, Kernel: "quantize", In: []string{"x"}, Out: []string{"y"}, Split: byTokens, Small: true},
	{Op: ops.QuantizeQ8, Kernel: "quantize", In: []string{"x"}, Out: []string{"y"}, Split: byTokens, Small: true},
	{Op: ops.NormQuantizeQ8, Kernel: "norm", In: []string{"x", "w"}, Out: []string{"y"}, Split: byTokens, Small: true},
	{Op: ops.Round, Kernel: "quantize", In: []string{"x"}, Out: []string{"y"}, Split: byTokens, Small: true},
	{Op: ops.NormRound, Kernel: "norm", In: []string{"x", "w"}, Out: []string{"y"}, Split: byTokens, Small: true},
	{Op: ops.SelectRows, Kernel: "select", In: []string{"x", "rows"}, Out: []string{"y"}, Split: byTokens, Small: true},
	{Op: ops.Matmul, Kernel: "matmul_group", In: []string{"x", "w0", "res"}, Out: []string{"out0"}, Split: byRows, Matmuls: []string{"w0"}},
	{Op: ops.QKV, Kernel: "matmul_group", In: []string{"x", "w0", "w1", "w2", "bias0", "bias1", "bias2"}, Out: []string{"out0", "out1", "out2"}, Split: byRows, Matmuls: []string{"w0", "w1", "w2"}},
	{Op: ops.GatedMLP, Kernel: "gated_mlp", In: []string{"x", "w0", "w1"}, Out: []string{"y"}, Split: byRows, Matmuls: []string{"w0", "w1"}},
	{Op: ops.GatedMLPQuantize, Kernel: "gated_mlp", In: []string{"x", "w0", "w1"}, Out: []string{"y"}, Split: byBlocks, Matmuls: []string{"w0", "w1"}},
	{Op: ops.GatedMLPQuantizeQ8, Kernel: "gated_mlp", In: []string{"x", "w0", "w1"}, Out: []string{"y"}, Split: byBlocks, Matmuls: []string{"w0", "w1"}},
	{Op: ops.GatedMLPRound, Kernel: "gated_mlp", In: []string{"x", "w0", "w1"}, Out: []string{"y"}, Split: byBlocks, Matmuls: []string{"w0", "w1"}},
	{Op: ops.Attention, Kernel: "attention", In: []string{"q", "k", "v", "pos", "seq", "kcache", "vcache", "qnorm", "knorm", "freqs"}, Out: []string{"out", "", ""}, Split: byHeads},
}

// Reference maps ops to the ref.* kernels, the fallback if no other kernel fits.
var Reference = []target.Lowering{
	{Op: ops.GetRows, Kernel: "ref.get_rows", In: []string{"table", "ids"}, Out: []string{"y"}, Split: one, Params: target.Vocab},
	{Op: ops.Scale, Kernel: "ref.scale", In: []string{"x"}, Out: []string{"y"}, Split: one},
	{Op: ops.RMSNorm, Kernel: "ref.rms_norm", In: []string{"x", "w"}, Out: []string{"y"}, Split: one},
	{Op: ops.Matmul, Kernel: "ref.matmul", In: []string{"x", "w", "res"}, Out: []string{"y"}, Split: byRows},
	{Op: ops.AddBias, Kernel: "ref.add_bias", In: []string{"x", "bias"}, Out: []string{"y"}, Split: one},
	{Op: ops.Add, Kernel: "ref.add", In: []string{"a", "b"}, Out: []string{"y"}, Split: one},
	{Op: ops.Mul, Kernel: "ref.mul", In: []string{"a", "b"}, Out: []string{"y"}, Split: one},
	{Op: ops.SiLU, Kernel: "ref.silu", In: []string{"x"}, Out: []string{"y"}, Split: one},
	{Op: ops.GELUTanh, Kernel: "ref.gelu_tanh", In: []string{"x"}, Out: []string{"y"}, Split: one},
	{Op: ops.GELUErf, Kernel: "ref.gelu_erf", In: []string{"x"}, Out: []string{"y"}, Split: one},
	{Op: ops.Rope, Kernel: "ref.rope", In: []string{"x", "pos", "freqs"}, Out: []string{"y"}, Split: one},
	{Op: ops.KVWrite, Kernel: "ref.kv_write", In: []string{"cache", "x", "pos", "seq"}, Out: []string{""}, Split: one},
	{Op: ops.AttnScores, Kernel: "ref.attn_scores", In: []string{"q", "kcache", "pos", "seq"}, Out: []string{"y"}, Split: one},
	{Op: ops.Softmax, Kernel: "ref.softmax", In: []string{"x"}, Out: []string{"y"}, Split: one, Params: map[string]target.Value{"heads": heads}},
	{Op: ops.AttnValues, Kernel: "ref.attn_values", In: []string{"probs", "vcache", "pos", "seq"}, Out: []string{"y"}, Split: one},
	{Op: ops.SelectRows, Kernel: "select", In: []string{"x", "rows"}, Out: []string{"y"}, Split: one},
}

// heads returns the number of heads of scores.
func heads(n *graph.Node, _ target.Env) any { return n.Out[0].Type.Shape[1].N }

// fits returns why a row does not fit a node although its signature does; "" if it fits. A product
// fits once choose_kernels has named its kernels.
func fits(l *target.Lowering, n *graph.Node) string {
	if l.Matmuls != nil && n.Attr.Str("kernels") == "" {
		return "choose_kernels found no matmul kernel for it"
	}
	return ""
}
