package frontend

import (
	"math"
	"slices"

	"pesti/graph"
	"pesti/ops"
)

// gemma3: embeddings scaled by √width, RMSNorm on q and k before RoPE, norms after attention
// and after the feed-forward, tanh GELU, and mostly sliding-window layers: every sixth one
// attends to the whole context with its own RoPE base (Gemma 3 report, 2025, arXiv:2503.19786).
var gemma3 = arch{
	name:    "gemma3",
	layout:  "halves",
	windows: true,
	weights: slices.Concat(blockWeights, []weight{
		{"attn_q_norm.weight", required, perHead},
		{"attn_k_norm.weight", required, perHead},
		{"post_attention_norm.weight", required, perEmbd},
		{"post_ffw_norm.weight", required, perEmbd},
	}),
	params: gemma3Params,
	build:  buildGemma3,
}

const (
	gemma3Pattern   = 6     // layers 5, 11, 17, … attend to the whole context
	gemma3LocalBase = 10000 // RoPE base of the others
	gemma3Largest   = 62    // blocks of the 27B model, whose scores are scaled by width/heads
)

func gemma3Params(r *reader, p *Params) {
	r.same("attention.key_length_swa", p.HeadDim)
	r.same("attention.value_length_swa", p.HeadDim)
	r.same("rope.dimension_count_swa", p.Rot)
	if v, ok := r.f.Value(r.key("final_logit_softcapping")); ok && !r.zero("final_logit_softcapping") {
		r.fail("final_logit_softcapping", "is %s: soft-capping of logits is not supported", v)
	}
	if p.Blocks == gemma3Largest && (!r.f.Has(r.key("attention.scale")) || r.zero("attention.scale")) {
		p.Scale = 1 / math.Sqrt(float64(p.Embd)/float64(p.Heads))
	}
	// Positions are scaled only in the layers without a window. The magnitude applies to all layers.
	local := Rope{Base: r.base("rope.freq_base_swa", gemma3LocalBase), Step: 1, Magnitude: r.magnitude()}
	slides := gemma3Slides(r, p.Blocks)
	if p.Layers[0].Window == 0 {
		return
	}
	for i := range p.Layers {
		if slides(i) {
			p.Layers[i].Rope = local
		} else {
			p.Layers[i].Window = 0
		}
	}
}

// gemma3Slides reads which layers have a sliding window: from a flag for each layer, or from a period
// whose last layer has none.
func gemma3Slides(r *reader, blocks int) func(i int) bool {
	const key = "attention.sliding_window_pattern"
	if _, isArray := r.f.Len(r.key(key)); !isArray {
		every := r.optUint(key, 1<<16, gemma3Pattern)
		return func(i int) bool { return int64(i)%every != every-1 }
	}
	flags, err := r.f.Ints(r.key(key))
	r.keep(err)
	if err == nil && len(flags) != blocks {
		r.fail(key, "has %d entries, expected one for each of %d blocks", len(flags), blocks)
	}
	return func(i int) bool { return i < len(flags) && flags[i] != 0 }
}

func buildGemma3(b *builder) {
	x := b.embed()
	x = b.op1(ops.Scale, "embd_scaled", graph.Attrs{"factor": math.Sqrt(float64(b.p.Embd))}, x)
	for i := range b.p.Layers {
		b.block(i)
		h := b.norm(x, "attn_norm", "attn_norm.weight")
		q, k, v := b.qkv(h)
		q = b.headNorm(q, "q_norm", "attn_q_norm.weight")
		k = b.headNorm(k, "k_norm", "attn_k_norm.weight")
		a := b.linear(b.attention(q, k, v), "attn_out", "attn_output.weight")
		a = b.norm(a, "attn_post_norm", "post_attention_norm.weight")
		x = b.op1(ops.Add, b.name("attn_res"), nil, x, a)
		h = b.gated(b.norm(x, "ffn_norm", "ffn_norm.weight"), ops.GELUTanh)
		h = b.norm(h, "ffn_post_norm", "post_ffw_norm.weight")
		x = b.op1(ops.Add, b.name("out"), nil, x, h)
	}
	b.head(x)
}
