package plan

import "slices"

// Kernels is the signature table, one row per kernel. In formulas M is the number of rows the step
// works on (T or R, see Step.Rows), P the pages of one sequence's table, and the rest are
// parameters of the step. Every kernel computes each row independently of the others. The
// documentation of package exec/cpu/kernel describes how to add a row.
func Kernels() []Signature { return kernels }

// The words that parameters take.
var (
	activations = []string{"silu", "gelu_tanh", "gelu_erf"}
	rotations   = []string{"pairs", "halves"} // RoPE rotates elements (2i, 2i+1) or (i, i+rot/2)
)

// Parameters of norms, RoPE and attention. The ranges are far wider than any model needs; outside
// them almost every result is NaN.
var (
	epsilon   = number("eps", 1e-30, 1e6)
	base      = number("base", 0, 1e18) // rule rotationTurns decides whether it may be 0
	freqScale = number("freq_scale", 1e-9, 1e9)
	rampLow   = number("ramp_low", 0, 1e9)
	rampHigh  = number("ramp_high", 0, 1e9)
	magnitude = number("magnitude", 1e-3, 1e3)
	attnScale = number("scale", -1e6, 1e6) // of scores
)

var kernels = slices.Concat(cpuKernels, cudaKernels, partKernels, []Signature{transfer})

