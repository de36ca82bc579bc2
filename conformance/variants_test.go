package conformance

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pesti/conformance/metrics"
	"pesti/conformance/tiny"
	"pesti/exec/plan"
	"pesti/gguf/quant"
	"pesti/graph"
	"pesti/lower"
	"pesti/ops"
)

// A variant is a small random model. Its name says how it differs from the default model of its
// architecture.
type variant struct {
	name   string
	config tiny.Config
	oracle []string // further arguments of the oracle
}

// numbers are keys under rope.scaling.
type numbers = map[string]float32

// edits combines changes of a model into one.
func edits(list ...func(m *tiny.Model)) func(m *tiny.Model) {
	return func(m *tiny.Model) {
		for _, edit := range list {
			edit(m)
		}
	}
}

func u32(key string, x uint32) func(*tiny.Model) {
	return func(m *tiny.Model) { m.Meta.SetUint32(key, x) }
}

func f32(key string, x float32) func(*tiny.Model) {
	return func(m *tiny.Model) { m.Meta.SetFloat32(key, x) }
}

func scaling(arch, kind string, n numbers) func(*tiny.Model) {
	return func(m *tiny.Model) { m.Rope(arch, kind, n) }
}

func freqs(divisors []float32) func(*tiny.Model) {
	return func(m *tiny.Model) { m.Add("rope_freqs.weight", divisors) }
}

// llama3Divisors returns the divisors that a converter stores for Llama 3: by how much each of n
// pairs with the given base is slowed.
func llama3Divisors(n int, base, factor, low, high, context float64) []float32 {
	divisors := make([]float32, n)
	for i := range divisors {
		rotations := context * math.Pow(base, -float64(i)/float64(n)) / (2 * math.Pi)
		share := min(max((rotations-low)/(high-low), 0), 1) // of the speed that remains
		divisors[i] = float32(1 / (share + (1-share)/factor))
	}
	return divisors
}

// biases adds random biases of q, k and v to a model without them.
func biases(layers, q, kv int) func(*tiny.Model) {
	return func(m *tiny.Model) {
		for l := range layers {
			for part, n := range []int{q, kv, kv} {
				data := make([]float32, n)
				for i := range data {
					data[i] = float32(math.Sin(float64(i*(l+2)))) / 4
				}
				m.Add(fmt.Sprintf("blk.%d.attn_%c.bias", l, "qkv"[part]), data)
			}
		}
	}
}

// noBiases removes the biases of q, k and v.
func noBiases(layers int) func(*tiny.Model) {
	return func(m *tiny.Model) {
		for l := range layers {
			for _, name := range []string{"q", "k", "v"} {
				m.Drop(fmt.Sprintf("blk.%d.attn_%s.bias", l, name))
			}
		}
	}
}

// shrink reduces matrices to fewer rows or columns.
func shrink(columns bool, to int64, names ...string) func(*tiny.Model) {
	return func(m *tiny.Model) {
		for _, name := range names {
			w := m.Tensor(name)
			length, rows := w.Dims[0], w.Dims[1]
			if columns {
				w.Dims[0] = to
				var data []float32
				for r := range rows {
					data = append(data, w.Data[r*length:r*length+to]...)
				}
				w.Data = data
			} else {
				w.Dims[1], w.Data = to, w.Data[:length*to]
			}
		}
	}
}

