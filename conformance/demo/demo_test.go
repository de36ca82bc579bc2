package demo_test

import (
	"testing"

	"pesti/conformance/demo"
	"pesti/gguf"
	"pesti/gguf/quant"
)

// maxBytes keeps the binary that embeds the model small.
const maxBytes = 2 << 20

func open(t *testing.T) *gguf.File {
	t.Helper()
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSound(t *testing.T) {
	f := open(t)
	if n := len(demo.GGUF()); n > maxBytes {
		t.Errorf("demo.gguf has %d bytes, want at most %d", n, maxBytes)
	}
	for _, finding := range f.Check() {
		t.Error(finding)
	}
	for _, warning := range f.Warnings() {
		t.Error(warning)
	}
}

// The demo replaces the large models where they are missing, so it must have the same difficult
// properties.
func TestHasWhatLargeModelsHave(t *testing.T) {
	f := open(t)
	types := map[quant.Type]int{}
	for _, tensor := range f.Tensors() {
		types[tensor.Type]++
	}
	for _, typ := range []quant.Type{quant.Q4_K, quant.Q6_K, quant.Q8_0, quant.F32} {
		if types[typ] == 0 {
			t.Errorf("no tensor of type %s", typ)
		}
	}
	for key, want := range map[string]uint64{
		"qwen2.block_count":             4,
		"qwen2.embedding_length":        256,
		"qwen2.attention.head_count":    4,
		"qwen2.attention.head_count_kv": 2,
		"general.quantization_version":  2,
	} {
		if got, err := f.Uint(key); err != nil || got != want {
			t.Errorf("%s is %d (%v), want %d", key, got, err, want)
		}
	}
	for _, name := range []string{"blk.0.attn_q.bias", "blk.3.attn_k.bias", "blk.3.attn_v.bias"} {
		if _, ok := f.Tensor(name); !ok {
			t.Errorf("no tensor %q", name)
		}
	}
}

func TestTokenizerIsWhole(t *testing.T) {
	f := open(t)
	tokens, err := f.Strs("tokenizer.ggml.tokens")
	if err != nil {
		t.Fatal(err)
	}
	types, err := f.Ints("tokenizer.ggml.token_type")
	if err != nil {
		t.Fatal(err)
	}
	embedding, ok := f.Tensor("token_embd.weight")
	if !ok || embedding.Rows() != int64(len(tokens)) || len(types) != len(tokens) {
		t.Fatalf("%d tokens, %d types, embedding %+v: want the same number of each", len(tokens), len(types), embedding)
	}
	eos, err := f.Uint("tokenizer.ggml.eos_token_id")
	if err != nil || eos >= uint64(len(tokens)) || types[eos] != 3 {
		t.Errorf("end of text %d (%v): want a control token", eos, err)
	}
	single := map[string]bool{}
	for _, token := range tokens {
		if n := len([]rune(token)); n == 1 {
			single[token] = true
		}
	}
	if len(single) != 256 {
		t.Errorf("%d single-byte tokens, want 256, or some text cannot be encoded", len(single))
	}
}

// Callers may pass the bytes to code that changes them.
func TestGGUFCopies(t *testing.T) {
	demo.GGUF()[0] = 'x'
	open(t)
}