var cpuKernels = []Signature{
	// y[m] = scale · dequantize(table[tokens[m]])
	{
		Name: "embed",
		Operands: []Operand{
			{Role: "tokens", Input: "tokens", Formats: []string{"i32"}, Extent: "M"},
			{Role: "table", Dir: WeightIn, Extent: "vocab,n", Gather: true},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("n"), count("vocab"), factor("scale")},
		Rows:   "T",
		Splits: []string{"tokens", "each", "one"},
		cost:   costModel{flops: "M*n", partial: map[string]string{"table": "M*n"}},
	},
	// y[m] = w · x[m] / rms(x[m]), rounded to y's format if that is not f32
	{
		Name: "norm",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "w", Dir: WeightIn, Formats: []string{"f32"}, Extent: "n"},
			{Role: "y", Dir: Out, Formats: []string{"f32", "q8x2", "q8", "bf16"}, Extent: "M*n", Alias: "x"},
		},
		Params:  []ParamSpec{count("n"), epsilon},
		Splits:  []string{"tokens", "each", "one"},
		Scratch: "4*n",
		cost:    costModel{flops: "4*M*n"},
	},
	// y[m] = x[m] + w · d[m] / rms(d[m]): a post-norm and the residual addition after it
	{
		Name: "norm_add",
		Operands: []Operand{
			{Role: "d", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "w", Dir: WeightIn, Formats: []string{"f32"}, Extent: "n"},
			{Role: "x", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n", Alias: "x"},
		},
		Params: []ParamSpec{count("n"), epsilon},
		Splits: []string{"tokens", "each", "one"},
		cost:   costModel{flops: "5*M*n"},
	},
	// y[m] = x[m] as q8x2, q8 or bf16
	{
		Name: "quantize",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "y", Dir: Out, Formats: []string{"q8x2", "q8", "bf16"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("n")},
		Splits: []string{"tokens", "each", "one"},
		cost:   costModel{flops: "5*M*n"},
	},
	// out_i[m] = w_i · x[m] (+ bias_i) (+ res[m]), i < 3; each w_i names its own matmul kernel
	{
		Name: "matmul_group",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32", "q8x2", "q8", "bf16"}, Extent: "M*k"},
			{Role: "w", Dir: WeightIn, Extent: "n#,k", Repeat: true, Matmul: true},
			{Role: "bias", Dir: WeightIn, Formats: []string{"f32"}, Extent: "n#", Optional: true, Repeat: true},
			{Role: "res", Formats: []string{"f32"}, Extent: "M*n0", Optional: true},
			{Role: "out", Dir: Out, Formats: []string{"f32"}, Extent: "M*n#", Alias: "res", Repeat: true},
		},
		Params:  []ParamSpec{count("k"), counts("n")},
		Splits:  []string{"rows", "one"},
		Scratch: "40*k + 24576",
		Tiles:   "256*M + 148736",
		cost:    costModel{macs: "M*n#*k"},
	},
	// y[m] = act(gate · x[m]) ⊙ (up · x[m]), rounded if y is q8x2, q8 or bf16; w0 is gate, w1 is up
	{
		Name: "gated_mlp",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32", "q8x2", "q8", "bf16"}, Extent: "M*k"},
			{Role: "w0", Dir: WeightIn, Extent: "n,k", Matmul: true},
			{Role: "w1", Dir: WeightIn, Extent: "n,k", Matmul: true},
			{Role: "y", Dir: Out, Formats: []string{"f32", "q8x2", "q8", "bf16"}, Extent: "M*n"},
		},
		Params:  []ParamSpec{count("k"), count("n"), word("act", activations...)},
		Splits:  []string{"rows", "one"},
		Scratch: "40*k + 24576",
		Tiles:   "256*M + 148736",
		cost:    costModel{macs: "2*M*n*k", flops: "14*M*n"},
	},
	// Norms (optional) and RoPE on q and k, KV write, scores, softmax, values, for each token over
	// the cached positions of its sequence and the tokens before it in this step. Workers share
	// (head, token block) pairs. Each worker also stores its heads' new keys and values in its
	// scratch, in the cache's format, and so never reads what another worker writes; one worker
	// writes each head's part of the cache. In a page of the cache, the part of each head is
	// contiguous: keys as [head_dim][16], values as [16][head_dim]. A layer with a window keeps its
	// positions in a ring (ring = 1).
	{
		Name: "attention",
		Operands: []Operand{
			{Role: "q", Formats: []string{"f32"}, Extent: "M*heads*head_dim"},
			{Role: "k", Formats: []string{"f32"}, Extent: "M*kv_heads*head_dim"},
			{Role: "v", Formats: []string{"f32"}, Extent: "M*kv_heads*head_dim"},
			{Role: "pos", Input: "pos", Formats: []string{"i32"}, Extent: "M"},
			{Role: "seq", Input: "seq", Formats: []string{"i32"}, Extent: "M"},
			{Role: "pages", Input: "pages", Formats: []string{"i32"}, Extent: "S*P"},
			cacheByHead("kcache", InOut, "kv_heads*head_dim", "kv_heads"),
			cacheByHead("vcache", InOut, "kv_heads*head_dim", "kv_heads"),
			{Role: "qnorm", Dir: WeightIn, Formats: []string{"f32"}, Extent: "head_dim", Optional: true},
			{Role: "knorm", Dir: WeightIn, Formats: []string{"f32"}, Extent: "head_dim", Optional: true},
			{Role: "freqs", Dir: WeightIn, Formats: []string{"f32"}, Extent: "rot/2", Optional: true},
			{Role: "out", Dir: Out, Formats: []string{"f32"}, Extent: "M*heads*head_dim"},
		},
		Params: []ParamSpec{count("heads"), count("kv_heads"), count("head_dim"), amount("rot"),
			count("positions"), amount("window"), amount("ring"),
			base, freqScale, rampLow, rampHigh, magnitude, attnScale,
			number("eps", 0, 1e6), word("layout", rotations...)}, // eps is used only with a norm
		Rows:    "T",
		Splits:  []string{"heads", "one"},
		Scratch: "4*(97*head_dim + 240 + heads*(32*head_dim + 544) + M*(2*head_dim + rot))",
		Rules:   []Rule{headsDivide, rotationFits, rotationTurns, cacheHolds, ringHasWindow},
		cost:    attentionCost,
	},
	// y[r] = x[rows[r]]
	{
		Name: "select",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "T*n"},
			{Role: "rows", Input: "rows", Formats: []string{"i32"}, Extent: "M"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("n")},
		Rows:   "R",
		Splits: []string{"tokens", "each", "one"},
		cost:   costModel{flops: "0", partial: map[string]string{"x": "M*n"}},
	},
	// y = x, for values that the caller reads
	{
		Name: "copy",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("n")},
		Splits: []string{"tokens", "one"},
		cost:   costModel{flops: "0"},
	},

	// The reference kernels, one for each unfused op. A plan falls back to them if no other kernel
	// fits. Each computes the function of the same name in package ops/ref.
	{
		Name: "ref.get_rows",
		Operands: []Operand{
			{Role: "table", Dir: WeightIn, Extent: "vocab,n", Gather: true},
			{Role: "ids", Input: "tokens", Formats: []string{"i32"}, Extent: "M"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n"},
		},
		Params: []ParamSpec{count("n"), count("vocab"), factor("scale")},
		Rows:   "T",
		Splits: []string{"one"},
		cost:   costModel{flops: "M*n", partial: map[string]string{"table": "M*n"}},
	},
	refUnary("ref.scale", "M*n", factor("factor")),
	{
		Name: "ref.rms_norm",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "w", Dir: WeightIn, Formats: []string{"f32"}, Extent: "group"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n", Alias: "x"},
		},
		Params: []ParamSpec{count("n"), count("group"), epsilon},
		Splits: []string{"one"},
		Rules:  []Rule{groupDivides},
		cost:   costModel{flops: "4*M*n"},
	},
	{
		Name: "ref.matmul",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*k"},
			{Role: "w", Dir: WeightIn, Extent: "n,k"},
			{Role: "res", Formats: []string{"f32"}, Extent: "M*n", Optional: true},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n", Alias: "res"},
		},
		Params:  []ParamSpec{count("k"), count("n")},
		Splits:  []string{"rows", "one"},
		Scratch: "4*k",
		cost:    costModel{macs: "M*n*k"},
	},
	{
		Name: "ref.add_bias",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "bias", Dir: WeightIn, Formats: []string{"f32"}, Extent: "n"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n", Alias: "x"},
		},
		Params: []ParamSpec{count("n")},
		Splits: []string{"one"},
		cost:   costModel{flops: "M*n"},
	},
	refBinary("ref.add", "M*n"),
	refBinary("ref.mul", "M*n"),
	refUnary("ref.silu", "13*M*n"),
	refUnary("ref.gelu_tanh", "20*M*n"),
	refUnary("ref.gelu_erf", "14*M*n"),
	{
		Name: "ref.rope",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*heads*head_dim"},
			{Role: "pos", Input: "pos", Formats: []string{"i32"}, Extent: "M"},
			{Role: "freqs", Dir: WeightIn, Formats: []string{"f32"}, Extent: "rot/2", Optional: true},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*heads*head_dim", Alias: "x"},
		},
		Params: []ParamSpec{count("heads"), count("head_dim"), amount("rot"),
			base, freqScale, rampLow, rampHigh, magnitude, word("layout", rotations...)},
		Rows:   "T",
		Splits: []string{"one"},
		Rules:  []Rule{rotationFits, rotationTurns},
		cost:   costModel{flops: "3*M*heads*head_dim"},
	},
	{
		Name: "ref.kv_write",
		Operands: []Operand{
			cache("cache", InOut, "width"),
			{Role: "x", Formats: []string{"f32"}, Extent: "M*width"},
			{Role: "pos", Input: "pos", Formats: []string{"i32"}, Extent: "M"},
			{Role: "seq", Input: "seq", Formats: []string{"i32"}, Extent: "M"},
			{Role: "pages", Input: "pages", Formats: []string{"i32"}, Extent: "S*P"},
		},
		Params: []ParamSpec{count("width"), count("positions"), amount("ring")},
		Rows:   "T",
		Splits: []string{"one"},
		Rules:  []Rule{cacheHolds},
		cost:   costModel{flops: "0", partial: map[string]string{"cache": "0"}, writes: map[string]string{"cache": "M*width"}},
	},
	{
		Name: "ref.attn_scores",
		Operands: []Operand{
			{Role: "q", Formats: []string{"f32"}, Extent: "M*heads*head_dim"},
			cache("kcache", In, "kv_heads*head_dim"),
			{Role: "pos", Input: "pos", Formats: []string{"i32"}, Extent: "M"},
			{Role: "seq", Input: "seq", Formats: []string{"i32"}, Extent: "M"},
			{Role: "pages", Input: "pages", Formats: []string{"i32"}, Extent: "S*P"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*heads*C"},
		},
		Params: []ParamSpec{count("heads"), count("kv_heads"), count("head_dim"),
			count("positions"), amount("window"), amount("ring"), attnScale},
		Rows:    "T",
		Splits:  []string{"one"},
		Scratch: "4*kv_heads*head_dim",
		Rules:   []Rule{headsDivide, cacheHolds, ringHasWindow},
		cost:    costModel{macs: "M*heads*C*head_dim", partial: map[string]string{"kcache": "S*C*kv_heads*head_dim"}},
	},
	{
		Name: "ref.softmax",
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*heads*C"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*heads*C", Alias: "x"},
		},
		Params: []ParamSpec{count("heads")},
		Rows:   "T",
		Splits: []string{"one"},
		cost:   costModel{flops: "12*M*heads*C"},
	},
	{
		Name: "ref.attn_values",
		Operands: []Operand{
			{Role: "probs", Formats: []string{"f32"}, Extent: "M*heads*C"},
			cache("vcache", In, "kv_heads*head_dim"),
			{Role: "pos", Input: "pos", Formats: []string{"i32"}, Extent: "M"},
			{Role: "seq", Input: "seq", Formats: []string{"i32"}, Extent: "M"},
			{Role: "pages", Input: "pages", Formats: []string{"i32"}, Extent: "S*P"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*heads*head_dim"},
		},
		Params: []ParamSpec{count("heads"), count("kv_heads"), count("head_dim"),
			count("positions"), amount("window"), amount("ring")},
		Rows:    "T",
		Splits:  []string{"one"},
		Scratch: "4*kv_heads*head_dim + 8*head_dim",
		Rules:   []Rule{headsDivide, cacheHolds, ringHasWindow},
		cost:    costModel{macs: "M*heads*C*head_dim", partial: map[string]string{"vcache": "S*C*kv_heads*head_dim"}},
	},
}

