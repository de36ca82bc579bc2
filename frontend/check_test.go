package frontend

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/tiny"
	"pesti/gguf/quant"
	"pesti/graph"
	"pesti/graph/graphtest"
	"pesti/ops/ref"
)

func load(t *testing.T, c tiny.Config) (*Model, error) {
	t.Helper()
	return Load(tiny.File(t, c))
}

// TestSabotage damages one key or tensor of a valid model at a time.
func TestSabotage(t *testing.T) {
	u32 := func(key string, v uint32) func(*tiny.Model) {
		return func(m *tiny.Model) { m.Meta.SetUint32("llama."+key, v) }
	}
	f32 := func(key string, v float32) func(*tiny.Model) {
		return func(m *tiny.Model) { m.Meta.SetFloat32("llama."+key, v) }
	}
	type numbers map[string]float32
	scaling := func(kind string, n numbers) func(*tiny.Model) {
		return func(m *tiny.Model) { m.Rope("llama", kind, n) }
	}
	add := func(name string, length int) func(*tiny.Model) {
		return func(m *tiny.Model) { m.Add(name, ones(length)) }
	}
	nan := float32(math.NaN())
	freqs := func(divisors ...float32) func(*tiny.Model) {
		return func(m *tiny.Model) { m.Add(ropeFreqs, divisors) }
	}
	for _, c := range []struct {
		name string
		edit func(m *tiny.Model)
		want string
	}{
		{"head_count 0", u32("attention.head_count", 0), "llama.attention.head_count is 0"},
		{"head_count 7", u32("attention.head_count", 7), "llama.attention.head_count is 7, expected a divisor of embedding_length 64"},
		{"head_count_kv 0", u32("attention.head_count_kv", 0), "llama.attention.head_count_kv is 0"},
		{"head_count_kv 3", u32("attention.head_count_kv", 3), "llama.attention.head_count_kv is 3, expected a divisor of head_count 4"},
		{"head_count_kv 10", u32("attention.head_count_kv", 10), "llama.attention.head_count_kv is 10"},
		{"block_count 0", u32("block_count", 0), "llama.block_count is 0"},
		{"block_count 1", u32("block_count", 1), "llama.block_count is 1, but the file has tensor \"blk.1."},
		{"block_count 3", u32("block_count", 3), "llama.block_count is 3, but the file's tensors end with blk.1"},
		{"block_count 2^31", u32("block_count", 1<<31), "llama.block_count is 2147483648"},
		{"block_count string", func(m *tiny.Model) { m.Meta.SetStr("llama.block_count", "30") }, "llama.block_count"},
		{"block_count array", func(m *tiny.Model) { m.Meta.SetUint32s("llama.block_count", []uint32{2}) }, "llama.block_count"},
		{"embedding_length 0", u32("embedding_length", 0), "llama.embedding_length is 0"},
		{"embedding_length 63", u32("embedding_length", 63), "expected a divisor of embedding_length 63"},
		{"embedding_length 56", u32("embedding_length", 56), "token_embd.weight has shape [300 64], expected [300 56]"},
		{"rope.dimension_count 0", u32("rope.dimension_count", 0), "llama.rope.dimension_count is 0"},
		{"rope.dimension_count 17", u32("rope.dimension_count", 17), "llama.rope.dimension_count is 17"},
		{"rope.dimension_count 15", u32("rope.dimension_count", 15), "llama.rope.dimension_count is 15, expected an even number"},
		{"eps 0", f32("attention.layer_norm_rms_epsilon", 0), "layer_norm_rms_epsilon is 0"},
		{"eps NaN", f32("attention.layer_norm_rms_epsilon", float32(math.NaN())), "layer_norm_rms_epsilon is NaN"},
		{"freq_base 0", f32("rope.freq_base", 0), "llama.rope.freq_base is 0"},
		{"freq_base -1", f32("rope.freq_base", -1), "llama.rope.freq_base is -1"},
		{"freq_base Inf", f32("rope.freq_base", float32(math.Inf(1))), "llama.rope.freq_base is +Inf"},
		{"value length", u32("attention.value_length", 8), "llama.attention.value_length is 8"},
		{"yarn without a factor", scaling("yarn", nil), `key "llama.rope.scaling.factor"`},
		{"yarn by 0", scaling("yarn", numbers{"factor": 0}), "llama.rope.scaling.factor is 0, expected a number above 0"},
		{"yarn by ten million", scaling("yarn", numbers{"factor": 1e7}), "llama.rope.scaling.factor is 1e+07, expected 1e-06 to 1e+06"},
		{"attn_factor of 3e38", scaling("linear", numbers{"factor": 4, "attn_factor": 3e38}), "llama.rope.scaling.attn_factor is"},
		{"yarn by NaN", scaling("yarn", numbers{"factor": float32(math.NaN())}), "llama.rope.scaling.factor is NaN"},
		{"yarn by -1", scaling("yarn", numbers{"factor": -1}), "llama.rope.scaling.factor is -1"},
		{"yarn over 0 positions", func(m *tiny.Model) {
			scaling("yarn", numbers{"factor": 4})(m)
			m.Meta.SetUint32("llama.rope.scaling.original_context_length", 0)
		}, "llama.rope.scaling.original_context_length is 0"},
		{"yarn betas", scaling("yarn", numbers{"factor": 4, "yarn_beta_slow": 33}), "llama.rope.scaling.yarn_beta_fast is 32, expected at least the yarn_beta_slow of 33"},
		{"yarn beta 0", scaling("yarn", numbers{"factor": 4, "yarn_beta_slow": 0}), "llama.rope.scaling.yarn_beta_slow is 0"},
		{"yarn on base 1", func(m *tiny.Model) {
			scaling("yarn", numbers{"factor": 4})(m)
			m.Meta.SetFloat32("llama.rope.freq_base", 1)
		}, "llama.rope.freq_base is 1, expected a number above 1"},
		{"yarn in part", scaling("yarn", numbers{"factor": 4, "yarn_ext_factor": 0.5}), "llama.rope.scaling.yarn_ext_factor is 0.5: YaRN in part is not supported"},
		{"yarn magnitude", scaling("yarn", numbers{"factor": 4, "yarn_attn_factor": 2}), "llama.rope.scaling.yarn_attn_factor is 2: YaRN with another magnitude is not supported"},
		{"yarn log multiplier", scaling("yarn", numbers{"factor": 4, "yarn_log_multiplier": 0.1}), "llama.rope.scaling.yarn_log_multiplier is 0.1: YaRN with"},
		{"attn_factor 0", scaling("linear", numbers{"factor": 4, "attn_factor": 0}), "llama.rope.scaling.attn_factor is 0"},
		{"longrope", scaling("longrope", numbers{"factor": 4}), `llama.rope.scaling.type is "longrope", expected one of none, linear, yarn`},
		{"llama3", scaling("llama3", numbers{"factor": 4}), `llama.rope.scaling.type is "llama3", expected one of none, linear, yarn`},
		{"scaling type number", u32("rope.scaling.type", 1), `llama.rope.scaling.type`},
		{"linear by -1", scaling("linear", numbers{"factor": -1}), "llama.rope.scaling.factor is -1"},
		{"scale_linear -2", f32("rope.scale_linear", -2), "llama.rope.scale_linear is -2"},
		{"another bias", add("blk.1.attn_output.bias", 64),
			"tensor \"blk.1.attn_output.bias\" is not used by architecture llama, and the text would be wrong without it"},
		{"bias of the head", add("output.bias", 300), "tensor \"output.bias\" is not used"},
		{"scale of a weight", add("blk.0.ffn_up.scale", 1), "tensor \"blk.0.ffn_up.scale\" is not used"},
		{"norm of q", add("blk.0.attn_q_norm.weight", 16), "tensor \"blk.0.attn_q_norm.weight\" is not used"},
		{"sinks", add("blk.0.attn_sinks.weight", 4), "tensor \"blk.0.attn_sinks.weight\" is not used"},
		{"long factors", add("rope_factors_long.weight", 8), "tensor \"rope_factors_long.weight\" is not used"},
		{"norm of embeddings", add("token_embd_norm.weight", 64), "tensor \"token_embd_norm.weight\" is not used"},
		{"rope_freqs of a wrong length", add("rope_freqs.weight", 16), "tensor rope_freqs.weight has shape [16], expected [8]"},
		{"rope_freqs with 0", freqs(1, 1, 1, 1, 1, 1, 1, 0), "tensor rope_freqs.weight: element 7 is 0, expected at least 1e-06"},
		{"rope_freqs below 0", freqs(-1, 1, 1, 1, 1, 1, 1, 1), "tensor rope_freqs.weight: element 0 is -1, expected"},
		{"rope_freqs with NaN", freqs(1, 1, 1, nan, 1, 1, 1, 1), "tensor rope_freqs.weight: element 3 is NaN, expected"},
		{"rope_freqs with -Inf", freqs(1, 1, 1, float32(math.Inf(-1)), 1, 1, 1, 1), "tensor rope_freqs.weight: element 3 is -Inf, expected"},
		{"rope_freqs near 0", freqs(1, 1e-40, 1, 1, 1, 1, 1, 1), "tensor rope_freqs.weight: element 1 is 1e-40, expected"},
		{"heads by layer", func(m *tiny.Model) { m.Meta.SetUint32s("llama.attention.head_count", []uint32{4, 4}) }, `llama.attention.head_count`},
		{"scale", f32("attention.scale", -1), "llama.attention.scale is -1"},
		{"head_dim differs", func(m *tiny.Model) {
			m.Meta.SetUint32("llama.attention.head_dim", 8)
			m.Meta.SetUint32("llama.attention.key_length", 16)
		}, "llama.attention.head_dim is 8, expected 16, as llama.attention.key_length says"},
		{"head_dim that no tensor has", u32("attention.head_dim", 8), "blk.0.attn_q.weight has shape [64 64], expected [32 64]"},
		{"freq_base 2^200", func(m *tiny.Model) { m.Meta.SetFloat64("llama.rope.global.freq_base", math.Pow(2, 200)) }, "llama.rope.global.freq_base is"},
		{"scaling factor", f32("rope.scaling.factor", float32(math.NaN())), "llama.rope.scaling.factor is NaN"},
		{"empty table", func(m *tiny.Model) {
			w := m.Tensor("token_embd.weight")
			w.Dims[1], w.Data = 0, nil
		}, "token_embd.weight has shape [0 64], expected at least one element"},
		{"integers", func(m *tiny.Model) {
			w := m.Tensor("blk.0.ffn_up.weight")
			w.Type, w.Raw = quant.I32, make([]byte, 4*len(w.Data))
		}, "blk.0.ffn_up.weight has type I32, expected a floating-point or quantized type"},
		{"architecture", func(m *tiny.Model) { m.Meta.SetStr("general.architecture", "mamba") }, `architecture "mamba" is not supported; supported are ` + strings.Join(Architectures(), ", ")},
		{"no tensors", func(m *tiny.Model) { m.Tensors = nil }, "the file has no tensors"},
		{"missing tensor", func(m *tiny.Model) { m.Drop("blk.1.ffn_up.weight") }, "tensor blk.1.ffn_up.weight is missing"},
		{"one bias", add("blk.0.attn_q.bias", 64),
			"tensor blk.0.attn_k.bias is missing, though blk.0.attn_q.bias is there"},
		{"biases of one block", func(m *tiny.Model) {
			m.Add("blk.1.attn_q.bias", ones(64))
			m.Add("blk.1.attn_k.bias", ones(32))
			m.Add("blk.1.attn_v.bias", ones(32))
		}, "tensor blk.0.attn_q.bias is missing, though blk.1.attn_v.bias is there"},
		{"one token short", func(m *tiny.Model) {
			m.Meta.SetStrs("tokenizer.ggml.tokens", make([]string, 299))
		}, "tokenizer.ggml.tokens has 299 entries, expected 300"},
		{"norm in F16", func(m *tiny.Model) { m.Tensor("output_norm.weight").Type = 1 }, "tensor output_norm.weight has type F16, expected F32"},
		{"short array", func(m *tiny.Model) {
			m.Meta.SetUint32s("llama.attention.head_count_kv", []uint32{2})
		}, "llama.attention.head_count_kv has 1 entries, expected one for each of 2 blocks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, tiny.Config{Arch: "llama", Edit: c.edit})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			if !strings.HasPrefix(err.Error(), "tiny.gguf: ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q does not name the file in one line", err)
			}
		})
	}
}

