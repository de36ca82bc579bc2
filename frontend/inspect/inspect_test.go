package inspect

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/tiny"
	"pesti/gguf"
	"pesti/gguf/quant"
)

// file returns the file that a function fills.
func file(t *testing.T, fill func(w *gguf.Writer)) *gguf.File {
	t.Helper()
	w := gguf.NewWriter()
	if fill != nil {
		fill(w)
	}
	var b bytes.Buffer
	if err := w.Write(&b); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse("f.gguf", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestDescribe compares the description of a small file with one written by hand.
func TestDescribe(t *testing.T) {
	f := file(t, func(w *gguf.Writer) {
		w.SetStr("general.architecture", "mamba9")
		w.SetUint32s("long", make([]uint32, longArray+1))
		w.SetUint32s("short", make([]uint32, longArray))
		w.AddTensor("a", quant.F32, []int64{3}, make([]byte, 12))
		w.AddTensor("b", quant.Q8_0, []int64{32, 2}, make([]byte, 68))
		w.AddTensor("c", quant.F32, nil, make([]byte, 4))
		w.AddTensor("d", quant.F16, []int64{8}, make([]byte, 16))
		w.AddTensor("e", quant.I8, []int64{0, 4}, nil)
	})
	d := Describe(f)
	if d.File != "f.gguf" || d.Size != f.Size || d.Version != 3 || d.Architecture != "mamba9" || d.Supported || d.Name != "" {
		t.Errorf("%+v", d)
	}
	if d.Parameters != 3+64+1+8 || d.KeyCount != 3 || d.TensorCount != 5 {
		t.Errorf("%d parameters, %d keys, %d tensors", d.Parameters, d.KeyCount, d.TensorCount)
	}
	// By bytes, then by name: both F16 and F32 have 16 bytes.
	if want := []Type{{"Q8_0", 1, 68}, {"F16", 1, 16}, {"F32", 2, 16}, {"I8", 1, 0}}; !slices.Equal(d.Types, want) {
		t.Errorf("types are %+v, want %+v", d.Types, want)
	}
	for i, want := range []struct {
		key, typ string
		value    bool
	}{{"general.architecture", "string", true}, {"long", "[257]u32", false}, {"short", "[256]u32", true}} {
		if k := d.Metadata[i]; k.Key != want.key || k.Type != want.typ || (k.Value != nil) != want.value || k.Text == "" {
			t.Errorf("key %d is %+v, want %+v", i, k, want)
		}
	}
	all := f.Tensors()
	for i, want := range []Tensor{
		{"a", "F32", []int64{3}, 12, all[0].Offset, 0}, {"b", "Q8_0", []int64{32, 2}, 68, all[1].Offset, 0},
		{"c", "F32", []int64{}, 4, all[2].Offset, 0}, {"d", "F16", []int64{8}, 16, all[3].Offset, 0}, {"e", "I8", []int64{0, 4}, 0, all[4].Offset, 0},
	} {
		got := d.Tensors[i]
		if !slices.Equal(got.Dims, want.Dims) || got.Dims == nil {
			t.Errorf("tensor %s has dims %v, want %v", want.Name, got.Dims, want.Dims)
		}
		if got.Name != want.Name || got.Type != want.Type || got.Bytes != want.Bytes || got.Offset != want.Offset || got.Shard != want.Shard {
			t.Errorf("tensor %d is %+v, want %+v", i, got, want)
		}
	}
	if d.Tensors[0].Dims[0] = 99; all[0].Dims[0] != 3 {
		t.Error("the description shares the dims of the file")
	}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"supported":false`, `{"key":"long","type":"[257]u32"}`, `"dims":[]`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("the JSON has no %s: %s", part, text)
		}
	}
}

func TestDescribeEmpty(t *testing.T) {
	text, err := json.Marshal(Describe(file(t, nil)))
	if want := `{"file":"f.gguf","size":32,"version":3,"architecture":"","supported":false,"name":"","parameters":0,"key_count":0,"tensor_count":0,"types":[],"metadata":[]}`; err != nil || string(text) != want {
		t.Errorf("an empty file is %s, %v, want %s", text, err, want)
	}
	if d := Describe(tiny.File(t, tiny.Config{Arch: "llama"})); !d.Supported || d.Name != "tiny llama" {
		t.Errorf("a llama is %+v", d)
	}
}

// TestCheck adds faults to a sound model.
func TestCheck(t *testing.T) {
	f32 := func(name string, at int, x float32) func(m *tiny.Model) {
		return func(m *tiny.Model) { m.Tensor(name).Data[at] = x }
	}
	for _, c := range []struct {
		name             string
		edit             func(m *tiny.Model)
		faults, warnings []string // parts of the lines
	}{
		{"sound", nil, nil, nil},
		{"NaN", f32("output_norm.weight", 5, float32(math.NaN())), []string{`tensor "output_norm.weight", block 5: the value is NaN`}, nil},
		{"Inf", f32("blk.1.attn_q.weight", 0, float32(math.Inf(-1))), []string{`tensor "blk.1.attn_q.weight", block 0: the value is -Inf`}, nil},
		{"a hyper-parameter", func(m *tiny.Model) { m.Meta.SetUint32("qwen2.attention.head_count", 0) }, []string{"qwen2.attention.head_count is 0"}, nil},
		{"a tensor is missing", func(m *tiny.Model) { m.Drop("blk.0.ffn_up.weight") }, []string{"blk.0.ffn_up.weight"}, nil},
		{"no tensors", func(m *tiny.Model) { m.Tensors = nil }, nil, nil},
		{"no tensors, and a fault of a hyper-parameter", func(m *tiny.Model) {
			m.Tensors = nil
			m.Meta.SetUint32("qwen2.attention.head_count", 0)
		}, nil, nil},
		{"another architecture", func(m *tiny.Model) { m.Meta.SetStr("general.architecture", "mamba9") },
			nil, []string{`architecture "mamba9" is not supported, so that hyper-parameters and shapes are not checked`}},
		{"no architecture", func(m *tiny.Model) { m.Meta.SetUint32("general.architecture", 1) }, []string{"general.architecture"}, nil},
		{"a control token that is typed as text", func(m *tiny.Model) { m.Meta.SetInt32s("tokenizer.ggml.token_type", slices.Repeat([]int32{1}, 300)) },
			nil, []string{`tokenizer.ggml.token_type: 1 tokens are typed as normal text, expected control tokens: "<|endoftext|>"`}},
		{"a window", func(m *tiny.Model) { m.Meta.SetUint32("qwen2.attention.sliding_window", 8) }, nil, []string{"qwen2.attention.sliding_window is 8: ignored"}},
		{"the tokenizer", func(m *tiny.Model) { m.Meta.SetStr("tokenizer.ggml.pre", "martian") }, []string{"martian"}, nil},
		{"all of them", func(m *tiny.Model) {
			m.Meta.SetStr("tokenizer.ggml.pre", "martian")
			m.Meta.SetUint32("qwen2.block_count", 0)
			f32("output_norm.weight", 0, float32(math.NaN()))(m)
		}, []string{"output_norm.weight", "qwen2.block_count is 0", "martian"}, nil},
	} {
		faults, warnings := Check(tiny.File(t, tiny.Config{Edit: c.edit}))
		for _, list := range []struct {
			what      string
			got, want []string
		}{{"faults", faults, c.faults}, {"warnings", warnings, c.warnings}} {
			if !slices.EqualFunc(list.got, list.want, func(got, want string) bool {
				return strings.HasPrefix(got, "tiny.gguf: ") && strings.Contains(got, want) && !strings.Contains(got, "\n")
			}) {
				t.Errorf("%s: %s are %q, want %q", c.name, list.what, list.got, list.want)
			}
		}
	}
	if faults, warnings := Check(file(t, nil)); len(faults) != 1 || len(warnings) != 0 || !strings.Contains(faults[0], "general.architecture") {
		t.Errorf("an empty file: %q, %q", faults, warnings)
	}
}
