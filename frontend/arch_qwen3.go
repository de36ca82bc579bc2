package frontend

import (
	"slices"

	"pesti/ops"
)

// qwen3: like qwen2 without the biases; q and k are normalized per head before RoPE (Yang et al. 2025,
// arXiv:2505.09388, section 2).
var qwen3 = arch{
	name:   "qwen3",
	layout: "halves",
	weights: slices.Concat(blockWeights, []weight{
		{"attn_q_norm.weight", required, perHead},
		{"attn_k_norm.weight", required, perHead},
	}),
	build: buildQwen3,
}

func buildQwen3(b *builder) {
	x := b.embed()
	for i := range b.p.Layers {
		b.block(i)
		q, k, v := b.qkv(b.norm(x, "attn_norm", "attn_norm.weight"))
		q = b.headNorm(q, "q_norm", "attn_q_norm.weight")
		k = b.headNorm(k, "k_norm", "attn_k_norm.weight")
		a := b.linear(b.attention(q, k, v), "attn_out", "attn_output.weight")
		x = b.op1(ops.Add, b.name("attn_res"), nil, x, a)
		h := b.gated(b.norm(x, "ffn_norm", "ffn_norm.weight"), ops.SiLU)
		x = b.op1(ops.Add, b.name("out"), nil, x, h)
	}
	b.head(x)
}
