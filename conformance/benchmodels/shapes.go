package main

import (
	"fmt"
	"math"

	"pesti/gguf"
	"pesti/gguf/quant"
)

// A shape has the hyper-parameters of a published model, the file with its vocabulary, and how its
// matrices are quantized.
type shape struct {
	name, arch, vocabFile        string
	layers, embd, heads, kvHeads int
	headDim, ff, vocab, context  int
	epsilon, ropeBase            float32
	tied                         bool // the embedding is the output matrix too
	biases                       bool // of q, k and v
	rope                         *ropeScaling
	mix                          mix
}

// shapes are published models of sizes that people run: Llama 3 8B (arXiv:2407.21783), Llama 3.2 3B, and
// Qwen2.5 1.5B (arXiv:2412.15115).
var shapes = []shape{
	llama8B.quantized("llama-8b-q4_k_m", q4KM),
	llama3B.quantized("llama-3b-q4_k_m", q4KM),
	llama3B.quantized("llama-3b-q8_0", q80),
	qwen1B.quantized("qwen2-1.5b-q4_k_m", q4KM),
}

var (
	llama8B = shape{arch: "llama", vocabFile: llamaVocab, layers: 32, embd: 4096, heads: 32, kvHeads: 8, headDim: 128, ff: 14336,
		vocab: 128256, context: 8192, epsilon: 1e-5, ropeBase: 500000}
	llama3B = shape{arch: "llama", vocabFile: llamaVocab, layers: 28, embd: 3072, heads: 24, kvHeads: 8, headDim: 128, ff: 8192,
		vocab: 128256, context: 131072, epsilon: 1e-5, ropeBase: 500000, tied: true, rope: &ropeScaling{factor: 32, low: 1, high: 4, original: 8192}}
	qwen1B = shape{arch: "qwen2", vocabFile: qwenVocab, layers: 28, embd: 1536, heads: 12, kvHeads: 2, headDim: 128, ff: 8960,
		vocab: 151936, context: 32768, epsilon: 1e-6, ropeBase: 1e6, tied: true, biases: true}
)

// The files with vocabularies, which conformance/models.py puts into the folder vocab.
const (
	llamaVocab = "ggml-vocab-llama-bpe.gguf"
	qwenVocab  = "ggml-vocab-qwen2.gguf"
)

func (s shape) quantized(name string, m mix) shape {
	s.name, s.mix = name, m
	return s
}

// A mix gives each matrix a type.
type mix struct {
	fileType uint32     // general.file_type, from llama.h
	usual    quant.Type // of matrices without a rule
	output   quant.Type // of the output matrix
	value    quant.Type // of attn_v and ffn_down in the layers for which more reports true
}

// The mixes are those of llama-quantize.
var (
	q4KM = mix{fileType: 15, usual: quant.Q4_K, output: quant.Q6_K, value: quant.Q6_K}
	q80  = mix{fileType: 7, usual: quant.Q8_0, output: quant.Q8_0, value: quant.Q8_0}
)

// more reports whether llama-quantize gives more bits to attn_v and ffn_down of a layer: in the first and
// the last eighth of the layers, and in every third between.
func more(layer, layers int) bool {
	return layer < layers/8 || layer >= 7*layers/8 || (layer-layers/8)%3 == 2
}

// A ropeScaling is the scaling of RoPE frequencies of Llama 3.1 and later.
type ropeScaling struct{ factor, low, high, original float64 }

// factors returns the divisor of each frequency.
func (r *ropeScaling) factors(base float64, dims int) []float32 {
	out := make([]float32, dims/2)
	for i := range out {
		length := 2 * math.Pi * math.Pow(base, float64(2*i)/float64(dims))
		switch {
		case length < r.original/r.high:
			out[i] = 1
		case length > r.original/r.low:
			out[i] = float32(r.factor)
		default:
			smooth := (r.original/length - r.low) / (r.high - r.low)
			out[i] = float32(1 / ((1-smooth)/r.factor + smooth))
		}
	}
	return out
}

