package frontend

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pesti/conformance/tiny"
	"pesti/gguf"
)

// saved sets the keys that llama.cpp writes when it saves a tiny model: see testdata/saved.py.
func saved(t *testing.T, file, arch string, w *gguf.Writer) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		field := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		key, kind, value := arch+"."+field[0], field[1], field[2]
		real, _ := strconv.ParseFloat(value, 32)
		whole, _ := strconv.ParseInt(value, 10, 64)
		kind, size, isArray := strings.Cut(kind, "[")
		if isArray {
			n, err := strconv.Atoi(strings.TrimSuffix(size, "]"))
			if err != nil {
				t.Fatal(err)
			}
			switch kind {
			case "float32":
				w.SetFloat32s(key, slices.Repeat([]float32{float32(real)}, n))
			case "int32":
				w.SetInt32s(key, slices.Repeat([]int32{int32(whole)}, n))
			case "array", "string": // empty
				w.SetStrs(key, nil)
			case "uint32":
				list := []uint32{}
				for _, word := range strings.Split(value, ",") {
					x, _ := strconv.ParseUint(word, 10, 32)
					list = append(list, uint32(x))
				}
				w.SetUint32s(key, list)
			default:
				t.Fatalf("%s: unknown type %s", file, kind)
			}
			continue
		}
		switch kind {
		case "float32":
			w.SetFloat32(key, float32(real))
		case "int32":
			w.SetInt32(key, int32(whole))
		case "uint32":
			w.SetUint32(key, uint32(whole))
		case "bool":
			w.SetBool(key, value == "True")
		case "string":
			w.SetStr(key, value)
		default:
			t.Fatalf("%s: unknown type %s", file, kind)
		}
	}
}

// TestSavedByLlamaCpp checks that a model with all keys that llama.cpp writes has the hyper-parameters of the
// model without them, and no warning.
func TestSavedByLlamaCpp(t *testing.T) {
	for _, c := range []struct {
		arch, file string
		window     int
	}{
		{"llama", "saved-llama.txt", 0}, {"qwen2", "saved-llama.txt", 0}, {"qwen3", "saved-llama.txt", 0}, {"gemma3", "saved-gemma3.txt", 16},
	} {
		config := tiny.Config{Arch: c.arch, Layers: 7, Window: c.window}
		want, err := load(t, config)
		if err != nil {
			t.Fatal(err)
		}
		config.Edit = func(m *tiny.Model) { saved(t, c.file, c.arch, m.Meta) }
		got, err := load(t, config)
		if err != nil {
			t.Error(err)
			continue
		}
		p, q := *want.Params, *got.Params
		p.Asked, q.Asked = nil, nil
		if !reflect.DeepEqual(p, q) || len(got.Warnings) > 0 {
			t.Errorf("%s: %+v, want %+v; warnings %q, want none", c.arch, q, p, got.Warnings)
		}
	}
}

// TestNeutralValues gives keys that are not known the values of other architectures.
func TestNeutralValues(t *testing.T) {
	try := func(edit func(w *gguf.Writer)) (*Model, error) {
		return load(t, tiny.Config{Arch: "llama", Edit: func(m *tiny.Model) { edit(m.Meta) }})
	}
	for _, key := range []string{"attention.something_new", "rope.something_new", "something_new"} {
		for _, v := range []any{uint32(0), float32(0), false, "", uint64(0), []uint32{}, []uint32{0, 0, 0}} {
			if m, err := try(set("llama."+key, v)); err != nil || len(m.Warnings) > 0 {
				t.Errorf("%s = %v: error %v, or a warning; want neither", key, v, err)
			}
		}
		for _, v := range []any{uint32(1), float32(-1), true, "none", []uint32{0, 0, 1}} {
			m, err := try(set("llama."+key, v))
			if strings.Contains(key, ".") {
				refuses(t, err, "llama."+key)
			} else if err != nil || len(m.Warnings) != 1 || !strings.Contains(m.Warnings[0], "llama."+key) {
				t.Errorf("%s = %v: error %v, warnings %q; want one that names it", key, v, err, m.Warnings)
			}
		}
	}
	for key, value := range unused {
		if _, err := try(set("llama."+key, value+"1")); strings.HasPrefix(key, "attention.") && err == nil {
			t.Errorf("%s = %s1 is accepted", key, value)
		}
	}
}

