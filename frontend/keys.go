package frontend

import (
	"slices"
	"strings"
)

// A refusal is a key for a computation that this package does not support. The key is an error unless
// its value has no effect or an architecture reads it. Unknown keys of attention and RoPE are errors
// with any value: see strict.
type refusal struct {
	key      string
	harmless []string // values without effect, as text
	what     string
}

var (
	zero  = []string{"0"}
	unset = []string{"0", "1"} // for a factor
)

var refusals = []refusal{
	{"attention.causal", []string{"true"}, "attention to later tokens"},
	{"attention.clamp_kqv", zero, "clamping of q, k and v"},
	{"attention.kv_lora_rank", zero, "attention on compressed keys and values"},
	{"attention.max_alibi_bias", zero, "a bias by distance (ALiBi)"},
	{"attention.output_scale", unset, "scaling of the attention's output"},
	{"attention.q_lora_rank", zero, "attention on compressed queries"},
	{"attention.shared_kv_layers", zero, "keys and values that layers share"},
	{"attention.temperature_length", zero, "scaling of scores by position"},
	{"attention.temperature_scale", zero, "scaling of scores by position"},
	{"attention.value_scale", unset, "scaling of values"},
	{"attn_logit_softcapping", zero, "soft-capping of scores"},
	{"embedding_scale", unset, "scaling of embeddings by a key"},
	{"expert_count", zero, "a mixture of experts"},
	{"final_logit_softcapping", zero, "soft-capping of logits"},
	{"logit_scale", unset, "scaling of logits"},
	{"nextn_predict_layers", zero, "blocks that predict further tokens"},
	{"residual_scale", unset, "scaling of residuals"},
	{"rope.scaling.alpha", zero, "scaling of the RoPE base"},
	{"rope.scaling.yarn_attn_factor", []string{"1"}, "YaRN with another magnitude"},
	{"rope.scaling.yarn_ext_factor", []string{"1"}, "YaRN in part"},
	{"rope.scaling.yarn_log_multiplier", zero, "YaRN with another magnitude"},
	{"use_parallel_residual", []string{"false"}, "attention and feed-forward side by side"},
}

// strict lists prefixes of keys of which nearly all change the result. An unknown key with such a
// prefix is refused; other unknown keys give a warning.
var strict = []string{"attention.", "rope."}

// descriptive lists keys that do not change the result. The keys of a RoPE scaling count only with the
// type of scaling that reads them.
var descriptive = []string{
	"attention.layer_norm_epsilon", // of LayerNorm; models with RMSNorm have its own epsilon key
	"expert_used_count",
	"rope.scale_linear",
	"rope.scaling.factor",
	"rope.scaling.finetuned",
	"rope.scaling.original_context_length",
	"rope.scaling.yarn_beta_fast",
	"rope.scaling.yarn_beta_slow",
	"tensor_data_layout",
	"vocab_size",
}

// rest checks the keys under the architecture's prefix that were not read: it refuses those in
// refusals and strict, and returns the other unknown ones.
func (r *reader) rest() (unknown []string) {
	for _, key := range r.f.Keys() {
		suffix, ok := strings.CutPrefix(key, r.arch+".")
		if !ok || r.asked[suffix] || slices.Contains(descriptive, suffix) {
			continue
		}
		v, _ := r.f.Value(key)
		if i := slices.IndexFunc(refusals, func(x refusal) bool { return x.key == suffix }); i >= 0 {
			if !slices.Contains(refusals[i].harmless, v.String()) {
				r.fail(suffix, "is %s: %s is not supported", v, refusals[i].what)
			}
			continue
		}
		if slices.ContainsFunc(strict, func(group string) bool { return strings.HasPrefix(suffix, group) }) {
			r.fail(suffix, "is %s: this key is not known for architecture %s, and the text may be wrong if it is ignored", v, r.arch)
		}
		unknown = append(unknown, key)
	}
	return unknown
}
