package plan

import (
	"fmt"
	"slices"
	"strings"
)

// cudaPrefix begins the names of the kernels that run on a CUDA device. A plan for one has these, and
// where there is none the reference kernels, which run on the host.
const cudaPrefix = "cuda."

// SOA is the layout of matrices on CUDA devices, in which all kernels there read them.
const SOA = "soa"

// cudaKernels are the kernels of CUDA devices. A step is one launch, of attention two at most. Activations are float32; products
// norm x first where there is a norm, and in precision fast round it to q8x2 by themselves, which the
// names of their products tell.
var cudaKernels = []Signature{
	// y[m] = scale · dequantize(table[tokens[m]]), for a token t below 0 of table[taken[−1−t]]
	{
		Name: "cuda.embed",
		Operands: []Operand{
			{Role: "tokens", Input: "tokens", Formats: []string{"i32"}, Extent: "M"},
			{Role: "taken", Kept: Argmax, Formats: []string{"i32"}, Extent: "R", Optional: true},
			{Role: "table", Dir: WeightIn, Extent: "vocab,n", Gather: true, Layout: SOA},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("n"), count("vocab"), factor("scale")},
		Rows:   "T",
		Splits: []string{"one"},
	},
	// y[m] = w · x[m] / rms(x[m]), rounded where y is not f32. A value in q8x2 has its planes, scales and
	// sums one behind the other, each of all rows.
	{
		Name: "cuda.norm",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "w", Dir: WeightIn, Formats: []string{"f32"}, Extent: "n"},
			{Role: "y", Dir: Out, Formats: []string{"f32", "q8x2"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("n"), epsilon},
		Splits: []string{"one"},
		Rules:  []Rule{wholeVectors},
	},
	// y[m] = x[m] as q8x2
	{
		Name: "cuda.quantise",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "y", Dir: Out, Formats: []string{"q8x2"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("n")},
		Splits: []string{"one"},
	},
	// y[m] = x[m] + w · d[m] / rms(d[m])
	{
		Name: "cuda.norm_add",
		Operands: []Operand{
			{Role: "d", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "w", Dir: WeightIn, Formats: []string{"f32"}, Extent: "n"},
			{Role: "x", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n", Alias: "x"},
		},
		Params: []ParamSpec{count("n"), epsilon},
		Splits: []string{"one"},
		Rules:  []Rule{wholeVectors},
	},
	// out_i[m] = w_i · x[m] (+ bias_i) (+ res[m]), i < 3, where there is a norm with x[m] normed by it
	{
		Name: "cuda.gemv",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*k"},
			{Role: "norm", Dir: WeightIn, Formats: []string{"f32"}, Extent: "k", Optional: true},
			{Role: "w", Dir: WeightIn, Extent: "n#,k", Repeat: true, Matmul: true, Layout: SOA},
			{Role: "bias", Dir: WeightIn, Formats: []string{"f32"}, Extent: "n#", Optional: true, Repeat: true},
			{Role: "res", Formats: []string{"f32"}, Extent: "M*n0", Optional: true},
			{Role: "out", Dir: Out, Formats: []string{"f32"}, Extent: "M*n#", Alias: "res", Repeat: true},
		},
		Params: []ParamSpec{count("k"), counts("n"), number("eps", 0, 1e6)}, // eps matters with a norm alone
		Splits: []string{"one"},
		Rounds: "q8x2",
	},
	// y[m] = act(w0 · x[m]) ⊙ (w1 · x[m]), where there is a norm with x[m] normed by it
	{
		Name: "cuda.gated",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*k"},
			{Role: "norm", Dir: WeightIn, Formats: []string{"f32"}, Extent: "k", Optional: true},
			{Role: "w0", Dir: WeightIn, Extent: "n,k", Matmul: true, Layout: SOA},
			{Role: "w1", Dir: WeightIn, Extent: "n,k", Matmul: true, Layout: SOA},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("k"), count("n"), word("act", activations...), number("eps", 0, 1e6)},
		Splits: []string{"one"},
		Rounds: "q8x2",
	},
	// The same products in tiles of 64 tokens, of activations that another step has normed and rounded.
	{
		Name: "cuda.gemm",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32", "q8x2"}, Extent: "M*k"},
			{Role: "w", Dir: WeightIn, Extent: "n#,k", Repeat: true, Matmul: true, Layout: SOA},
			{Role: "bias", Dir: WeightIn, Formats: []string{"f32"}, Extent: "n#", Optional: true, Repeat: true},
			{Role: "res", Formats: []string{"f32"}, Extent: "M*n0", Optional: true},
			{Role: "out", Dir: Out, Formats: []string{"f32"}, Extent: "M*n#", Alias: "res", Repeat: true},
		},
		Params: []ParamSpec{count("k"), counts("n")},
		Splits: []string{"one"},
	},
	{
		Name: "cuda.gemm_gated",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32", "q8x2"}, Extent: "M*k"},
			{Role: "w0", Dir: WeightIn, Extent: "n,k", Matmul: true, Layout: SOA},
			{Role: "w1", Dir: WeightIn, Extent: "n,k", Matmul: true, Layout: SOA},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("k"), count("n"), word("act", activations...)},
		Splits: []string{"one"},
	},
	// Attention as on the CPU, in one launch for few tokens and two for more, but that a page of a cache is [kv_heads][16][head_dim] for keys and
	// values alike. The positions that a token sees are cut at multiples of CUDASplit into at most
	// so many splits, each of which leaves its part of the result in the scratch.
	{
		Name: "cuda.attention",
		Operands: slices.Insert(slices.Clone(cudaAttention), len(cudaAttention)-1,
			Operand{Role: "arrived", Table: Counters, Formats: []string{"i32"}, Extent: "M*kv_heads"}),
		Params:  append(slices.Clip(cudaAttentionParams), count("splits")),
		Rows:    "T",
		Splits:  []string{"one"},
		Scratch: "4*M*heads*splits*(head_dim + 2)",
		Rules:   append(slices.Clip(cudaAttentionRules), splitsHold),
	},
	// The same for 16 tokens at a time, with a running maximum.
	{
		Name:     "cuda.prefill",
		Operands: cudaAttention,
		Params:   cudaAttentionParams,
		Rows:     "T",
		Splits:   []string{"one"},
		Rules:    cudaAttentionRules,
	},
	// y[r] = x[rows[r]]
	{
		Name: "cuda.select",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "T*n"},
			{Role: "rows", Input: "rows", Formats: []string{"i32"}, Extent: "M"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("n")},
		Rows:   "R",
		Splits: []string{"one"},
	},
	// ids[m] are the places of the k greatest elements of x[m], the greatest first, of equal ones the
	// first first, and values[m] are these. NaN and +Inf rank before all others; of an element at i that
	// is not finite the id is −1−i. A row is looked through in so many parts.
	{
		Name: "cuda.top",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "arrived", Table: Counters, Formats: []string{"i32"}, Extent: "M"},
			{Role: "ids", Dir: Out, Formats: []string{"i32"}, Extent: "M*k"},
			{Role: "values", Dir: Out, Formats: []string{"f32"}, Extent: "M*k", Optional: true},
		},
		Params:  []ParamSpec{count("n"), count("k"), count("parts")},
		Rows:    "R",
		Splits:  []string{"one"},
		Scratch: "4*M*parts*k",
		Rules:   []Rule{topFits},
	},
	// y = x, for values that the caller wants to see
	{
		Name: "cuda.copy",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("n")},
		Splits: []string{"one"},
	},
}

