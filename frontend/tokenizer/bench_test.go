package tokenizer

import (
	"bytes"
	"testing"

	"pesti/conformance/testenv"
	"pesti/gguf"
)

func BenchmarkFromGGUF(b *testing.B) {
	for _, name := range []string{"gemma-3-270m-q4_k_m.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "vocab/ggml-vocab-gemma-4.gguf"} {
		b.Run(name, func(b *testing.B) {
			f, err := gguf.Open(testenv.Model(b, name))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			for b.Loop() {
				if _, err := FromGGUF(f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, name := range []string{"gemma-3-270m-q4_k_m.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "smollm2-135m-instruct-q4_1.gguf"} {
		b.Run(name, func(b *testing.B) {
			tok := load(b, name)
			text := bytes.Repeat([]byte("The quick brown fox jumps over the lazy dog. Наш 123 мир, 世界!\n"), 100)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := tok.Encode(b.Context(), text, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
