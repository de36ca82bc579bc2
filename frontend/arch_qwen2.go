package frontend

import "slices"

// qwen2: like llama, with biases on q, k and v and RoPE on halves (Yang et al. 2024,
// arXiv:2407.10671).
var qwen2 = arch{
	name:    "qwen2",
	layout:  "halves",
	weights: slices.Concat(blockWeights, qkvBiases),
	build:   (*builder).preNorm,
}