// What the two kernels of attention have in common.
var (
	cudaAttention = []Operand{
		{Role: "q", Formats: []string{"f32"}, Extent: "M*heads*head_dim"},
		{Role: "k", Formats: []string{"f32"}, Extent: "M*kv_heads*head_dim"},
		{Role: "v", Formats: []string{"f32"}, Extent: "M*kv_heads*head_dim"},
		{Role: "pos", Input: "pos", Formats: []string{"i32"}, Extent: "M"},
		{Role: "seq", Input: "seq", Formats: []string{"i32"}, Extent: "M"},
		{Role: "pages", Input: "pages", Formats: []string{"i32"}, Extent: "S*P"},
		cudaCache("kcache"),
		cudaCache("vcache"),
		{Role: "qnorm", Dir: WeightIn, Formats: []string{"f32"}, Extent: "head_dim", Optional: true},
		{Role: "knorm", Dir: WeightIn, Formats: []string{"f32"}, Extent: "head_dim", Optional: true},
		{Role: "freqs", Dir: WeightIn, Formats: []string{"f32"}, Extent: "rot/2", Optional: true},
		{Role: "sines", Table: Sines, Formats: []string{"f32"}, Extent: "C*rot", Optional: true, When: "rot"},
		{Role: "out", Dir: Out, Formats: []string{"f32"}, Extent: "M*heads*head_dim"},
	}
	cudaAttentionParams = []ParamSpec{count("heads"), count("kv_heads"), count("head_dim"), amount("rot"),
		count("positions"), amount("window"), amount("ring"),
		base, freqScale, rampLow, rampHigh, magnitude, attnScale,
		number("eps", 0, 1e6), word("layout", rotations...)}
	cudaAttentionRules = []Rule{headsDivide, rotationFits, rotationTurns, cacheHolds, ringHasWindow, headsFit}
)