var variants = []variant{
	{name: "llama: RoPE on pairs, own head, no biases", config: tiny.Config{Arch: "llama"}},
	{name: "llama: tied head", config: tiny.Config{Arch: "llama", Tied: true}},
	{name: "llama: biases of q, k and v", config: tiny.Config{Arch: "llama", Edit: biases(2, 64, 32)}},
	{name: "llama: one layer", config: tiny.Config{Arch: "llama", Layers: 1}},
	{name: "qwen2: RoPE on halves, own head, biases", config: tiny.Config{Arch: "qwen2"}},
	{name: "qwen2: tied head", config: tiny.Config{Arch: "qwen2", Tied: true}},
	{name: "qwen2: no biases", config: tiny.Config{Arch: "qwen2", Edit: noBiases(2)}},
	{name: "qwen3: norms of q and k, own head", config: tiny.Config{Arch: "qwen3"}},
	{name: "qwen3: tied head, one layer", config: tiny.Config{Arch: "qwen3", Tied: true, Layers: 1}},
	{name: "gemma3: tied head, no window", config: tiny.Config{Arch: "gemma3", Tied: true}},
	{name: "gemma3: own head", config: tiny.Config{Arch: "gemma3"}},

	{name: "llama: partial RoPE", config: tiny.Config{Arch: "llama", Edit: u32("llama.rope.dimension_count", 10)}},
	{name: "qwen2: partial RoPE", config: tiny.Config{Arch: "qwen2", Edit: u32("qwen2.rope.dimension_count", 6)}},
	{name: "llama: RoPE on one pair", config: tiny.Config{Arch: "llama", Edit: u32("llama.rope.dimension_count", 2)}},
	{name: "llama: RoPE base", config: tiny.Config{Arch: "llama", Edit: f32("llama.rope.freq_base", 500000)}},
	{name: "llama: rope_freqs", config: tiny.Config{Arch: "llama", Edit: freqs([]float32{1, 1.5, 2, 3, 4, 8, 8, 8})}},
	{name: "qwen2: rope_freqs, partial RoPE", config: tiny.Config{Arch: "qwen2", Edit: edits(u32("qwen2.rope.dimension_count", 6), freqs([]float32{0.5, 2, 3}))}},

	{name: "llama: scaling none", config: tiny.Config{Arch: "llama", Edit: scaling("llama", "none", numbers{"factor": 4})}},
	{name: "llama: scaling linear", config: tiny.Config{Arch: "llama", Edit: scaling("llama", "linear", numbers{"factor": 4})}},
	{name: "llama: a factor without a type", config: tiny.Config{Arch: "llama", Edit: f32("llama.rope.scaling.factor", 8)}},
	{name: "qwen2: rope.scale_linear", config: tiny.Config{Arch: "qwen2", Edit: f32("qwen2.rope.scale_linear", 2)}},
	{name: "llama: scaling linear, rope_freqs", config: tiny.Config{Arch: "llama", Edit: edits(scaling("llama", "linear", numbers{"factor": 2}), freqs([]float32{1, 1, 2, 2, 4, 4, 8, 8}))}},
	{name: "llama: scaling linear, attn_factor", config: tiny.Config{Arch: "llama", Edit: scaling("llama", "linear", numbers{"factor": 2, "attn_factor": 1.25})}},
	{name: "llama: Llama 3's frequencies", config: tiny.Config{Arch: "llama", Edit: freqs(llama3Divisors(8, 10000, 8, 1, 4, 200))}, oracle: []string{"--llama3", "8,1,4,200"}},
	{name: "llama: Llama 3.2's frequencies", config: tiny.Config{Arch: "llama", HeadDim: 64, Edit: edits(f32("llama.rope.freq_base", 500000), freqs(llama3Divisors(32, 500000, 32, 1, 4, 8192)))}, oracle: []string{"--llama3", "32,1,4,8192"}},

	{name: "llama: YaRN by 4", config: tiny.Config{Arch: "llama", Edit: yarn("llama", 64, numbers{"factor": 4})}},
	{name: "llama: YaRN by 32 over 2048", config: tiny.Config{Arch: "llama", HeadDim: 64, Edit: yarn("llama", 2048, numbers{"factor": 32})}},
	{name: "llama: YaRN by 2.5, attn_factor", config: tiny.Config{Arch: "llama", Edit: yarn("llama", 128, numbers{"factor": 2.5, "attn_factor": 0.75})}},
	{name: "llama: YaRN with its own betas", config: tiny.Config{Arch: "llama", HeadDim: 32, Edit: yarn("llama", 512, numbers{"factor": 8, "yarn_beta_fast": 12, "yarn_beta_slow": 3})}},
	{name: "llama: YaRN over the model's context", config: tiny.Config{Arch: "llama", Context: 1024, Edit: scaling("llama", "yarn", numbers{"factor": 4})}},
	{name: "llama: YaRN, rope_freqs, partial RoPE", config: tiny.Config{Arch: "llama", HeadDim: 24, Edit: edits(u32("llama.rope.dimension_count", 16), yarn("llama", 64, numbers{"factor": 4}), freqs([]float32{1, 1, 1.5, 1.5, 2, 2, 2, 4}))}},
	{name: "llama: YaRN by less than 1", config: tiny.Config{Arch: "llama", Edit: yarn("llama", 64, numbers{"factor": 0.5})}},
	{name: "llama: YaRN with a ramp of no width", config: tiny.Config{Arch: "llama", Edit: yarn("llama", 6, numbers{"factor": 4})}},
	{name: "qwen2: YaRN by 4 over 32768", config: tiny.Config{Arch: "qwen2", Embd: 128, Heads: 2, KVHeads: 1, Edit: edits(f32("qwen2.rope.freq_base", 1e6), yarn("qwen2", 32768, numbers{"factor": 4}))}},
	{name: "qwen3: YaRN by 4 over 32768", config: tiny.Config{Arch: "qwen3", HeadDim: 64, Edit: edits(f32("qwen3.rope.freq_base", 1e6), yarn("qwen3", 32768, numbers{"factor": 4}))}},
	{name: "gemma3: YaRN in global layers", config: tiny.Config{Arch: "gemma3", Layers: 3, Window: 16, Edit: edits(u32("gemma3.attention.sliding_window_pattern", 2), yarn("gemma3", 64, numbers{"factor": 4, "attn_factor": 0.875}))}},

	{name: "gemma3: window in five of six layers", config: tiny.Config{Arch: "gemma3", Layers: 7, Window: 16, Edit: f32("gemma3.rope.freq_base", 1e6)}},
	{name: "gemma3: window by a period", config: tiny.Config{Arch: "gemma3", Layers: 5, Window: 9, Edit: edits(f32("gemma3.rope.freq_base", 1e6), u32("gemma3.attention.sliding_window_pattern", 3))}},
	{name: "gemma3: window by flags", config: tiny.Config{Arch: "gemma3", Layers: 3, Window: 20, Edit: func(m *tiny.Model) {
		m.Meta.SetBools("gemma3.attention.sliding_window_pattern", []bool{false, true, true})
	}}},
	{name: "gemma3: local RoPE base", config: tiny.Config{Arch: "gemma3", Layers: 3, Window: 16, Edit: edits(f32("gemma3.rope.freq_base_swa", 300), u32("gemma3.attention.sliding_window_pattern", 2))}},
	{name: "gemma3: linear scaling of global layers", config: tiny.Config{Arch: "gemma3", Layers: 3, Window: 16, Edit: edits(u32("gemma3.attention.sliding_window_pattern", 2), scaling("gemma3", "linear", numbers{"factor": 8}))}},
	{name: "gemma3: scores of the 27B model", config: tiny.Config{Arch: "gemma3", Layers: 62, HeadDim: 8, Window: 16}},
	{name: "gemma3: window in all layers", config: tiny.Config{Arch: "gemma3", Window: 11, Edit: func(m *tiny.Model) {
		m.Meta.SetBools("gemma3.attention.sliding_window_pattern", []bool{true, true})
	}}},
	{name: "llama: a window, which llama has not", config: tiny.Config{Arch: "llama", Window: 11}},

	{name: "llama: as many KV heads as heads", config: tiny.Config{Arch: "llama", Embd: 128, Heads: 8, KVHeads: 8}},
	{name: "qwen2: two heads to a KV head", config: tiny.Config{Arch: "qwen2", Embd: 128, Heads: 8, KVHeads: 4}},
	{name: "llama: one KV head for eight", config: tiny.Config{Arch: "llama", Embd: 128, Heads: 8, KVHeads: 1}},
	{name: "llama: heads wider than the model", config: tiny.Config{Arch: "llama", HeadDim: 32}},
	{name: "qwen2: heads narrower than the model", config: tiny.Config{Arch: "qwen2", HeadDim: 8}},
	{name: "qwen3: heads wider than the model, base of a million", config: tiny.Config{Arch: "qwen3", KVHeads: 1, HeadDim: 128, Edit: f32("qwen3.rope.freq_base", 1e6)}},
	{name: "gemma3: heads of an odd share", config: tiny.Config{Arch: "gemma3", Heads: 3, KVHeads: 1, HeadDim: 32}},
	{name: "llama: KV heads by layer", config: tiny.Config{Arch: "llama", KVHeads: 4, Layers: 3, Edit: edits(
		func(m *tiny.Model) { m.Meta.SetUint32s("llama.attention.head_count_kv", []uint32{4, 1, 2}) },
		shrink(false, 16, "blk.1.attn_k.weight", "blk.1.attn_v.weight"), shrink(false, 32, "blk.2.attn_k.weight", "blk.2.attn_v.weight"))}},
	{name: "llama: feed-forward by layer", config: tiny.Config{Arch: "llama", FF: 128, Layers: 3, Edit: edits(
		func(m *tiny.Model) { m.Meta.SetUint32s("llama.feed_forward_length", []uint32{128, 32, 96}) },
		shrink(false, 32, "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight"), shrink(true, 32, "blk.1.ffn_down.weight"),
		shrink(false, 96, "blk.2.ffn_gate.weight", "blk.2.ffn_up.weight"), shrink(true, 96, "blk.2.ffn_down.weight"))}},

	{name: "llama: score scale", config: tiny.Config{Arch: "llama", Edit: f32("llama.attention.scale", 0.0625)}},
	{name: "llama: a large epsilon", config: tiny.Config{Arch: "llama", Edit: f32("llama.attention.layer_norm_rms_epsilon", 0.25)}},
	{name: "llama: an odd vocabulary", config: tiny.Config{Arch: "llama", Vocab: 333}},
	{name: "llama: a vocabulary padded with unused tokens", config: tiny.Config{Arch: "llama", Vocab: 1024, Tied: true}},
}

