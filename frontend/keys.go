package frontend

import (
	"fmt"
	"slices"
	"strings"

	"pesti/gguf"
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
	{"attn_logit_softcapping", []string{"0", "50"}, "soft-capping of scores"}, // see unused
	{"embedding_scale", unset, "scaling of embeddings by a key"},
	{"expert_count", zero, "a mixture of experts"},
	{"final_logit_softcapping", []string{"0", "30"}, "soft-capping of logits"},
	{"logit_scale", unset, "scaling of logits"},
	{"nextn_predict_layers", zero, "blocks that predict further tokens"},
	{"residual_scale", unset, "scaling of residuals"},
	{"rope.scaling.alpha", zero, "scaling of the RoPE base"},
	{"rope.scaling.yarn_attn_factor", []string{"1"}, "YaRN with another magnitude"},
	{"rope.scaling.yarn_ext_factor", []string{"1", "-1"}, "YaRN in part"}, // -1: by the type of scaling
	{"rope.scaling.yarn_log_multiplier", zero, "YaRN with another magnitude"},
	{"use_parallel_residual", []string{"false"}, "attention and feed-forward side by side"},
}

// strict lists prefixes of keys of which nearly all change the result. An unknown key with such a
// prefix is refused unless its value has no effect; other unknown keys give a warning.
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

// unused lists the values, other than 0, that llama.cpp gives to keys of other architectures when it
// saves a model with all keys that it knows. Soft-capping is in refusals: 50 and 30 are its defaults.
var unused = map[string]string{
	"activation.situ_beta":                "1",
	"attention.indexer.kpool_select_tail": "true",
	"attention.rope_pattern":              "1",
	"decoder_start_token_id":              "-1",
	"deepstack_mapping":                   "-1",
	"expert_group_scale":                  "0.05",
	"kda.gate_lower_bound":                "-Inf",
	"pooling_type":                        "4294967295",
	"router_logit_softcapping":            "30",
	"token_shift_count":                   "2",
}

// neutral reports whether a value of an unknown key has no effect: all its elements are 0, false, empty,
// or the value in the table unused.
func neutral(suffix string, v gguf.Value) bool {
	all, isArray := v.Any().([]any)
	if !isArray {
		all = []any{v.Any()}
	}
	for i, x := range all {
		if i > 0 && x == all[i-1] {
			continue
		}
		switch x {
		case uint64(0), int64(0), float64(0), false, "":
			continue
		}
		text := fmt.Sprint(x)
		if !isArray {
			text = v.String() // as short as its type allows
		}
		if text != unused[suffix] {
			return false
		}
	}
	return true
}

// windowKeys ends the names of keys that apply to layers with a sliding window only.
const windowKeys = "_swa"

// synonyms lists the names that some converters give to keys. If a file has both, they must agree.
var synonyms = []struct{ key, other string }{
	{"attention.key_length", "attention.head_dim"},
	{"rope.freq_base", "rope.global.freq_base"},
	{"rope.freq_base_swa", "rope.local.freq_base"},
	{"rope.scaling.yarn_beta_fast", "rope.scaling.beta_fast"},
	{"rope.scaling.yarn_beta_slow", "rope.scaling.beta_slow"},
	{"rope.scaling.yarn_ext_factor", "rope.scaling.extrapolation_factor"},
}

// otherMedia lists prefixes of keys that describe the parts of a model for images and sounds.
var otherMedia = []string{"audio.", "mm.", "vision."}

// rest checks the keys under the architecture's prefix that were not read: it refuses those in
// refusals and strict, and returns the other unknown ones, and those of the parts for other media.
func (r *reader) rest() (unknown, media []string) {
	for _, key := range r.f.Keys() {
		suffix, ok := strings.CutPrefix(key, r.arch+".")
		if !ok || r.asked[suffix] {
			continue
		}
		if slices.ContainsFunc(otherMedia, func(part string) bool { return strings.HasPrefix(suffix, part) }) {
			media = append(media, key)
			continue
		}
		v, _ := r.f.Value(key)
		name := suffix
		for _, s := range synonyms {
			if s.other == suffix {
				name = s.key
				if same, ok := r.f.Value(r.arch + "." + name); ok && same.String() != v.String() {
					r.fail(suffix, "is %s, expected %s, as %s.%s says", v, same, r.arch, name)
				}
			}
		}
		if r.asked[name] || slices.Contains(descriptive, name) || !r.windows && strings.HasSuffix(name, windowKeys) {
			continue
		}
		if i := slices.IndexFunc(refusals, func(x refusal) bool { return x.key == name }); i >= 0 {
			if !slices.Contains(refusals[i].harmless, v.String()) {
				r.fail(suffix, "is %s: %s is not supported", v, refusals[i].what)
			}
			continue
		}
		if neutral(suffix, v) {
			continue
		}
		if slices.ContainsFunc(strict, func(group string) bool { return strings.HasPrefix(suffix, group) }) {
			r.fail(suffix, "is %s: this key is not known for architecture %s, and the text may be wrong if it is ignored", v, r.arch)
		}
		unknown = append(unknown, key)
	}
	return unknown, media
}
