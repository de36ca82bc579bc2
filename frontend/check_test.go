package frontend

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/tiny"
	"pesti/gguf/quant"
	"pesti/graph"
)

func load(t *testing.T, c tiny.Config) (*Model, error) {
	t.Helper()
	return Load(tiny.File(t, c))
}

// TestSabotage spoils one key or tensor of a sound model at a time.
func TestSabotage(t *testing.T) {
	u32 := func(key string, v uint32) func(*tiny.Model) {
		return func(m *tiny.Model) { m.Meta.SetUint32("llama."+key, v) }
	}
	f32 := func(key string, v float32) func(*tiny.Model) {
		return func(m *tiny.Model) { m.Meta.SetFloat32("llama."+key, v) }
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
		{"block_count 1", u32("block_count", 1), "llama.block_count is 1, but the file has tensor blk.1."},
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
		{"yarn", func(m *tiny.Model) { m.Meta.SetStr("llama.rope.scaling.type", "yarn") }, `llama.rope.scaling.type is "yarn", expected none or linear`},
		{"mixture", u32("expert_count", 8), "llama.expert_count is 8: a mixture of experts is not supported"},
		{"logit scale", f32("logit_scale", 2), "llama.logit_scale is 2: scaling of logits is not supported"},
		{"not causal", func(m *tiny.Model) { m.Meta.SetBool("llama.attention.causal", false) }, "llama.attention.causal is false"},
		{"scale", f32("attention.scale", 0), "llama.attention.scale is 0"},
		{"scaling factor", f32("rope.scaling.factor", float32(math.NaN())), "llama.rope.scaling.factor is NaN"},
		{"empty table", func(m *tiny.Model) {
			w := m.Tensor("token_embd.weight")
			w.Dims[1], w.Data = 0, nil
		}, "token_embd.weight has shape [0 64]: it is empty"},
		{"integers", func(m *tiny.Model) {
			w := m.Tensor("blk.0.ffn_up.weight")
			w.Type, w.Raw = quant.I32, make([]byte, 4*len(w.Data))
		}, "blk.0.ffn_up.weight has type I32, expected a type of weights"},
		{"architecture", func(m *tiny.Model) { m.Meta.SetStr("general.architecture", "mamba") }, `architecture "mamba" is not supported; supported are gemma3, llama, qwen2`},
		{"no tensors", func(m *tiny.Model) { m.Tensors = nil }, "the file has no tensors"},
		{"missing tensor", func(m *tiny.Model) { m.Drop("blk.1.ffn_up.weight") }, "tensor blk.1.ffn_up.weight is missing"},
		{"one bias", func(m *tiny.Model) {
			m.Tensors = append(m.Tensors, tiny.Tensor{Name: "blk.0.attn_q.bias", Dims: []int64{64}, Data: make([]float32, 64)})
		}, "tensor blk.0.attn_v.bias is missing, though blk.0.attn_q.bias is there"},
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

func TestQwenBiasesRequired(t *testing.T) {
	_, err := load(t, tiny.Config{Arch: "qwen2", Edit: func(m *tiny.Model) { m.Drop("blk.1.attn_k.bias") }})
	if err == nil || !strings.Contains(err.Error(), "tensor blk.1.attn_k.bias is missing") {
		t.Errorf("error %v", err)
	}
}

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
		m.Meta.SetUint32("llama.attention.sliding_window", 17)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if l := m.Params.Layers[1]; l.RopeStep != 0.25 || l.Window != 17 || m.Params.Scale != 0.5 {
		t.Errorf("%+v, scale %v", l, m.Params.Scale)
	}
	g, err := m.Graph(Bounds{Tokens: 8, Sequences: 1, Rows: 8, Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	scores := g.Value("blk.1.scores").Def.Attr
	if scores.Float("scale") != 0.5 || scores.Int("window") != 17 || g.Value("blk.1.q_rope").Def.Attr.Float("freq_scale") != 0.25 {
		t.Errorf("scores %v, rope %v", scores, g.Value("blk.1.q_rope").Def.Attr)
	}
}