// TestExtremes sets every numeric key of RoPE and attention to values of any magnitude. Either the error names the key,
// or the logits are finite.
func TestExtremes(t *testing.T) {
	values := []float64{
		math.SmallestNonzeroFloat64, math.SmallestNonzeroFloat32, 1e-30, 1e-6, 0.01, 0.5, 1, math.Nextafter(1, 2), 1.5,
		32, 100, 1e6, 1e18, 1e30, math.MaxFloat32, math.MaxFloat64,
	}
	accepted, refused := 0, 0
	for _, c := range []struct{ arch, kind, key string }{
		{"llama", "none", "rope.freq_base"},
		{"llama", "none", "rope.scaling.attn_factor"},
		{"llama", "none", "attention.scale"},
		{"llama", "none", "attention.layer_norm_rms_epsilon"},
		{"llama", "linear", "rope.scale_linear"},
		{"llama", "linear", "rope.scaling.factor"},
		{"llama", "yarn", "rope.freq_base"},
		{"llama", "yarn", "rope.scaling.factor"},
		{"llama", "yarn", "rope.scaling.attn_factor"},
		{"llama", "yarn", "rope.scaling.yarn_beta_fast"},
		{"llama", "yarn", "rope.scaling.yarn_beta_slow"},
		{"gemma3", "none", "rope.freq_base_swa"},
		{"gemma3", "yarn", "rope.scaling.attn_factor"},
	} {
		for _, value := range values {
			m, err := load(t, tiny.Config{Arch: c.arch, Window: 4, Edit: func(m *tiny.Model) {
				m.Meta.SetStr(c.arch+".rope.scaling.type", c.kind)
				if c.kind == "yarn" {
					m.Meta.SetFloat64(c.arch+".rope.scaling.factor", 4)
					m.Meta.SetUint32(c.arch+".rope.scaling.original_context_length", 2_000_000)
				}
				m.Meta.SetFloat64(c.arch+"."+c.key, value)
			}})
			if err != nil {
				refused++
				if !strings.Contains(err.Error(), c.key+" is ") && !strings.Contains(err.Error(), "yarn_beta_fast is 32, expected at least") {
					t.Errorf("%s: %s %s = %v: error %q does not name the key", c.arch, c.kind, c.key, value, err)
				}
				continue
			}
			accepted++
			if err := finiteLogits(m); err != nil {
				t.Errorf("%s: %s %s = %v: %v", c.arch, c.kind, c.key, value, err)
			}
		}
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted == 0 || refused == 0 {
		t.Error("all are alike")
	}
}

// finiteLogits runs a model on a few tokens.
func finiteLogits(m *Model) error {
	g, err := m.Graph(Bounds{Tokens: 8, Sequences: 1, Rows: 8, Context: 8})
	if err != nil {
		return err
	}
	logits, err := graphtest.LastLogits(g, graphtest.FromFile(m.File), []int32{72, 101, 108, 108, 111})
	if err != nil {
		return err
	}
	for i, x := range logits {
		if x != x || math.IsInf(float64(x), 0) {
			return fmt.Errorf("logit %d is %v", i, x)
		}
	}
	return nil
}

// TestExtremeDivisors loads the smallest allowed divisor, and an infinite one, which stops the rotation of its pair.
func TestExtremeDivisors(t *testing.T) {
	inf := float32(math.Inf(1))
	m, err := load(t, tiny.Config{Arch: "llama", Edit: func(m *tiny.Model) {
		m.Add(ropeFreqs, []float32{1, 1e-6, 1e30, math.MaxFloat32, inf, inf, 1e-6, 8})
	}})
	if err == nil {
		err = finiteLogits(m)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestRampBeyondPairs checks that YaRN scales no pair if even the last pair rotates many times within the original
// context.
func TestRampBeyondPairs(t *testing.T) {
	m, err := load(t, tiny.Config{Arch: "llama", Edit: func(m *tiny.Model) {
		m.Rope("llama", "yarn", map[string]float32{"factor": 4})
		m.Meta.SetUint32("llama.rope.scaling.original_context_length", 2_000_000)
		m.Meta.SetFloat64("llama.rope.freq_base", math.Nextafter(1, 2))
	}})
	if err != nil {
		t.Fatal(err)
	}
	r, last := m.Params.Layers[0].Rope, float64(m.Params.Rot-1)
	if r.RampLow != last || r.RampHigh <= last || r.RampHigh > last+0.01 {
		t.Errorf("the ramp is from %v to %v, expected a step at %v", r.RampLow, r.RampHigh, last)
	}
	turn := ref.Rotary{Rot: int(m.Params.Rot), Base: r.Base, FreqScale: r.Step, RampLow: r.RampLow, RampHigh: r.RampHigh}
	for i := range turn.Rot / 2 {
		if got := turn.Speed(i); math.Abs(got-1) > 1e-12 {
			t.Errorf("pair %d rotates by %v per position, expected 1, as without scaling", i, got)
		}
	}
}

// TestQwenBiases checks that a file with some of the biases is refused, and that a file without any is a model without
// biases.
func TestQwenBiases(t *testing.T) {
	drop := func(names ...string) error {
		_, err := load(t, tiny.Config{Arch: "qwen2", Edit: func(m *tiny.Model) {
			for _, name := range names {
				m.Drop(name)
			}
		}})
		return err
	}
	one, block := drop("blk.1.attn_k.bias"), drop("blk.1.attn_q.bias", "blk.1.attn_k.bias", "blk.1.attn_v.bias")
	if one == nil || !strings.Contains(one.Error(), "tensor blk.1.attn_k.bias is missing") {
		t.Errorf("one missing: error %v", one)
	}
	if block == nil || !strings.Contains(block.Error(), "tensor blk.1.attn_q.bias is missing") {
		t.Errorf("a block's missing: error %v", block)
	}
	if err := drop("blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias", "blk.1.attn_q.bias", "blk.1.attn_k.bias", "blk.1.attn_v.bias"); err != nil {
		t.Errorf("all missing: %v", err)
	}
}

// TestQwen3 checks the differences of qwen3 from qwen2: norms of q and of k with the length of a
// head, and no biases.
func TestQwen3(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(m *tiny.Model)
		want string // part of the error; "" for no error
	}{
		{"as it should be", nil, ""},
		{"no norm of q", func(m *tiny.Model) { m.Drop("blk.1.attn_q_norm.weight") }, "tensor blk.1.attn_q_norm.weight is missing, which architecture qwen3 needs"},
		{"no norm of k", func(m *tiny.Model) { m.Drop("blk.0.attn_k_norm.weight") }, "tensor blk.0.attn_k_norm.weight is missing, which architecture qwen3 needs"},
		{"a norm of whole rows", func(m *tiny.Model) {
			w := m.Tensor("blk.0.attn_q_norm.weight")
			w.Dims, w.Data = []int64{128}, ones(128)
		}, "tensor blk.0.attn_q_norm.weight has shape [128], expected [32]"},
		{"a bias", func(m *tiny.Model) { m.Add("blk.0.attn_k.bias", ones(64)) }, `tensor "blk.0.attn_k.bias" is not used by architecture qwen3`},
	} {
		m, err := load(t, tiny.Config{Arch: "qwen3", HeadDim: 32, Edit: c.edit})
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case len(m.Warnings) > 0 || m.Params.HeadDim != 32 || m.Params.Scale != 1/math.Sqrt(32):
			t.Errorf("%s: warnings %q, head of %d, scale %v", c.name, m.Warnings, m.Params.HeadDim, m.Params.Scale)
		}
	}
}

func ones(n int) []float32 { return slices.Repeat([]float32{1}, n) }

func TestPerLayerArrays(t *testing.T) {
	m, err := load(t, tiny.Config{Arch: "llama", KVHeads: 4, Edit: func(m *tiny.Model) {
		m.Meta.SetUint32s("llama.attention.head_count_kv", []uint32{4, 2})
		for _, name := range []string{"blk.1.attn_k.weight", "blk.1.attn_v.weight"} {
			w := m.Tensor(name)
			w.Dims[1], w.Data = 32, w.Data[:64*32]
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if kv := []int64{m.Params.Layers[0].KVHeads, m.Params.Layers[1].KVHeads}; !slices.Equal(kv, []int64{4, 2}) {
		t.Errorf("kv heads %v", kv)
	}
	g, err := m.Graph(Bounds{Tokens: 8, Sequences: 1, Rows: 8, Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	if err := graph.Verify(g); err != nil {
		t.Error(err)
	}
}

func TestUnusedTensorsWarn(t *testing.T) {
	m, err := load(t, tiny.Config{Arch: "llama", Edit: func(m *tiny.Model) {
		m.Tensors = append(m.Tensors, tiny.Tensor{Name: "blk.0.extra.weight", Dims: []int64{4}, Data: make([]float32, 4)})
	}})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Warnings) != 1 || !strings.Contains(m.Warnings[0], "blk.0.extra.weight") {
		t.Errorf("warnings %q", m.Warnings)
	}
}

// TestKeys checks that a key which changes the computation is refused by name unless its value has
// no effect, that an unknown key causes a warning, and that a descriptive key is ignored.
func TestKeys(t *testing.T) {
	with := func(key string, v any) (*Model, error) {
		return load(t, tiny.Config{Arch: "llama", Edit: func(m *tiny.Model) { set("llama."+key, v)(m.Meta) }})
	}
	for _, r := range refusals {
		for _, v := range []any{float32(0), float32(1), float32(0.5), true, false, []uint32{1, 2}, "text"} {
			_, err := with(r.key, v)
			harmless := slices.Contains(r.harmless, fmt.Sprint(v))
			if want := "tiny.gguf: llama." + r.key + " is "; (err == nil) != harmless || err != nil && !(strings.HasPrefix(err.Error(), want) && strings.HasSuffix(err.Error(), r.what+" is not supported")) {
				t.Errorf("%s = %v: error %v, harmless is %v", r.key, v, err, r.harmless)
			}
		}
	}
	// Keys that are known to change the text, independent of the table.
	for key, v := range map[string]any{
		"attn_logit_softcapping": float32(20), "final_logit_softcapping": float32(15), "logit_scale": float32(0.0625),
		"residual_scale": float32(0.22), "embedding_scale": float32(12), "expert_count": float32(8), "attention.causal": false,
		"rope.dimension_sections": []uint32{16, 24, 24, 0}, "attention.indexer.top_k": uint32(8), "attention.rope_pattern": uint32(2),
		"rope.something_new": float32(1), "attention.something_new": float32(1), "attention.sliding_window_pattern": float32(6),
		"attention.gate_lora_rank": uint32(4), "rope.scaling.alpha": float32(1000), "attention.max_alibi_bias": float32(8),
	} {
		if _, err := with(key, v); err == nil || !strings.HasPrefix(err.Error(), "tiny.gguf: llama."+key+" is ") {
			t.Errorf("%s = %v: error %v", key, v, err)
		}
	}
	for _, key := range descriptive {
		if m, err := with(key, float32(1)); err != nil || len(m.Warnings) > 0 {
			t.Errorf("%s: error %v, or a warning", key, err)
		}
	}
	m, err := with("something_new", "text")
	if err != nil {
		t.Fatal(err)
	}
	if want := "tiny.gguf: 1 keys are not known to architecture llama: llama.something_new"; !slices.Equal(m.Warnings, []string{want}) {
		t.Errorf("warnings %q, want %q", m.Warnings, want)
	}
	// Keys of another architecture, and of none.
	for _, key := range []string{"gemma3.sliding_window", "general.something_new"} {
		m, err := load(t, tiny.Config{Arch: "llama", Edit: func(m *tiny.Model) { m.Meta.SetStr(key, "text") }})
		if err != nil || len(m.Warnings) > 0 {
			t.Errorf("%s: error %v, or a warning", key, err)
		}
	}
}

// TestYaRN compares ramps with values computed by hand from the published formula, for 32 dims and base 10,000.
func TestYaRN(t *testing.T) {
	for _, c := range []struct {
		context, factor float32
		extra           map[string]float32
		want            Rope
	}{
		// Pairs that rotate 32 times and once: 16·ln(2048/64π)/ln 10⁴ = 4.03, 16·ln(2048/2π)/ln 10⁴ = 10.05.
		{2048, 4, nil, Rope{10000, 0.25, 4, 11, 0.1*math.Log(4) + 1}},
		// 16·ln(64/64π)/ln 10⁴ is below 0; 16·ln(64/2π)/ln 10⁴ = 4.03.
		{64, 16, map[string]float32{"attn_factor": 0.5}, Rope{10000, 0.0625, 0, 5, 0.5 * (0.1*math.Log(16) + 1)}},
		// 16·ln(2048/16π)/ln 10⁴ = 6.44, 16·ln(2048/4π)/ln 10⁴ = 8.85.
		{2048, 4, map[string]float32{"yarn_beta_fast": 8, "yarn_beta_slow": 2}, Rope{10000, 0.25, 6, 9, 0.1*math.Log(4) + 1}},
		// In a context of less than one rotation, all pairs but 0 are scaled. A factor below 1 has no effect.
		{6, 0.5, nil, Rope{10000, 2, 0, 0.001, 1}},
	} {
		m, err := load(t, tiny.Config{Arch: "llama", Embd: 128, Edit: func(m *tiny.Model) {
			m.Rope("llama", "yarn", map[string]float32{"factor": c.factor})
			m.Meta.SetUint32("llama.rope.scaling.original_context_length", uint32(c.context))
			for key, x := range c.extra {
				m.Meta.SetFloat32("llama.rope.scaling."+key, x)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Params.Layers[1].Rope; got != c.want {
			t.Errorf("context %v, factor %v, %v: %+v, want %+v", c.context, c.factor, c.extra, got, c.want)
		}
	}
	// Without a key for the original context, the model's context length is used.
	m, err := load(t, tiny.Config{Arch: "llama", Embd: 128, Context: 2048, Edit: func(m *tiny.Model) { m.Rope("llama", "yarn", map[string]float32{"factor": 4}) }})
	if err != nil || m.Params.Layers[0].Rope.RampHigh != 11 {
		t.Errorf("error %v, %+v", err, m.Params.Layers[0].Rope)
	}
}

func TestGemmaWindowPattern(t *testing.T) {
	windows := func(edit func(m *tiny.Model)) []int64 {
		m, err := load(t, tiny.Config{Arch: "gemma3", Layers: 7, Window: 16, Edit: edit})
		if err != nil {
			t.Fatal(err)
		}
		var w []int64
		for _, l := range m.Params.Layers {
			w = append(w, l.Window)
		}
		return w
	}
	if w := windows(nil); !slices.Equal(w, []int64{16, 16, 16, 16, 16, 0, 16}) {
		t.Errorf("by default %v", w)
	}
	if w := windows(func(m *tiny.Model) { m.Meta.SetUint32("gemma3.attention.sliding_window_pattern", 3) }); !slices.Equal(w, []int64{16, 16, 0, 16, 16, 0, 16}) {
		t.Errorf("every third %v", w)
	}
	if w := windows(func(m *tiny.Model) {
		m.Meta.SetBools("gemma3.attention.sliding_window_pattern", []bool{true, false, true, true, true, true, false})
	}); !slices.Equal(w, []int64{16, 0, 16, 16, 16, 16, 0}) {
		t.Errorf("by array %v", w)
	}
}

func TestScaling(t *testing.T) {
	m, err := load(t, tiny.Config{Arch: "llama", Edit: func(m *tiny.Model) {
		m.Meta.SetFloat32("llama.rope.scaling.factor", 4)
		m.Meta.SetFloat32("llama.attention.scale", 0.5)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if l := m.Params.Layers[1]; l.Rope.Step != 0.25 || m.Params.Scale != 0.5 {
		t.Errorf("%+v, scale %v", l, m.Params.Scale)
	}
	g, err := m.Graph(Bounds{Tokens: 8, Sequences: 1, Rows: 8, Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	scores := g.Value("blk.1.scores").Def.Attr
	if scores.Float("scale") != 0.5 || scores.Int("window") != 0 || g.Value("blk.1.q_rope").Def.Attr.Float("freq_scale") != 0.25 {
		t.Errorf("scores %v, rope %v", scores, g.Value("blk.1.q_rope").Def.Attr)
	}
}
