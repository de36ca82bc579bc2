// Package cuda describes the CUDA target to lowering: how products read their operands, the kernel
// for each op, and the schedule templates of the programs.
//
// It imports graph, ops, exec/plan, lower/target, and lower/cpu for the reference kernels that the
// host runs. It does not import the kernels or their launches. A test in package conformance checks
// its tables against those of exec/cuda.
package cuda

import (
	"fmt"
	"slices"

	"pesti/exec/plan"
	"pesti/graph"
	"pesti/lower/cpu"
	"pesti/lower/target"
	"pesti/ops"
)

// Target returns the row of CUDA devices.
func Target() *target.Target {
	return &target.Target{
		Name: plan.CUDA, ISAs: plan.CUDAISAs, Caches: plan.CUDACacheFormats(), Threads: 1, Serial: true,
		Programs: programs, ActivationFormats: activationFormats, Layout: layout,
		Integers: []target.Rounding{target.Always(target.Q8x2)}, DefaultRounding: func(string) string { return target.Q8x2 },
		Kernels: Kernels, Reference: Reference(), Fits: fits, Copy: "cuda.copy", Top: "cuda.top",
	}
}

// Chunk is the number of tokens in a chunk. The tiles of the kernels for many tokens have as many columns.
const Chunk = 64

// programs returns three templates. "decode" takes one token of each sequence, and its launches are
// replayed as a CUDA graph. The second takes any number of tokens, eight at a time. The third takes
// whole chunks, with products and attention in tiles, which sum in another order.
func programs(b target.Bounds) []target.Program {
	list := target.Distinct(
		target.Program{Name: "decode", MaxTokens: min(b.Sequences, b.Ubatch), Matmul: "gemv", AllRows: true, Prologue: true},
		target.Program{Name: "small", MaxTokens: b.Ubatch, Matmul: "gemv", Prologue: true},
	)
	if whole := b.Ubatch / Chunk * Chunk; whole > 0 {
		list = append(list, target.Program{Name: "prefill", MaxTokens: whole, Chunk: Chunk, Matmul: "gemm", Kernels: Chunked, FloatGates: true})
	}
	return list
}

// activationFormats are the formats to which the matmul kernels themselves round activations.
var activationFormats = []target.ActivationFormat{
	{Format: target.Q8x2, Rounds: true, Integers: true, WhyNot: func(_ string, w *graph.Value) string {
		if cpu.Integer(w.Type.DType) && Reads(w) {
			return ""
		}
		return fmt.Sprintf("no integer kernel for %s of %v", w.Name, w.Type)
	}},
	{Format: target.F32, WhyNot: func(_ string, w *graph.Value) string {
		if Reads(w) {
			return ""
		}
		return fmt.Sprintf("no kernel for %s of %v", w.Name, w.Type)
	}},
}

// layout returns the layout of all matrices.
func layout(string, graph.DType, string) string { return plan.SOA }

// Reads reports whether the kernels can read a matrix: its type has a layout, and its rows consist
// of whole blocks.
func Reads(w *graph.Value) bool {
	l, ok := plan.LookupLayout(plan.SOA, string(w.Type.DType))
	return ok && target.Width(w)%l.Block == 0
}

var one = plan.Split{By: "one", Unit: 1}

// Kernels maps ops to this target's own kernels.
var Kernels = []target.Lowering{
	{Op: ops.GetRows, Kernel: "cuda.embed", In: []string{"table", "tokens"}, Out: []string{"y"}, Split: one, Params: target.Vocab},
	{Op: ops.GetPart, Kernel: "cuda.embed_part", In: []string{"table", "tokens"}, Out: []string{"y"}, Split: one},
	{Op: ops.RMSNorm, Kernel: "cuda.norm", In: []string{"x", "w"}, Out: []string{"y"}, Split: one},
	{Op: ops.NormAdd, Kernel: "cuda.norm_add", In: []string{"d", "w", "x"}, Out: []string{"y"}, Split: one},
	{Op: ops.SelectRows, Kernel: "cuda.select", In: []string{"x", "rows"}, Out: []string{"y"}, Split: one},
	{Op: ops.Add, Kernel: "cuda.sum", In: []string{"res", "x0"}, Out: []string{"y"}, Split: one},
	{Op: ops.Sum, Kernel: "cuda.sum", In: []string{"x0", "x1", "x2", "res"}, Out: []string{"y"}, Split: one},
	{Op: ops.Concat, Kernel: "cuda.concat", In: []string{"x0", "x1", "x2"}, Out: []string{"y"}, Split: one, Params: concatWidths},
	{Op: ops.Matmul, Kernel: "cuda.gemv", In: []string{"x", "w0", "res"}, Out: []string{"out0"}, Split: one, Matmuls: []string{"w0"}},
	{Op: ops.NormMatmul, Kernel: "cuda.gemv", In: []string{"x", "norm", "w0"}, Out: []string{"out0"}, Split: one, Matmuls: []string{"w0"}},
	{Op: ops.QKV, Kernel: "cuda.gemv", In: []string{"x", "w0", "w1", "w2", "bias0", "bias1", "bias2"}, Out: []string{"out0", "out1", "out2"}, Split: one, Matmuls: []string{"w0", "w1", "w2"}},
	{Op: ops.NormQKV, Kernel: "cuda.gemv", In: []string{"x", "norm", "w0", "w1", "w2", "bias0", "bias1", "bias2"}, Out: []string{"out0", "out1", "out2"}, Split: one, Matmuls: []string{"w0", "w1", "w2"}},
	{Op: ops.GatedMLP, Kernel: "cuda.gated_mlp", In: []string{"x", "w0", "w1"}, Out: []string{"y"}, Split: one, Matmuls: []string{"w0", "w1"}},
	{Op: ops.NormGatedMLP, Kernel: "cuda.gated_mlp", In: []string{"x", "norm", "w0", "w1"}, Out: []string{"y"}, Split: one, Matmuls: []string{"w0", "w1"}},
	{Op: ops.Attention, Kernel: "cuda.attention", In: []string{"q", "k", "v", "pos", "seq", "kcache", "vcache", "qnorm", "knorm", "freqs"}, Out: []string{"out", "", ""}, Split: one, Params: map[string]target.Value{"splits": splits}},
}

