// Package cuda is what the CUDA target offers to lowering: how products read their operands, the
// kernel for each op, and the schedule templates of the programs.
//
// It imports graph, ops, exec/plan, lower/target, and of lower/cpu what the host computes where there is
// no kernel. It knows nothing of how kernels are written or
// launched; a test in package conformance checks its tables against those of exec/cuda.
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

// Chunk is how many tokens the kernels for many tokens take at a time: the columns of their tiles.
const Chunk = 64

// programs are one for a token of each sequence, whose launches are replayed as a graph, one for any
// number of tokens, which takes them eight at a time, and one for whole chunks, whose products and
// attention are in tiles, which add in another order.
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

// ways are the formats to which products round their activations by themselves.
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

// layout is the one that all matrices are in.
func layout(string, graph.DType, string) string { return plan.SOA }

// Reads reports whether kernels read a matrix: its type has a layout, and its rows are whole blocks
// of it.
func Reads(w *graph.Value) bool {
	l, ok := plan.LookupLayout(plan.SOA, string(w.Type.DType))
	return ok && target.Width(w)%l.Block == 0
}

var one = plan.Split{By: "one", Unit: 1}

// Kernels is the table of ops that have a kernel of their own on this target.
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
	{Op: ops.GatedMLP, Kernel: "cuda.gated", In: []string{"x", "w0", "w1"}, Out: []string{"y"}, Split: one, Matmuls: []string{"w0", "w1"}},
	{Op: ops.NormGatedMLP, Kernel: "cuda.gated", In: []string{"x", "norm", "w0", "w1"}, Out: []string{"y"}, Split: one, Matmuls: []string{"w0", "w1"}},
	{Op: ops.Attention, Kernel: "cuda.attention", In: []string{"q", "k", "v", "pos", "seq", "kcache", "vcache", "qnorm", "knorm", "freqs"}, Out: []string{"out", "", ""}, Split: one, Params: map[string]target.Value{"splits": splits}},
}

// Chunked is the table of ops that have another kernel in the program for chunks.
var Chunked = []target.Lowering{
	{Op: ops.Quantize, Kernel: "cuda.quantise", In: []string{"x"}, Out: []string{"y"}, Split: one},
	{Op: ops.NormQuantize, Kernel: "cuda.norm", In: []string{"x", "w"}, Out: []string{"y"}, Split: one},
	{Op: ops.Matmul, Kernel: "cuda.gemm", In: []string{"x", "w0", "res"}, Out: []string{"out0"}, Split: one, Matmuls: []string{"w0"}},
	{Op: ops.QKV, Kernel: "cuda.gemm", In: []string{"x", "w0", "w1", "w2", "bias0", "bias1", "bias2"}, Out: []string{"out0", "out1", "out2"}, Split: one, Matmuls: []string{"w0", "w1", "w2"}},
	{Op: ops.GatedMLP, Kernel: "cuda.gemm_gated", In: []string{"x", "w0", "w1"}, Out: []string{"y"}, Split: one, Matmuls: []string{"w0", "w1"}},
	{Op: ops.Attention, Kernel: "cuda.prefill", In: []string{"q", "k", "v", "pos", "seq", "kcache", "vcache", "qnorm", "knorm", "freqs"}, Out: []string{"out", "", ""}, Split: one},
}

// always are the ops that run on the device in any case.
var always = []*graph.Op{ops.SelectRows, ops.GetPart, ops.Sum, ops.Concat}

// Reference is the table of kernels that run on the host where none fits, each of which is a
// fallback, and of ops that always run on the device.
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

// fits says why a row is not for a node, beyond what its signature says.
func fits(l *target.Lowering, n *graph.Node) string {
	switch n.Op {
	case ops.GetRows:
		if !Reads(n.In[0]) {
			return fmt.Sprintf("kernel %s reads no %v", l.Kernel, n.In[0].Type)
		}
	case ops.RMSNorm, ops.NormAdd:
		if width := target.Width(n.In[0]); width%4 != 0 {
			return fmt.Sprintf("kernel %s takes rows of multiples of 4 elements, not %d", l.Kernel, width)
		}
	case ops.Attention:
		if d := n.Attr.Int("head_dim"); d%8 != 0 || d > 256 {
			return fmt.Sprintf("kernel %s takes head_dim of multiples of 8 up to 256, not %d", l.Kernel, d)
		}
	}
	if l.Matmuls != nil && n.Attr.Str("kernels") == "" {
		return "choose_kernels found no matmul kernel for it"
	}
	return ""
}

// splits are the most parts that the positions of an attention are cut into.
func splits(n *graph.Node, env target.Env) any {
	positions, _ := env.Positions(n.Operand("kcache"))
	return plan.CUDASplits(positions, n.Attr.Int("window"))
}

// concatWidths are those of the operands, 0 where there is none.
var concatWidths = map[string]target.Value{"n0": operandWidth(0), "n1": operandWidth(1), "n2": operandWidth(2)}

func operandWidth(i int) target.Value {
	return func(n *graph.Node, _ target.Env) any {
		if n.In[i] == nil {
			return int64(0)
		}
		return target.Width(n.In[i])
	}
}
