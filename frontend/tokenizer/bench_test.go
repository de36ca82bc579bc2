package tokenizer

import (
	"bytes"
	"testing"
	"time"

	"pesti/gguf"
)

func BenchmarkFromGGUF(b *testing.B) {
	for _, name := range []string{"gemma-3-270m-q4_k_m.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "vocab/ggml-vocab-gemma-4.gguf"} {
		b.Run(name, func(b *testing.B) {
			f, err := gguf.Open(modelFile(b, name))
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
				if _, err := tok.Encode(text, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestLinear has texts on which a backtracking or quadratic tokenizer hangs.
func TestLinear(t *testing.T) {
	texts := map[string][]byte{
		"one huge word":       bytes.Repeat([]byte("A"), 43_000),
		"spaces":              bytes.Repeat([]byte(" "), 100_000),
		"spaces, then a word": append(bytes.Repeat([]byte(" "), 100_000), 'x'),
		"Han":                 bytes.Repeat([]byte("汉字"), 13_000),
		"digits":              bytes.Repeat([]byte("7"), 100_000),
		"line breaks":         bytes.Repeat([]byte("\n"), 100_000),
		"breaks and spaces":   bytes.Repeat([]byte("\n \r\t"), 25_000),
		"no UTF-8":            bytes.Repeat([]byte{0xFF}, 50_000),
		"half special":        bytes.Repeat([]byte("<"), 100_000),
		"capitals":            bytes.Repeat([]byte("Ab"), 50_000),
		"half contractions":   bytes.Repeat([]byte("'"), 100_000),
	}
	for _, v := range vocabularies {
		tok := load(t, "vocab/ggml-vocab-"+v.name+".gguf")
		for name, text := range texts {
			start := time.Now()
			ids, err := tok.Encode(text, Options{ParseSpecial: true})
			took := time.Since(start)
			if err != nil {
				t.Errorf("%s, %s: %v", v.name, name, err)
			}
			if took > time.Second {
				t.Errorf("%s, %s: took %v; want < 1s", v.name, name, took)
			}
			t.Logf("%-14s %-20s %v", v.name, name, took)
			if back, err := tok.Decode(ids); err != nil || !bytes.Equal(back, text) {
				t.Errorf("%s, %s: decoded to %d bytes, %v; want the %d encoded", v.name, name, len(back), err, len(text))
			}
		}
	}
}
