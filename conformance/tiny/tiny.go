// Package tiny builds small models with random weights in memory, of every architecture and tensor
// type, for tests that need a whole model but no meaningful text. A [Seeded] model is one that programs in
// other languages can build too.
//
// It defines the shapes and names of their tensors, and imports only gguf and gguf/quant. It must
// not import the frontend, which is tested on its output.
package tiny

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"pesti/gguf"
	"pesti/gguf/quant"
)

// A Config describes a model. The zero value of a field is a small default.
type Config struct {
	Arch    string // "llama", "qwen2" (the default), "qwen3", "gemma3"
	Layers  int    // 2
	Embd    int    // 64
	Heads   int    // 4
	KVHeads int    // 2
	HeadDim int    // Embd/Heads; a key_length is written where it differs
	FF      int    // 96
	Vocab   int    // 300; at least 258
	Context int    // 256
	Window  int    // gemma3 only, 0 for none
	Tied    bool   // no output.weight
	Seed    uint64

	// Types of the matrices, used in rotation; F32 if empty. Matrices whose rows do not fill blocks of
	// the type stay F32. A matrix of a type without a quantizer has random blocks, of about the size of
	// its values.
	Types []quant.Type
	// Edit changes metadata and tensors before they are written.
	Edit func(m *Model)
}

// A Model is the data that Edit may change: metadata by key, and float tensors by name.
type Model struct {
	Meta    *gguf.Writer
	Tensors []Tensor
}

// A Tensor is a matrix or vector in float32, with the type to store it in. Dims are as in GGUF:
// the length of a row first.
type Tensor struct {
	Name string
	Type quant.Type
	Dims []int64
	Data []float32
	Raw  []byte // bytes to store instead of Data, for types without a quantizer
}

// Tensor returns the tensor of that name, or nil.
func (m *Model) Tensor(name string) *Tensor {
	for i := range m.Tensors {
		if m.Tensors[i].Name == name {
			return &m.Tensors[i]
		}
	}
	return nil
}

// Drop removes a tensor.
func (m *Model) Drop(name string) {
	for i := range m.Tensors {
		if m.Tensors[i].Name == name {
			m.Tensors = append(m.Tensors[:i], m.Tensors[i+1:]...)
			return
		}
	}
}

func def(p *int, v int) {
	if *p == 0 {
		*p = v
	}
}

// GGUF returns the bytes of a model file.
func GGUF(c Config) ([]byte, error) {
	if c.Arch == "" {
		c.Arch = "qwen2"
	}
	def(&c.Layers, 2)
	def(&c.Embd, 64)
	def(&c.Heads, 4)
	def(&c.KVHeads, 2)
	def(&c.FF, 96)
	def(&c.Vocab, 300)
	def(&c.Context, 256)
	def(&c.HeadDim, c.Embd/c.Heads)

	w := gguf.NewWriter()
	a := c.Arch + "."
	w.SetStr("general.architecture", c.Arch)
	w.SetStr("general.name", "tiny "+c.Arch)
	w.SetUint32(a+"block_count", uint32(c.Layers))
	w.SetUint32(a+"context_length", uint32(c.Context))
	w.SetUint32(a+"embedding_length", uint32(c.Embd))
	w.SetUint32(a+"feed_forward_length", uint32(c.FF))
	w.SetUint32(a+"attention.head_count", uint32(c.Heads))
	w.SetUint32(a+"attention.head_count_kv", uint32(c.KVHeads))
	w.SetFloat32(a+"attention.layer_norm_rms_epsilon", 1e-6)
	w.SetFloat32(a+"rope.freq_base", 10000)
	if c.HeadDim*c.Heads != c.Embd {
		w.SetUint32(a+"attention.key_length", uint32(c.HeadDim))
		w.SetUint32(a+"attention.value_length", uint32(c.HeadDim))
	}
	if c.Window > 0 {
		w.SetUint32(a+"attention.sliding_window", uint32(c.Window))
	}
	vocabulary(w, c.Vocab)

	m := &Model{Meta: w, Tensors: tensors(c)}
	if c.Edit != nil {
		c.Edit(m)
	}
	return m.bytes()
}

// bytes encodes the tensors and returns the file.
func (m *Model) bytes() ([]byte, error) {
	for _, t := range m.Tensors {
		if t.Raw != nil {
			m.Meta.AddTensor(t.Name, t.Type, t.Dims, t.Raw)
			continue
		}
		data, err := encode(t)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		m.Meta.AddTensor(t.Name, t.Type, t.Dims, data)
	}
	var out bytes.Buffer
	err := m.Meta.Write(&out)
	return out.Bytes(), err
}

