package tokenizer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pesti/conformance/testenv"
	"pesti/gguf"
)

func load(t testing.TB, name string) *Tokenizer {
	t.Helper()
	f, err := gguf.Open(testenv.Model(t, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tok, err := FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// fixture reads the strings and ids that llama.cpp publishes with a vocabulary. It publishes none for gpt-neox:
// testdata/gpt-neox.py made the ids of the strings that all other fixtures have.
func fixture(t testing.TB, vocab string) (texts [][]byte, want [][]int32) {
	t.Helper()
	file := func(vocab, kind string) string {
		return testenv.Model(t, filepath.Join("vocab", "ggml-vocab-"+vocab+".gguf"+kind))
	}
	var inputs, outputs string
	if vocab == "gpt-neox" {
		inputs, outputs = file("gpt-2", ".inp"), "testdata/gpt-neox.ids"
	} else {
		inputs, outputs = file(vocab, ".inp"), file(vocab, ".out")
	}
	in, err := os.ReadFile(inputs)
	if err != nil {
		t.Fatal(err)
	}
	const mark = "\n__ggml_vocab_test__\n"
	texts = bytes.Split(bytes.TrimSuffix(in, []byte(mark)), []byte(mark))
	out, err := os.ReadFile(outputs)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		ids := []int32{}
		for _, s := range strings.Fields(line) {
			id, err := strconv.ParseInt(s, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, int32(id))
		}
		want = append(want, ids)
	}
	if len(texts) != len(want) {
		t.Fatalf("%s: %d strings, %d lines of ids", vocab, len(texts), len(want))
	}
	return texts, want
}

// vocabularies lists the vocabularies with fixtures, with the number of strings of each and the
// number of bytes without a token.
var vocabularies = []struct {
	name    string
	strings int
	missing int
}{
	{"qwen2", 46, 0}, {"llama-bpe", 46, 0}, {"gpt-2", 46, 0}, {"starcoder", 46, 14}, {"llama-spm", 46, 0},
	{"refact", 46, 14}, {"falcon", 46, 28}, {"mpt", 46, 13}, {"deepseek-llm", 46, 13}, {"deepseek-coder", 46, 13},
	{"command-r", 46, 0}, {"phi-3", 46, 0}, {"gemma-4", 46, 0}, {"qwen35", 50, 0},
	{"gpt-neox", 46, 13},
}

func TestFixtures(t *testing.T) {
	for _, v := range vocabularies {
		t.Run(v.name, func(t *testing.T) {
			texts, want := fixture(t, v.name)
			if len(texts) != v.strings {
				t.Errorf("%d strings; want %d", len(texts), v.strings)
			}
			tok := load(t, filepath.Join("vocab", "ggml-vocab-"+v.name+".gguf"))
			for i, text := range texts {
				got, err := tok.Encode(t.Context(), text, Options{})
				if err != nil {
					t.Errorf("%q: %v", text, err)
					continue
				}
				if !slices.Equal(got, want[i]) {
					t.Errorf("%q:\n got %v\nwant %v", text, describe(tok, got), describe(tok, want[i]))
				}
				back, err := tok.Decode(got)
				if err != nil || !bytes.Equal(back, text) {
					t.Errorf("%q: decoded %q, %v", text, back, err)
				}
			}
		})
	}
}

func describe(tok *Tokenizer, ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "%d %q ", id, tok.tokens[id])
	}
	return b.String()
}