// cacheFormats are the formats that a plan may keep its caches in.
var cacheFormats = []string{"f32", "f16", "f8_e4m3", "q8_0"}

// CacheFormats returns the formats of caches.
func CacheFormats() []string { return slices.Clone(cacheFormats) }

// CUDACacheFormats returns the formats of caches on CUDA devices.
func CUDACacheFormats() []string { return slices.Clone(cudaCacheFormats) }

// cache returns a state operand with rows of width elements.
func cache(role string, dir Dir, width string) Operand {
	return Operand{Role: role, Dir: dir, Formats: cacheFormats, Width: width, Extent: "S*positions*" + width}
}

// cacheByHead returns a cache operand in whose pages the part of each head is contiguous.
func cacheByHead(role string, dir Dir, width, heads string) Operand {
	o := cache(role, dir, width)
	o.Heads = heads
	return o
}

// refUnary returns the signature of an elementwise reference kernel of one operand. flops counts its operations, an
// exponential as 10.
func refUnary(name, flops string, params ...ParamSpec) Signature {
	return Signature{
		Name: name,
		Operands: []Operand{
			{Role: "x", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n", Alias: "x"},
		},
		Params: append([]ParamSpec{count("n")}, params...),
		Splits: []string{"one"},
		cost:   costModel{flops: flops},
	}
}

// refBinary returns the signature of an elementwise reference kernel of two operands. flops counts its operations.
func refBinary(name, flops string) Signature {
	return Signature{
		Name: name,
		Operands: []Operand{
			{Role: "a", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "b", Formats: []string{"f32"}, Extent: "M*n"},
			{Role: "y", Dir: Out, Formats: []string{"f32"}, Extent: "M*n", Alias: "a"},
		},
		Params: []ParamSpec{count("n")},
		Splits: []string{"one"},
		cost:   costModel{flops: flops},
	}
}