func yarn(arch string, context uint32, n numbers) func(*tiny.Model) {
	return edits(scaling(arch, "yarn", n), u32(arch+".rope.scaling.original_context_length", context))
}

func findVariant(t *testing.T, name string) *variant {
	t.Helper()
	i := slices.IndexFunc(variants, func(v variant) bool { return v.name == name })
	if i < 0 {
		t.Fatalf("no variant %q", name)
	}
	return &variants[i]
}

// variantIDs is the prompt of all variants: longer than two pages and than every window.
func variantIDs() []int32 {
	ids := make([]int32, 40)
	for i := range ids {
		ids[i] = int32(i * i % 251)
	}
	return ids
}

// TestVariants compares models that each differ in one property with the oracle: fused and unfused,
// on the CPU and on the virtual device, every layer and logit of every position, with the bounds of
// the real models. It also compares fast with exact.
func TestVariants(t *testing.T) {
	ids := variantIDs()
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			m := v.open(t)
			oracle := v.ask(t, m, ids)
			for _, passes := range []string{"", "none"} {
				got := compare(m.collect(t, ids, lower.Options{Ubatch: 33, Passes: passes}, len(ids), nil, nil), oracle)
				t.Logf("passes %q: %v", passes, got)
				if !got.passes() {
					t.Errorf("passes %q: %v", passes, got)
				}
			}
			if !testing.Short() {
				got := compare(m.collect(t, ids, lower.Options{Target: plan.CUDA, Ubatch: 33}, len(ids), nil, nil), oracle)
				t.Logf("on a device: %v", got)
				if !got.passes() {
					t.Errorf("on a device: %v", got)
				}
			}
			exact := m.logits(t, ids, lower.Options{Precision: "exact", Ubatch: 33, Threads: 2})
			fast := m.logits(t, ids, lower.Options{Precision: "fast", Activations: "q8x2", Ubatch: 33, Threads: 2})
			var all metrics.Logits
			for i := range exact {
				all.Add(exact[i], fast[i])
			}
			t.Logf("fast: mean KL %.1e", all.MeanKL())
			if kl := all.MeanKL(); !(kl <= 1e-4) {
				t.Errorf("fast: mean KL %.1e, want at most 1e-4", kl)
			}
		})
	}
}

