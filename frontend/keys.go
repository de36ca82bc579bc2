package frontend

import (
	"slices"
	"strings"
)

// A refusal is a key of models that compute something which is not done here. It is an error
// unless its value is one that changes nothing, or an architecture reads the key itself. Other
// keys of attention and RoPE are errors whatever their value, see strict.
type refusal struct {
	key      string
	harmless []string // as text
	what     string
}

var (
	zero  = []string{"0"}
	unset = []string{"0", "1"} // of a factor
)

var refusals = []refusal{
	{"attention.causal", []string{"true"}, "attention to later tokens"},
	{"attention.clamp_kqv", zero, "clamping of q, k and v"},
	{"attention.kv_lora_rank", zero, "attention on compressed keys and values"},
	{"attention.max_alibi_bias", zero, "a bias by distance (ALiBi)"},
	{"attention.output_scale", unset, "scaling of what attention yields"},
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

// strict are groups of keys that nearly all change what is computed: one that nothing here knows is
// refused, and not only warned of.
var strict = []string{"attention.", "rope."}

// descriptive keys change nothing of what is computed here; those of a scaling count only with
// the type of scaling that reads them.
var descriptive = []string{
	"attention.layer_norm_epsilon", // of LayerNorm, beside that of RMSNorm
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

// rest goes through the keys under the architecture's prefix that were not asked for: it refuses
// those of the table and of strict groups, and returns others that nothing here knows.
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
			r.fail(suffix, "is %s: architecture %s has no such key here, and without it the text may be wrong", v, r.arch)
		}
		unknown = append(unknown, key)
	}
	return unknown
}