// Chunked maps ops to their kernels in the program for chunks, where these differ.
var Chunked = []target.Lowering{
	{Op: ops.Quantize, Kernel: "cuda.quantize", In: []string{"x"}, Out: []string{"y"}, Split: one},
	{Op: ops.NormQuantize, Kernel: "cuda.norm", In: []string{"x", "w"}, Out: []string{"y"}, Split: one},
	{Op: ops.Matmul, Kernel: "cuda.gemm", In: []string{"x", "w0", "res"}, Out: []string{"out0"}, Split: one, Matmuls: []string{"w0"}},
	{Op: ops.QKV, Kernel: "cuda.gemm", In: []string{"x", "w0", "w1", "w2", "bias0", "bias1", "bias2"}, Out: []string{"out0", "out1", "out2"}, Split: one, Matmuls: []string{"w0", "w1", "w2"}},
	{Op: ops.GatedMLP, Kernel: "cuda.gemm_gated_mlp", In: []string{"x", "w0", "w1"}, Out: []string{"y"}, Split: one, Matmuls: []string{"w0", "w1"}},
	{Op: ops.Attention, Kernel: "cuda.prefill", In: []string{"q", "k", "v", "pos", "seq", "kcache", "vcache", "qnorm", "knorm", "freqs"}, Out: []string{"out", "", ""}, Split: one},
}

// always lists the ops that run on the device in every plan.
var always = []*graph.Op{ops.SelectRows, ops.GetPart, ops.Sum, ops.Concat}

// Reference maps ops to the reference kernels that run on the host as fallbacks, and the ops of
// "always" to their device kernels.
func Reference() []target.Lowering {
	var table []target.Lowering
	for _, l := range cpu.Reference {
		if !slices.Contains(always, l.Op) {
			l.Split = one
			table = append(table, l)
		}
	}
	for _, l := range Kernels {
		if slices.Contains(always, l.Op) {
			table = append(table, l)
		}
	}
	return table
}

// fits returns why a row does not fit a node although its signature does; "" if it fits.
func fits(l *target.Lowering, n *graph.Node) string {
	switch n.Op {
	case ops.GetRows:
		if table := n.Operand("table"); !Reads(table) {
			return fmt.Sprintf("kernel %s reads no %v", l.Kernel, table.Type)
		}
	case ops.RMSNorm, ops.NormAdd:
		if width := target.Width(n.Out[0]); width%4 != 0 {
			return fmt.Sprintf("kernel %s takes rows of a multiple of 4 elements, found %d", l.Kernel, width)
		}
	case ops.Attention:
		if d := n.Attr.Int("head_dim"); d%8 != 0 || d > 256 {
			return fmt.Sprintf("kernel %s takes head_dim of a multiple of 8 up to 256, found %d", l.Kernel, d)
		}
	}
	if l.Matmuls != nil && n.Attr.Str("kernels") == "" {
		return "choose_kernels found no matmul kernel for it"
	}
	return ""
}

// splits returns the largest number of splits of an attention's positions.
func splits(n *graph.Node, env target.Env) any {
	positions, _ := env.Positions(n.Operand("kcache"))
	return plan.CUDASplits(positions, n.Attr.Int("window"))
}

// concatWidths are the widths of a concatenation's operands, 0 for an absent one.
var concatWidths = map[string]target.Value{"n0": operandWidth("x0"), "n1": operandWidth("x1"), "n2": operandWidth("x2")}

func operandWidth(name string) target.Value {
	return func(n *graph.Node, _ target.Env) any {
		if v := n.Operand(name); v != nil {
			return target.Width(v)
		}
		return int64(0)
	}
}