// File returns the model as an open file called tiny.gguf. A testing.TB and a rapid.T are a TB.
func File(t TB, c Config) *gguf.File {
	t.Helper()
	data, err := GGUF(c)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse("tiny.gguf", data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A TB is the part of testing.TB that File uses.
type TB interface {
	Helper()
	Fatal(args ...any)
}

// Mapped is File with a mapped file on disk, in a temporary folder of the test.
func Mapped(t testing.TB, c Config) *gguf.File {
	t.Helper()
	data, err := GGUF(c)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// vocabulary writes a byte-level BPE of 256 bytes, an end token, and unused tokens.
func vocabulary(w *gguf.Writer, n int) {
	var tokens []string
	var types []int32
	for b := range 256 {
		tokens, types = append(tokens, string(byteRune(b))), append(types, 1)
	}
	tokens, types = append(tokens, "<|endoftext|>"), append(types, 3)
	for len(tokens) < n {
		tokens, types = append(tokens, fmt.Sprintf("<unused%d>", len(tokens))), append(types, 5)
	}
	w.SetStr("tokenizer.ggml.model", "gpt2")
	w.SetStr("tokenizer.ggml.pre", "gpt-2")
	w.SetStrs("tokenizer.ggml.tokens", tokens)
	w.SetInt32s("tokenizer.ggml.token_type", types)
	w.SetStrs("tokenizer.ggml.merges", []string{})
	w.SetUint32("tokenizer.ggml.eos_token_id", 256)
	w.SetBool("tokenizer.ggml.add_bos_token", false)
}

// byteRune is GPT-2's printable stand-in for a byte.
func byteRune(b int) rune {
	if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
		return rune(b)
	}
	n := 0
	for x := range b {
		if !(x >= '!' && x <= '~' || x >= 0xa1 && x <= 0xac || x >= 0xae) {
			n++
		}
	}
	return rune(256 + n)
}

func tensors(c Config) []Tensor {
	var list []Tensor
	turn := 0
	add := func(name string, rows, length int) {
		rng := rand.New(rand.NewPCG(c.Seed, uint64(len(list))))
		t := Tensor{Name: name, Type: quant.F32, Data: make([]float32, max(rows, 1)*length)}
		spread, mean := 1/math.Sqrt(float64(length)), 0.0
		if rows == 0 { // a norm or a bias
			t.Dims = []int64{int64(length)}
			spread = 0.1
			if name[len(name)-4:] != "bias" {
				mean = 1
			}
		} else {
			t.Dims = []int64{int64(length), int64(rows)}
			if len(c.Types) > 0 {
				typ := c.Types[turn%len(c.Types)]
				turn++
				if info, ok := quant.Lookup(typ); ok && length%info.BlockLen == 0 {
					t.Type = typ
				}
			}
		}
		for i := range t.Data {
			t.Data[i] = float32(mean + spread*rng.NormFloat64())
		}
		list = append(list, t)
	}
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	add("token_embd.weight", c.Vocab, c.Embd)
	for i := range c.Layers {
		blk := func(name string) string { return fmt.Sprintf("blk.%d.%s", i, name) }
		add(blk("attn_norm.weight"), 0, c.Embd)
		add(blk("attn_q.weight"), q, c.Embd)
		add(blk("attn_k.weight"), kv, c.Embd)
		add(blk("attn_v.weight"), kv, c.Embd)
		add(blk("attn_output.weight"), c.Embd, q)
		add(blk("ffn_norm.weight"), 0, c.Embd)
		add(blk("ffn_gate.weight"), c.FF, c.Embd)
		add(blk("ffn_up.weight"), c.FF, c.Embd)
		add(blk("ffn_down.weight"), c.Embd, c.FF)
		switch c.Arch {
		case "qwen2":
			add(blk("attn_q.bias"), 0, q)
			add(blk("attn_k.bias"), 0, kv)
			add(blk("attn_v.bias"), 0, kv)
		case "qwen3":
			add(blk("attn_q_norm.weight"), 0, c.HeadDim)
			add(blk("attn_k_norm.weight"), 0, c.HeadDim)
		case "gemma3":
			add(blk("attn_q_norm.weight"), 0, c.HeadDim)
			add(blk("attn_k_norm.weight"), 0, c.HeadDim)
			add(blk("post_attention_norm.weight"), 0, c.Embd)
			add(blk("post_ffw_norm.weight"), 0, c.Embd)
		}
	}
	add("output_norm.weight", 0, c.Embd)
	if !c.Tied {
		add("output.weight", c.Vocab, c.Embd)
	}
	return list
}