// cudaCacheFormats are the formats of caches on CUDA devices.
var cudaCacheFormats = []string{"f32", "f16", "f8_e4m3"}

func cudaCache(role string) Operand {
	o := cacheByHead(role, InOut, "kv_heads*head_dim", "kv_heads")
	o.Formats = cudaCacheFormats
	return o
}

// CUDAStoreApart is the number of tokens of a step above which attention stores keys and values by a launch
// of their own: each block of it would store those of all tokens before its own.
const CUDAStoreApart = 8

// launches returns the most launches of a step of a program on a device.
func launches(g *Program, st *Step) int {
	switch {
	case !IsCUDAKernel(st.Kernel):
		return 0
	case st.Kernel == "cuda.prefill", st.Kernel == "cuda.attention" && g.MaxT > CUDAStoreApart:
		return 2
	}
	return 1
}

// CUDATop is how many elements a block of cuda.top looks through.
const CUDATop = 4096

// CUDATopParts returns into how many parts a row of n elements is cut, and how many of the greatest ones
// can be found of it: what the parts have found is looked through by one block.
func CUDATopParts(n int64) (parts, most int64) {
	parts = (n-1)/CUDATop + 1
	return parts, min(n, CUDATop/parts)
}

// CUDASplit is how many positions a block of attention takes: parts of a row lie at its multiples, so
// that bits do not depend on how many blocks there are.
const CUDASplit = 256

// CUDASplits returns the most parts that the positions which a token sees are cut into.
func CUDASplits(positions, window int64) int64 {
	if window > 0 {
		return (min(positions, window)-1)/CUDASplit + 2 // a window begins anywhere
	}
	return (positions-1)/CUDASplit + 1
}

// wholeVectors: rows of norms are read four elements at a time.
func wholeVectors(s *Scope) error {
	if n := s.param("n"); n%4 != 0 {
		return fmt.Errorf("n is %d, expected a multiple of 4", n)
	}
	return nil
}

// headsFit: heads are read eight elements at a time, up to what a block of threads has room for.
func headsFit(s *Scope) error {
	if d := s.param("head_dim"); d%8 != 0 || d > 256 {
		return fmt.Errorf("head_dim is %d, expected a multiple of 8 up to 256", d)
	}
	return nil
}

// topFits: a block finds the greatest of all parts.
func topFits(s *Scope) error {
	parts, most := CUDATopParts(s.param("n"))
	switch k := s.param("k"); {
	case s.param("parts") != parts:
		return fmt.Errorf("parts is %d, expected %d for rows of %d", s.param("parts"), parts, s.param("n"))
	case k > most:
		return fmt.Errorf("k is %d, expected at most %d for rows of %d", k, most, s.param("n"))
	}
	return nil
}

// splitsHold: there is room for all parts of a row.
func splitsHold(s *Scope) error {
	if want := CUDASplits(s.param("positions"), s.param("window")); s.param("splits") != want {
		return fmt.Errorf("splits is %d, expected %d for %d positions and window %d", s.param("splits"), want, s.param("positions"), s.param("window"))
	}
	return nil
}

// IsCUDAKernel reports whether a kernel runs on a CUDA device.
func IsCUDAKernel(kernel string) bool { return strings.HasPrefix(kernel, cudaPrefix) }