// metadata sets the keys of the model. The vocabulary is copied from a file.
func (s *shape) metadata(w *gguf.Writer, vocab *gguf.File) error {
	w.SetStr("general.architecture", s.arch)
	w.SetStr("general.name", s.name+" with random weights")
	w.SetUint32("general.file_type", s.mix.fileType)
	w.SetUint32("general.quantization_version", 2)
	for _, key := range []struct {
		name  string
		value int
	}{
		{"block_count", s.layers},
		{"context_length", s.context},
		{"embedding_length", s.embd},
		{"feed_forward_length", s.ff},
		{"attention.head_count", s.heads},
		{"attention.head_count_kv", s.kvHeads},
		{"rope.dimension_count", s.headDim},
		{"vocab_size", s.vocab},
	} {
		w.SetUint32(s.arch+"."+key.name, uint32(key.value))
	}
	w.SetFloat32(s.arch+".attention.layer_norm_rms_epsilon", s.epsilon)
	w.SetFloat32(s.arch+".rope.freq_base", s.ropeBase)
	return copyVocabulary(w, vocab, s.vocab)
}

// A tensor of the file, and the values that it gets.
type tensor struct {
	name   string
	typ    quant.Type
	dims   []int64
	spread float64   // standard deviation of the values
	mean   float64   // of the values
	values []float32 // instead of random ones
}

// tensors lists the tensors in the order of the file. The standard deviation of a matrix is 1/√(row
// length), which keeps the size of activations. That of the output matrix is three times as large, so that
// logits differ as much as those of trained models.
func (s *shape) tensors() []tensor {
	var list []tensor
	vector := func(name string, n int, mean float64) {
		list = append(list, tensor{name: name, typ: quant.F32, dims: []int64{int64(n)}, spread: 0.1, mean: mean})
	}
	matrix := func(name string, t quant.Type, length, rows int, times float64) {
		list = append(list, tensor{name: name, typ: t, dims: []int64{int64(length), int64(rows)}, spread: times / math.Sqrt(float64(length))})
	}
	const outputTimes = 3
	q, kv := s.heads*s.headDim, s.kvHeads*s.headDim
	if s.tied {
		matrix("token_embd.weight", s.mix.output, s.embd, s.vocab, outputTimes)
	} else {
		matrix("token_embd.weight", s.mix.usual, s.embd, s.vocab, 1)
	}
	if s.rope != nil {
		factors := s.rope.factors(float64(s.ropeBase), s.headDim)
		list = append(list, tensor{name: "rope_freqs.weight", typ: quant.F32, dims: []int64{int64(len(factors))}, values: factors})
	}
	for i := range s.layers {
		blk := fmt.Sprintf("blk.%d.", i)
		value := s.mix.usual
		if more(i, s.layers) {
			value = s.mix.value
		}
		vector(blk+"attn_norm.weight", s.embd, 1)
		matrix(blk+"attn_q.weight", s.mix.usual, s.embd, q, 1)
		matrix(blk+"attn_k.weight", s.mix.usual, s.embd, kv, 1)
		matrix(blk+"attn_v.weight", value, s.embd, kv, 1)
		if s.biases {
			vector(blk+"attn_q.bias", q, 0)
			vector(blk+"attn_k.bias", kv, 0)
			vector(blk+"attn_v.bias", kv, 0)
		}
		matrix(blk+"attn_output.weight", s.mix.usual, q, s.embd, 1)
		vector(blk+"ffn_norm.weight", s.embd, 1)
		matrix(blk+"ffn_gate.weight", s.mix.usual, s.embd, s.ff, 1)
		matrix(blk+"ffn_up.weight", s.mix.usual, s.embd, s.ff, 1)
		matrix(blk+"ffn_down.weight", value, s.ff, s.embd, 1)
	}
	vector("output_norm.weight", s.embd, 1)
	if !s.tied {
		matrix("output.weight", s.mix.output, s.embd, s.vocab, outputTimes)
	}
	return list
}
