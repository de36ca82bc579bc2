package tokenizer

import (
	"bytes"
	"testing"
	"time"

	"pesti/conformance/testenv"
)

// TestLinear encodes texts on which a backtracking or quadratic tokenizer hangs, with
// a vocabulary for each kind of splitter.
func TestLinear(t *testing.T) {
	texts := []struct {
		name string
		text []byte
	}{
		{"one huge word", bytes.Repeat([]byte("A"), 43_000)},
		{"spaces", bytes.Repeat([]byte(" "), 100_000)},
		{"spaces, then a word", append(bytes.Repeat([]byte(" "), 100_000), 'x')},
		{"Han", bytes.Repeat([]byte("汉字"), 13_000)},
		{"digits", bytes.Repeat([]byte("7"), 100_000)},
		{"breaks and spaces", bytes.Repeat([]byte("\n \r\t"), 25_000)},
		{"no UTF-8", bytes.Repeat([]byte{0x80}, 100_000)},
		{"half special", bytes.Repeat([]byte("<"), 100_000)},
		{"capitals", bytes.Repeat([]byte("Ab"), 50_000)},
	}
	for _, vocab := range []string{"qwen2", "llama-bpe", "starcoder", "llama-spm", "falcon", "deepseek-llm", "gemma-4"} {
		tok := load(t, "vocab/ggml-vocab-"+vocab+".gguf")
		for _, c := range texts {
			// Take the best of three, since the time includes garbage collection.
			best := time.Hour
			for range 3 {
				start := testenv.ProcessorTime()
				ids, err := tok.Encode(t.Context(), c.text, Options{ParseSpecial: true})
				best = min(best, testenv.ProcessorTime()-start)
				if err != nil {
					t.Fatalf("%s, %s: %v", vocab, c.name, err)
				}
				if back, err := tok.Decode(ids); err != nil || !bytes.Equal(back, c.text) {
					t.Fatalf("%s, %s: decoded to %d bytes, %v; want the %d encoded", vocab, c.name, len(back), err, len(c.text))
				}
				if best < time.Second {
					break
				}
			}
			if best > time.Second {
				t.Errorf("%s, %s: took %v; want < 1s", vocab, c.name, best)
			}
		}
	}
}
