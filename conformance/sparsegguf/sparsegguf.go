// Package sparsegguf writes sparse model files: the header of a large model, followed by a hole
// instead of weights. A hole reads as zeros and takes no space on disk. The files serve tests of
// code that runs before a weight is read, with models of any size. The frequency factors of RoPE
// are read together with the header, so they are written: all ones.
//
// It imports gguf and gguf/quant, to write the files, and conformance/testenv.
package sparsegguf

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"pesti/conformance/testenv"
	"pesti/gguf"
	"pesti/gguf/quant"
)

// A Shape is the hyper-parameters of a model of the llama architecture.
type Shape struct {
	Name                         string
	Layers, Embd, Heads, KVHeads int
	FF, Vocab, Context           int
	RopeBase                     float32
	RopeFreqs                    bool       // has a factor for each frequency
	Type                         quant.Type // of the matrices
}

// Shapes are published models, from small to large (arXiv:2307.09288, arXiv:2407.21783), each in a
// tensor type that it is published in. The largest takes 812 GB.
var Shapes = [...]Shape{
	{Name: "Llama-2-7B", Layers: 32, Embd: 4096, Heads: 32, KVHeads: 32, FF: 11008, Vocab: 32000, Context: 4096, RopeBase: 10000, Type: quant.F16},
	{Name: "Llama-3-70B", Layers: 80, Embd: 8192, Heads: 64, KVHeads: 8, FF: 28672, Vocab: 128256, Context: 8192, RopeBase: 500000, Type: quant.Q4_K},
	{Name: "Llama-3.1-405B", Layers: 126, Embd: 16384, Heads: 128, KVHeads: 8, FF: 53248, Vocab: 128256, Context: 131072, RopeBase: 500000, RopeFreqs: true, Type: quant.F16},
}