// TestVariantsGreedy compares the tokens that a model of every architecture generates with the
// oracle. There is no real qwen3 among the models, so this test covers that architecture.
func TestVariantsGreedy(t *testing.T) {
	for _, name := range []string{
		"llama: RoPE on pairs, own head, no biases",
		"qwen2: RoPE on halves, own head, biases",
		"qwen3: norms of q and k, own head",
		"gemma3: window in five of six layers",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			findVariant(t, name).open(t).checkGreedy(t, variantIDs())
		})
	}
}

// ask runs the oracle.
func (v *variant) ask(t *testing.T, m *model, ids []int32) *oraclePass {
	t.Helper()
	return readPass(t, len(ids), m.path, slices.Concat([]string{"--ids", joinIDs(ids), "--floor"}, v.oracle)...)
}

// open writes the model with quantized matrices, so that fast uses integer kernels, and opens it.
func (v *variant) open(t *testing.T) *model {
	t.Helper()
	c := v.config
	c.Types = []quant.Type{quant.Q8_0, quant.F16, quant.Q5_1}
	f := tiny.Mapped(t, c)
	return &model{v.name, f.Path, f}
}

// variantFaults are errors that a program could make in RoPE or before it. Each is an edit of every
// RoPE node, which rotates a layer's q or k.
var variantFaults = []struct {
	name, variant string
	edit          func(n *graph.Node)
}{
	{"the other layout", "llama: RoPE on pairs, own head, no biases", func(n *graph.Node) { n.Attr["layout"] = ops.Halves }},
	{"the whole head for a part of it", "llama: partial RoPE", func(n *graph.Node) { n.Attr["rot"] = n.Attr["head_dim"] }},
	{"rope_freqs ignored", "llama: rope_freqs", func(n *graph.Node) { n.In[2] = nil }},
	{"linear scaling ignored", "llama: scaling linear", func(n *graph.Node) { n.Attr["freq_scale"] = 1.0 }},
	{"linear scaling inverted", "llama: scaling linear", func(n *graph.Node) { n.Attr["freq_scale"] = 1 / n.Attr.Float("freq_scale") }},
	{"Llama 3's frequencies ignored", "llama: Llama 3's frequencies", func(n *graph.Node) { n.In[2] = nil }},
	{"YaRN as linear scaling", "llama: YaRN by 4", func(n *graph.Node) { delete(n.Attr, "ramp_low"); delete(n.Attr, "ramp_high") }},
	{"a ramp that ends one pair later", "llama: YaRN by 4", func(n *graph.Node) { n.Attr["ramp_high"] = n.Attr.Float("ramp_high") + 1 }},
	{"a ramp that starts one pair later", "llama: YaRN with its own betas", func(n *graph.Node) { n.Attr["ramp_low"] = n.Attr.Float("ramp_low") + 1 }},
	{"a ramp between broken pairs", "llama: YaRN by 32 over 2048", func(n *graph.Node) { n.Attr["ramp_high"] = n.Attr.Float("ramp_high") - 0.5 }},
	{"magnitude forgotten", "llama: YaRN by 4", func(n *graph.Node) { delete(n.Attr, "magnitude") }},
	{"magnitude on scores, not on q and k each", "llama: YaRN by 4", func(n *graph.Node) { n.Attr["magnitude"] = math.Sqrt(n.Attr.Float("magnitude")) }},
	{"attn_factor forgotten", "llama: scaling linear, attn_factor", func(n *graph.Node) { delete(n.Attr, "magnitude") }},
	{"norms of q and k forgotten", "qwen3: norms of q and k, own head", func(n *graph.Node) { n.In[0] = n.In[0].Def.In[0] }},
	{"one base for all layers", "gemma3: local RoPE base", func(n *graph.Node) { n.Attr["base"] = 10000.0 }},
}

// TestVariantFaults seeds each fault into a model that it must affect.
func TestVariantFaults(t *testing.T) {
	ids := variantIDs()
	for _, f := range variantFaults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			v := findVariant(t, f.variant)
			m := v.open(t)
			got := compare(m.collect(t, ids, lower.Options{Ubatch: 33}, len(ids), func(g *graph.Graph) {
				for _, n := range g.Nodes {
					if n.Op == ops.Rope {
						f.edit(n)
					}
				}
			}, nil), v.ask(t, m, ids))
			t.Log(got)
			if got.worst <= 1 {
				t.Errorf("not caught: %v", got)
			}
		})
	}
}
