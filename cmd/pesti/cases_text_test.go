package main

import (
	"math"
	"strings"
	"testing"

	"pesti/conformance/demo"
	"pesti/conformance/testenv"
	"pesti/gguf"
)

// Every verb that reads text refuses a tokenizer that differs from the model's; a doubtful
// tokenizer works with a warning.
func TestDoubtfulTokenizers(t *testing.T) {
	unknown := rewrittenDemo(t, true, func(w *gguf.Writer) { w.SetStr("tokenizer.ggml.pre", "klingon") })
	noBOS := rewrittenDemo(t, true, func(w *gguf.Writer) { w.SetBool("tokenizer.ggml.add_bos_token", true) }, "tokenizer.ggml.bos_token_id")
	for _, verb := range []string{"run", "tokenize", "dump"} {
		args := map[string][]string{"run": {"-p", "a"}, "dump": {"-p", "a", "-o", t.TempDir()}}[verb]
		pesti(append([]string{verb, unknown}, args...)...).fails(t, 1, unknown, `tokenizer.ggml.pre is "klingon"`, "expected one of: ", "llama-bpe", "qwen2", "smollm")
		pesti(append([]string{verb, noBOS}, args...)...).fails(t, 1, noBOS, "tokenizer.ggml.bos_token_id is missing", "add_bos_token")
	}
	r := pesti("run", rewrittenDemo(t, true, nil, "tokenizer.ggml.pre"), "-p", story, "-n", "1")
	if r.code != 0 || strings.Count(r.err, "pesti: warning: ") != 1 || !strings.Contains(r.err, "tokenizer.ggml.pre is missing") {
		t.Errorf("without a splitter: %+v, want one warning", r)
	}
}

// An empty text becomes the BOS token if the model uses one, and no tokens otherwise.
func TestEmptyTexts(t *testing.T) {
	for _, c := range []struct {
		model, ids string
		tokens     int // of an empty prompt
	}{
		{testenv.SmolLM2, "[]", 1}, // the model has a BOS token, but its file does not request one
		{testenv.Gemma, "[2]", 1},
	} {
		file := testenv.Model(t, c.model)
		if out := ok(t, "tokenize", file, "--ids"); out != c.ids+"\n" {
			t.Errorf("%s: tokenize of nothing prints %q, want %s", c.model, out, c.ids)
		}
		if _, s := runs(t, file, "-p", "", "-n", "0", "--ctx", "16"); s.PromptTokens != c.tokens {
			t.Errorf("%s: an empty prompt has %d tokens, want %d", c.model, s.PromptTokens, c.tokens)
		}
	}
}

// A text with a byte for which the vocabulary has no token is refused, not shortened: the model
// would answer another text.
func TestTextWithoutTokens(t *testing.T) {
	file := testenv.Model(t, testenv.SmolLM2)
	for text, words := range map[string][]string{
		"Hi\x04!":       {"0x04", "offset 2"},
		"\xff":          {"0xFF", "offset 0"},
		"é\U00040000 x": {"0xF1", "offset 2"},
	} {
		call{stdin: text, args: []string{"tokenize", file}}.run().fails(t, 1, append(words, file)...)
		pesti("run", file, "-p", text, "-n", "0", "--ctx", "64").fails(t, 1, append(words, file)...)
	}
}

// NaN ends a run with an error that names the step and a way to find the cause.
func TestNaNLogits(t *testing.T) {
	f, err := gguf.Parse(demoName, demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	norm, found := f.Tensor("output_norm.weight")
	if !found {
		t.Fatal("the demo has no output_norm.weight")
	}
	bits := math.Float32bits(float32(math.NaN()))
	file := demoFile(t, func(b []byte) {
		// The tensor's bytes are a part of the file: f reads a file of the same bytes.
		at := strings.Index(string(b), string(f.Bytes(norm)))
		b[at], b[at+1], b[at+2], b[at+3] = byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24)
	})
	for _, how := range [][]string{{"--temp", "0"}, {"--seed", "1"}} {
		pesti(append([]string{"run", file, "-p", story}, how...)...).fails(t, 1, "step 0", "NaN", "inspect --check")
	}
}

// The text is the same for any chunking of the prompt.
func TestChunkedPrompt(t *testing.T) {
	prompt := strings.Repeat(story+" there was a dog who liked to run. ", 8)
	for _, precision := range []string{"exact", "fast"} {
		want := ""
		for _, ubatch := range []string{"512", "64", "7", "1"} {
			got, s := runs(t, "-p", prompt, "--precision", precision, "--ubatch", ubatch, "--temp", "0", "--ignore-eos", "-n", "64")
			if s.PromptTokens < 65 || s.GeneratedTokens != 64 {
				t.Fatalf("%+v, want a prompt of more than one chunk of 64 and 64 new tokens", s)
			}
			if want == "" {
				want = got
			}
			if got != want || got == "" {
				t.Errorf("%s: chunks of %s give %q, want %q", precision, ubatch, got, want)
			}
		}
	}
}