// File writes a model of the shape and returns the path of its first file. With more than one
// shard, it is a split file of about that many shards.
func File(t testing.TB, s *Shape, shards int) string {
	t.Helper()
	w := gguf.NewWriter()
	s.metadata(w)
	tensors := s.tensors()
	add(w, tensors)
	prefix := filepath.Join(t.TempDir(), s.Name)
	if shards == 1 {
		write(t, prefix+".gguf", w)
		return prefix + ".gguf"
	}
	parts, err := w.Shards(gguf.SplitLimit{Tensors: (len(tensors)-1)/shards + 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range parts {
		write(t, gguf.ShardPath(prefix, i, len(parts)), part)
	}
	return gguf.ShardPath(prefix, 0, len(parts))
}

// Like writes a file with the metadata of f, changed by edit, and the tensors of f without their
// data, and returns its path.
func Like(t testing.TB, f *gguf.File, edit func(w *gguf.Writer)) string {
	t.Helper()
	w := gguf.NewWriter()
	w.SetAll(f)
	edit(w)
	path := filepath.Join(t.TempDir(), "like.gguf")
	Write(t, path, w, f.Tensors())
	return path
}

// Write writes the metadata of w, and the tensors without their data, to path.
func Write(t testing.TB, path string, w *gguf.Writer, tensors []gguf.Tensor) {
	t.Helper()
	add(w, tensors)
	write(t, path, w)
}

// add adds tensors to w without their data.
func add(w *gguf.Writer, tensors []gguf.Tensor) {
	for _, x := range tensors {
		size := quant.RowBytes(x.Type, x.Elems())
		w.AddTensorFunc(x.Name, x.Type, x.Dims, func(out io.Writer) error {
			if x.Name == ropeFreqs {
				_, err := out.Write(bytes.Repeat([]byte{0, 0, 0x80, 0x3f}, int(x.Elems()))) // 1.0
				return err
			}
			for left := size; left > 0; {
				n := min(left, int64(len(zeros)))
				if _, err := out.Write(zeros[:n]); err != nil {
					return err
				}
				left -= n
			}
			return nil
		})
	}
}

// write writes w, whose tensors have no data, to path.
func write(t testing.TB, path string, w *gguf.Writer) {
	t.Helper()
	if runtime.GOOS == "windows" {
		testenv.Lacks(t, "this system has no sparse files")
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := &holeWriter{f: f}
	if err := w.Write(h); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(h.at); err != nil {
		t.Fatal(err)
	}
}

const ropeFreqs = "rope_freqs.weight"

// zeros is a piece of a weight. A holeWriter knows it by its address.
var zeros [1 << 24]byte

// A holeWriter writes everything except zeros, which it skips.
type holeWriter struct {
	f  *os.File
	at int64
}

func (h *holeWriter) Write(b []byte) (int, error) {
	n := len(b)
	if n > 0 && &b[0] != &zeros[0] {
		var err error
		if n, err = h.f.WriteAt(b, h.at); err != nil {
			return n, err
		}
	}
	h.at += int64(n)
	return n, nil
}

// metadata sets the keys of a model whose vocabulary is the bytes and fillers.
func (s *Shape) metadata(w *gguf.Writer) {
	w.SetStr("general.architecture", "llama")
	w.SetStr("general.name", s.Name)
	for _, key := range []struct {
		name  string
		value int
	}{
		{"block_count", s.Layers},
		{"context_length", s.Context},
		{"embedding_length", s.Embd},
		{"feed_forward_length", s.FF},
		{"attention.head_count", s.Heads},
		{"attention.head_count_kv", s.KVHeads},
	} {
		w.SetUint32("llama."+key.name, uint32(key.value))
	}
	w.SetFloat32("llama.attention.layer_norm_rms_epsilon", 1e-5)
	w.SetFloat32("llama.rope.freq_base", s.RopeBase)

	tokens, types := []string{"<unk>", "<s>", "</s>"}, []int32{2, 3, 3}
	for b := range 256 {
		tokens, types = append(tokens, fmt.Sprintf("<0x%02X>", b)), append(types, 6)
	}
	for len(tokens) < s.Vocab {
		tokens, types = append(tokens, fmt.Sprint("filler", len(tokens))), append(types, 1)
	}
	w.SetStr("tokenizer.ggml.model", "llama")
	w.SetStrs("tokenizer.ggml.tokens", tokens)
	w.SetFloat32s("tokenizer.ggml.scores", make([]float32, len(tokens)))
	w.SetInt32s("tokenizer.ggml.token_type", types)
	w.SetUint32("tokenizer.ggml.bos_token_id", 1)
	w.SetUint32("tokenizer.ggml.eos_token_id", 2)
	w.SetUint32("tokenizer.ggml.unknown_token_id", 0)
}

func (s *Shape) tensors() []gguf.Tensor {
	var list []gguf.Tensor
	vector := func(name string, n int) {
		list = append(list, gguf.Tensor{Name: name, Type: quant.F32, Dims: []int64{int64(n)}})
	}
	matrix := func(name string, length, rows int) {
		list = append(list, gguf.Tensor{Name: name, Type: s.Type, Dims: []int64{int64(length), int64(rows)}})
	}
	kv := s.Embd / s.Heads * s.KVHeads
	matrix("token_embd.weight", s.Embd, s.Vocab)
	if s.RopeFreqs {
		vector(ropeFreqs, s.Embd/s.Heads/2)
	}
	for i := range s.Layers {
		blk := fmt.Sprintf("blk.%d.", i)
		vector(blk+"attn_norm.weight", s.Embd)
		matrix(blk+"attn_q.weight", s.Embd, s.Embd)
		matrix(blk+"attn_k.weight", s.Embd, kv)
		matrix(blk+"attn_v.weight", s.Embd, kv)
		matrix(blk+"attn_output.weight", s.Embd, s.Embd)
		vector(blk+"ffn_norm.weight", s.Embd)
		matrix(blk+"ffn_gate.weight", s.Embd, s.FF)
		matrix(blk+"ffn_up.weight", s.Embd, s.FF)
		matrix(blk+"ffn_down.weight", s.FF, s.Embd)
	}
	vector("output_norm.weight", s.Embd)
	matrix("output.weight", s.Embd, s.Vocab)
	return list
}
