package tokenizer

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// realModels are the models for end-to-end tests. The ids of the prompt come from llama.cpp.
var realModels = []struct {
	file  string
	fox   []int32
	empty []int32
	ends  []int32
}{
	{
		file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
		fox:  []int32{785, 3974, 13876, 38835, 34208, 916, 279, 15678, 5562, 13},
		ends: []int32{151643, 151645, 151662, 151663, 151664},
	},
	{
		file: "smollm2-135m-instruct-q4_1.gguf",
		fox:  []int32{504, 2365, 6354, 16438, 27003, 690, 260, 23790, 2767, 30},
		ends: []int32{0, 2, 4},
	},
	{
		file:  "gemma-3-270m-q4_k_m.gguf",
		fox:   []int32{2, 818, 3823, 8864, 37423, 38167, 1024, 506, 31770, 4799, 236761},
		empty: []int32{2},
		ends:  []int32{1, 106},
	},
}

func TestRealModels(t *testing.T) {
	for _, m := range realModels {
		t.Run(m.file, func(t *testing.T) {
			tok := load(t, m.file)
			prompt := []byte("The quick brown fox jumps over the lazy dog.")
			got, err := tok.Encode(t.Context(), prompt, Options{BOS: true, ParseSpecial: true})
			if err != nil || !slices.Equal(got, m.fox) {
				t.Errorf("fox: %v, %v; want %v", got, err, m.fox)
			}
			if len(m.empty) == 0 {
				if back, err := tok.Decode(got); err != nil || !bytes.Equal(back, prompt) {
					t.Errorf("fox decoded to %q, %v", back, err)
				}
			}
			if got, err := tok.Encode(t.Context(), nil, Options{BOS: true}); err != nil || !slices.Equal(got, m.empty) {
				t.Errorf("empty text: %v, %v; want %v", got, err, m.empty)
			}
			if got := tok.EndOfGeneration(); !slices.Equal(got, m.ends) {
				t.Errorf("end of generation: %v; want %v", got, m.ends)
			}
			if w := tok.Warnings(); len(w) > 0 {
				t.Errorf("warnings: %q", w)
			}
		})
	}
}

// TestEveryByte encodes each byte, each rune up to U+00FF, and invalid UTF-8. Decoding
// must give the same bytes, or Encode an error that names the byte that the vocabulary lacks.
func TestEveryByte(t *testing.T) {
	type file struct {
		name    string
		missing int // bytes without a token
	}
	files := []file{{realModels[0].file, 0}, {realModels[1].file, 21}, {realModels[2].file, 0}}
	for _, v := range vocabularies {
		files = append(files, file{"vocab/ggml-vocab-" + v.name + ".gguf", v.missing})
	}
	for _, f := range files {
		tok := load(t, f.name)
		missing := map[byte]bool{}
		back := func(text []byte) {
			t.Helper()
			ids, err := tok.Encode(t.Context(), text, Options{})
			if err != nil && slices.ContainsFunc(text, func(b byte) bool { return missing[b] }) {
				return
			}
			if got, err2 := tok.Decode(ids); err != nil || err2 != nil || !bytes.Equal(got, text) {
				t.Errorf("%s: %q became %v and then %q, %v, %v", f.name, text, ids, got, err, err2)
			}
		}
		for b := range 256 {
			_, err := tok.Encode(t.Context(), []byte{byte(b)}, Options{})
			if err != nil && strings.Contains(err.Error(), fmt.Sprintf("no token for the byte 0x%02X;", b)) {
				missing[byte(b)] = true
			}
		}
		if len(missing) != f.missing {
			t.Errorf("%s: no token for %d bytes; want %d", f.name, len(missing), f.missing)
		}
		for b := range 256 {
			back([]byte{byte(b)})
			back([]byte(string(rune(b))))
			back([]byte{'a', byte(b), ' ', byte(b), 'z'})
		}
		for _, s := range []string{"\xf0\x9f\x98", "\xed\xa0\x80", "\xc0\x80", "a\xffb\xfe", "\xf4\x90\x80\x80"} {
			back([]byte(s))
		}
	}
}

// TestChatMarkup checks that markup becomes control tokens with ParseSpecial and ordinary text
// without it, and that decoding restores it.
func TestChatMarkup(t *testing.T) {
	tests := []struct {
		file, text string
		ids        []int32 // the control tokens in text
	}{
		{realModels[0].file, "<|im_start|>user\nHi<|im_end|>\n", []int32{151644, 151645}},
		{realModels[1].file, "<|im_start|>user\nHi<|im_end|>\n", []int32{1, 2}},
		{realModels[2].file, "<bos><start_of_turn>user\nHi<end_of_turn>\n", []int32{2, 105, 106}},
		{"vocab/ggml-vocab-llama-spm.gguf", "<s>[INST] Hi</s>", []int32{1, 2}},
		{"vocab/ggml-vocab-llama-bpe.gguf", "<|begin_of_text|>Hi<|eot_id|>", []int32{128000, 128009}},
	}
	for _, c := range tests {
		t.Run(c.file, func(t *testing.T) {
			tok := load(t, c.file)
			for _, parse := range []bool{false, true} {
				ids, err := tok.Encode(t.Context(), []byte(c.text), Options{ParseSpecial: parse})
				if err != nil {
					t.Fatal(err)
				}
				var control, want []int32
				var pieces strings.Builder
				for _, id := range ids {
					if tok.types[id] == typeControl {
						control = append(control, id)
					}
					pieces.Write(tok.Piece(id))
				}
				if parse {
					want = c.ids
				}
				if !slices.Equal(control, want) {
					t.Errorf("ParseSpecial %v: control tokens %v; want %v", parse, control, want)
				}
				if back, err := tok.Decode(ids); err != nil || string(back) != c.text {
					t.Errorf("ParseSpecial %v: decoded %q, %v", parse, back, err)
				}
				if parse && strings.ContainsAny(pieces.String(), "<>|") {
					t.Errorf("Piece shows control tokens: %q", pieces.String())
				}
			}
			// The template begins with BOS, so no second one is added.
			with, err := tok.Encode(t.Context(), []byte(c.text), Options{ParseSpecial: true, BOS: true})
			if err != nil {
				t.Fatal(err)
			}
			if bos, ok := tok.BOS(); ok && tok.addBOS && (with[0] != bos || with[1] == bos) {
				t.Errorf("begins with %v; want one BOS, %d", with[:2], bos)
			}
		})
	}
}

// TestNamelessSplitter uses gpt-neox, whose file names no splitter: digits are grouped in
// threes from the left.
func TestNamelessSplitter(t *testing.T) {
	tok := load(t, "vocab/ggml-vocab-gpt-neox.gguf")
	w := tok.Warnings()
	if len(w) != 1 || !strings.Contains(w[0], "gpt-neox.gguf: tokenizer.ggml.pre is missing") {
		t.Errorf("warnings %q; want one that names the file and tokenizer.ggml.pre", w)
	}
	ids, err := tok.Encode(t.Context(), []byte("33333333"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var pieces []string
	for _, id := range ids {
		pieces = append(pieces, string(tok.Piece(id)))
	}
	if want := []string{"333", "333", "33"}; !slices.Equal(pieces, want) {
		t.Errorf("pieces %q; want %q", pieces, want)
	}
}