// TestWindowOfModelsWithout checks that architectures without sliding windows ignore the key, as llama.cpp does, and
// say so; 0 is no window.
func TestWindowOfModelsWithout(t *testing.T) {
	for _, arch := range []string{"llama", "qwen2", "qwen3", "gemma3"} {
		for _, window := range []any{uint32(0), uint32(17), int32(0)} {
			m, err := load(t, tiny.Config{Arch: arch, Edit: func(m *tiny.Model) { set(arch+".attention.sliding_window", window)(m.Meta) }})
			if err != nil {
				t.Error(err)
				continue
			}
			var want int64
			var warnings []string
			if window == uint32(17) {
				if want = 17; arch != "gemma3" {
					want, warnings = 0, []string{fmt.Sprintf("tiny.gguf: %s.attention.sliding_window is 17: ignored, since architecture %s has no sliding window", arch, arch)}
				}
			}
			if m.Params.Layers[0].Window != want || !slices.Equal(m.Warnings, warnings) {
				t.Errorf("%s, window %v: the window is %d, want %d; warnings %q, want %q", arch, window, m.Params.Layers[0].Window, want, m.Warnings, warnings)
			}
		}
	}
}

// TestSynonyms gives keys the names that ollama's converter gives them, and adds the keys and tensors of an image
// encoder.
func TestSynonyms(t *testing.T) {
	m, err := load(t, tiny.Config{Arch: "llama", Edit: func(m *tiny.Model) {
		m.Meta.SetUint32("llama.attention.head_dim", 16)
		m.Meta.SetUint32("llama.attention.value_length", 16)
		m.Meta.SetUint32("llama.rope.dimension_count", 16)
	}})
	if err != nil || m.Params.HeadDim != 16 || len(m.Warnings) > 0 {
		t.Errorf("head_dim: error %v, %+v", err, m)
	}
	m, err = load(t, tiny.Config{Arch: "gemma3", Layers: 7, Window: 16, Edit: func(m *tiny.Model) {
		w := m.Meta
		w.SetFloat32("gemma3.rope.local.freq_base", 300)
		w.SetStr("gemma3.rope.scaling.type", "yarn")
		w.SetFloat32("gemma3.rope.scaling.factor", 4)
		w.SetFloat32("gemma3.rope.scaling.extrapolation_factor", 1)
		w.SetFloat32("gemma3.rope.scaling.beta_fast", 64)
		w.SetUint32("gemma3.mm.tokens_per_image", 256)
		w.SetUint32("gemma3.vision.block_count", 27)
		w.SetFloat32("gemma3.vision.attention.layer_norm_epsilon", 1e-6)
		m.Add("v.blk.0.attn_k.bias", ones(8))
		m.Add("v.patch_embedding.bias", ones(8))
		m.Add("mm.mm_soft_emb_norm.weight", ones(8))
	}})
	if err != nil {
		t.Fatal(err)
	}
	if r := m.Params.Layers[0].Rope; r.Base != 300 {
		t.Errorf("rope.local.freq_base: %+v", r)
	}
	fast, err := load(t, tiny.Config{Arch: "gemma3", Layers: 7, Window: 16, Edit: func(m *tiny.Model) {
		m.Rope("gemma3", "yarn", map[string]float32{"factor": 4, "yarn_beta_fast": 64})
	}})
	if err != nil || m.Params.Layers[5].Rope != fast.Params.Layers[5].Rope {
		t.Errorf("beta_fast: error %v, %+v, want %+v", err, m.Params.Layers[5].Rope, fast.Params.Layers[5].Rope)
	}
	want := []string{
		"tiny.gguf: 3 keys describe the parts for images or sounds, which are not used: gemma3.mm.tokens_per_image, gemma3.vision.block_count, gemma3.vision.attention.layer_norm_epsilon",
		"tiny.gguf: 3 tensors belong to the parts for images or sounds, which are not used: v.blk.0.attn_k.bias, v.patch_embedding.bias, mm.mm_soft_emb_norm.weight",
	}
	if !slices.Equal(m.Warnings, want) {
		t.Errorf("warnings %q, want %q", m.Warnings, want)
	}
	_, err = load(t, tiny.Config{Arch: "gemma3", Edit: func(m *tiny.Model) { m.Meta.SetFloat32("gemma3.final_logit_softcapping", 30) }})
	refuses(t, err, "gemma3.final_logit_softcapping is 30")
	_, err = load(t, tiny.Config{Arch: "gemma3", Edit: func(m *tiny.Model) { m.Meta.SetUint32("gemma3.attention.key_length_swa", 32) }})
	refuses(t, err, "gemma3.attention.key_length_swa is 32")
}
