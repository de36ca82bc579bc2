package plan

import (
	"fmt"
	"slices"
	"strings"
)

// cudaPrefix begins the names of the kernels that run on a CUDA device. A plan for CUDA uses these,
// and falls back to the reference kernels, which run on the host.
const cudaPrefix = "cuda."

// SOA is the layout in which all CUDA kernels read matrices.
const SOA = "soa"

// cudaKernels are the kernels of CUDA devices. A step is one launch, except attention, which takes
// up to two. Activations are float32. Products normalize x first if the step has a norm; in
// precision fast they also round x to q8x2, which the matmul kernel's name says.
var cudaKernels = []Signature{
	// y[m] = scale · dequantize(table[tokens[m]]), or of table[taken[−1−t]] if the token t is
	// negative
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
		cost:   costModel{flops: "M*n", partial: map[string]string{"table": "M*n"}},
	},
	// y[m] = w · x[m] / rms(x[m]), rounded if y is not f32. A q8x2 value is stored as arrays over
	// all rows: hi plane, lo plane, scales, sums.
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
		cost:   costModel{flops: "4*M*n"},
	},
	// y[m] = x[m] as q8x2
	{
		Name: "cuda.quantize",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "y", Dir: Out, Formats: []string{"q8x2"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("n")},
		Splits: []string{"one"},
		cost:   costModel{flops: "5*M*n"},
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
		cost:   costModel{flops: "5*M*n"},
	},
	// out_i[m] = w_i · x[m] (+ bias_i) (+ res[m]), i < 3, after the step's norm of x[m] if it has
	// one
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
		Params: []ParamSpec{count("k"), counts("n"), number("eps", 0, 1e6)}, // eps is used only with a norm
		Splits: []string{"one"},
		Rounds: "q8x2",
		cost:   costModel{macs: "M*n#*k"},
	},
	// y[m] = act(w0 · x[m]) ⊙ (w1 · x[m]), after the step's norm of x[m] if it has one
	{
		Name: "cuda.gated_mlp",
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
		cost:   costModel{macs: "2*M*n*k", flops: "14*M*n"},
	},
	// The same products in tiles of 64 tokens. Another step has normalized and rounded their
	// activations.
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
		cost:   costModel{macs: "M*n#*k"},
	},
	{
		Name: "cuda.gemm_gated_mlp",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32", "q8x2"}, Extent: "M*k"},
			{Role: "w0", Dir: WeightIn, Extent: "n,k", Matmul: true, Layout: SOA},
			{Role: "w1", Dir: WeightIn, Extent: "n,k", Matmul: true, Layout: SOA},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("k"), count("n"), word("act", activations...)},
		Splits: []string{"one"},
		cost:   costModel{macs: "2*M*n*k", flops: "14*M*n"},
	},
	// Attention as on the CPU, in one launch for few tokens and two for more. A page of a cache is
	// [kv_heads][16][head_dim] for both keys and values. The positions that a token sees are cut at
	// multiples of CUDASplit into at most "splits" parts; each part's partial result goes to the
	// scratch.
	{
		Name: "cuda.attention",
		Operands: slices.Insert(slices.Clone(cudaAttention), len(cudaAttention)-1,
			Operand{Role: "arrived", Table: Counters, Formats: []string{"i32"}, Extent: "M*kv_heads"}),
		Params:  append(slices.Clip(cudaAttentionParams), count("splits")),
		Rows:    "T",
		Splits:  []string{"one"},
		Scratch: "4*M*heads*splits*(head_dim + 2)",
		Rules:   append(slices.Clip(cudaAttentionRules), splitsHold),
		cost:    attentionCost,
	},
	// The same for 16 tokens at a time, with a running maximum.
	{
		Name:     "cuda.prefill",
		Operands: cudaAttention,
		Params:   cudaAttentionParams,
		Rows:     "T",
		Splits:   []string{"one"},
		Rules:    cudaAttentionRules,
		cost:     attentionCost,
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
		cost:   costModel{flops: "0", partial: map[string]string{"x": "M*n"}},
	},
	// ids[m] are the indices of the k greatest elements of x[m] in descending order, equal elements
	// by ascending index; values[m] are these elements. NaN and +Inf rank before all others. The id
	// of an element i that is not finite is −1−i. The kernel searches a row in "parts" parts.
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
		cost:    costModel{flops: "M*n"},
	},
	// y = x, for values that the caller reads
	{
		Name: "cuda.copy",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("n")},
		Splits: []string{"one"},
		cost:   costModel{flops: "0"},
	},
}

// Operands and parameters of both attention kernels.
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

// CUDAStoreApart is the number of tokens of a step above which a separate launch stores attention's
// keys and values. In a single launch, each block has to store the keys and values of all tokens
// before its own.
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

// CUDATop is the number of elements that a block of cuda.top searches.
const CUDATop = 4096

// CUDATopParts returns the number of parts of a row of n elements, and the largest k that cuda.top
// can find in it. One block merges the results of all parts, which bounds k.
func CUDATopParts(n int64) (parts, most int64) {
	parts = (n-1)/CUDATop + 1
	return parts, min(n, CUDATop/parts)
}

// CUDASplit is the number of positions in a split of attention. Splits begin at its multiples, so
// that the result's bits do not depend on the number of blocks.
const CUDASplit = 256

// CUDASplits returns the largest number of splits of the positions that one token sees.
func CUDASplits(positions, window int64) int64 {
	if window > 0 {
		return (min(positions, window)-1)/CUDASplit + 2 // a window begins anywhere
	}
	return (positions-1)/CUDASplit + 1
}

// wholeVectors requires rows of whole 4-element vectors, as norms read them.
func wholeVectors(s *Scope) error {
	if n := s.param("n"); n%4 != 0 {
		return fmt.Errorf("n is %d, expected a multiple of 4", n)
	}
	return nil
}

// headsFit requires heads of whole 8-element vectors that a block of threads has room for.
func headsFit(s *Scope) error {
	if d := s.param("head_dim"); d%8 != 0 || d > 256 {
		return fmt.Errorf("head_dim is %d, expected a multiple of 8 up to 256", d)
	}
	return nil
}

// topFits requires a k and a number of parts that one block can merge.
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

// splitsHold requires scratch for all splits of a row.
func splitsHold(s *Scope) error {
	if want := CUDASplits(s.param("positions"), s.param("window")); s.param("splits") != want {
		return fmt.Errorf("splits is %d, expected %d for %d positions and window %d", s.param("splits"), want, s.param("positions"), s.param("window"))
	}
	return nil
}

// IsCUDAKernel reports whether a kernel runs on a CUDA device.
func IsCUDAKernel(kernel string) bool { return strings.HasPrefix(kernel, cudaPrefix) }
