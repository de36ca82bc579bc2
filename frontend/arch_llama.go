package frontend

import "slices"

// llama: RMSNorm, grouped-query attention with RoPE on adjacent pairs, SwiGLU
// (Touvron et al. 2023, arXiv:2302.13971). The GGUF converter permutes q and k so that the
// pairs are adjacent. Some derived models have biases on q, k and v.
var llama = arch{
	name:    "llama",
	layout:  "pairs",
	weights: slices.Concat(blockWeights, qkvBiases),
	build:   (*builder).preNorm,
}
