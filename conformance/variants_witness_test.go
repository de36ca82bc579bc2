package conformance

import (
	"testing"

	"pesti/conformance/testenv"
	"pesti/lower"
)

// witnessed are the variants that llama.cpp reads as we do. It refuses partial RoPE in llama and
// qwen2, rope_freqs in qwen2, and per-layer arrays. It ignores YaRN's betas and the scale of scores.
var witnessed = []string{
	"llama: RoPE on pairs, own head, no biases",
	"llama: biases of q, k and v",
	"llama: rope_freqs",
	"llama: scaling none",
	"llama: scaling linear, rope_freqs",
	"llama: scaling linear, attn_factor",
	"llama: a factor without a type",
	"llama: Llama 3.2's frequencies",
	"llama: YaRN by 4",
	"llama: YaRN by 32 over 2048",
	"llama: YaRN by 2.5, attn_factor",
	"llama: YaRN over the model's context",
	"llama: YaRN by less than 1",
	"llama: YaRN with a ramp of no width",
	"qwen2: no biases",
	"qwen2: rope.scale_linear",
	"qwen2: YaRN by 4 over 32768",
	"qwen3: norms of q and k, own head",
	"qwen3: heads wider than the model, base of a million",
	"qwen3: YaRN by 4 over 32768",
	"gemma3: YaRN in global layers",
	"gemma3: local RoPE base",
	"gemma3: window by flags",
	"gemma3: window in all layers",
	"llama: a window, which llama has not",
}

// TestProveVariantsThirdWitness compares the variants with llama.cpp in float32, with the bounds of
// TestProveThirdWitness.
func TestProveVariantsThirdWitness(t *testing.T) {
	testenv.Prove(t)
	ids := variantIDs()
	for _, name := range witnessed {
		t.Run(name, func(t *testing.T) {
			v := findVariant(t, name)
			most := witnessSiLUTolerance
			if v.config.Arch == "gemma3" {
				most = witnessTolerance
			}
			m := v.open(t).inFloat32(t)
			ours := m.logits(t, ids, lower.Options{Precision: "exact", Ubatch: 33, Threads: 2})
			e := squareError(ours, askLlamaCpp(t, m.path, ids, "--cache", "f32"))
			t.Logf("normalized mean square error %.1e", e)
			if !(e <= most) {
				t.Errorf("normalized mean square error %.1e, want at most %.0e", e, most)
			}
		})
	}
}
