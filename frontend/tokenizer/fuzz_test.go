package tokenizer

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var texts = []string{"", "a", " a  b\n", "aaaa", "é世界😀", "\xff\xf0\x9f", "<u>x</s>", "I'll 12345", "\r\n\t \n x",
	"▁▁ ▁a", "<0x0A>", "<|im_start|>user\nHi<|im_end|>", "\x00\x01\xc0\xf8", "'S'Re ½Ⅷ²", "Ġa Ċ"}

// holds checks properties of every vocabulary and every text.
func holds(t *testing.T, tok *Tokenizer, text []byte) {
	t.Helper()
	var words []byte
	split(&poll{ctx: t.Context()}, tok.splitter.rules, text, func(w []byte) {
		if len(w) == 0 {
			t.Fatalf("%q: split into an empty word", text)
		}
		words = append(words, w...)
	})
	if !bytes.Equal(words, text) {
		t.Fatalf("%q: split into words that join to %q", text, words)
	}
	for _, o := range []Options{{}, {ParseSpecial: true}, {BOS: true, ParseSpecial: true}} {
		ids, err := tok.Encode(t.Context(), text, o)
		if err != nil {
			missing := slices.ContainsFunc(text, func(b byte) bool { return tok.byteIDs[b] < 0 }) || tok.spaceFirst && tok.byteIDs[' '] < 0
			if !missing || tok.unk >= 0 || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q: %v", text, err)
			}
			continue
		}
		var pieces, shown []byte
		var stream Stream
		ordinary := true // all tokens are ones that merging produces
		for _, id := range ids {
			if id < 0 || int(id) >= tok.Size() {
				t.Fatalf("%q: id %d of %d", text, id, tok.Size())
			}
			ordinary = ordinary && tok.ordinary(id)
			pieces = append(pieces, tok.Piece(id)...)
			shown = append(shown, stream.Write(tok.Piece(id))...)
		}
		if shown = append(shown, stream.Flush()...); !bytes.Equal(shown, pieces) {
			t.Fatalf("%q: streamed as %q, the pieces are %q", text, shown, pieces)
		}
		back, err := tok.Decode(ids)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if tok.spaceFirst {
			pieces = bytes.TrimPrefix(pieces, []byte(" "))
		}
		if ordinary && !bytes.Equal(pieces, back) {
			t.Fatalf("%q: decoded as %q, the pieces are %q", text, back, pieces)
		}
		if o.BOS || slices.Contains(ids, tok.unk) {
			continue
		}
		want := text
		if tok.model.spelling.added { // this spelling decodes ▁ as a space
			want, back = bytes.ReplaceAll(text, []byte("▁"), []byte(" ")), bytes.ReplaceAll(back, []byte("▁"), []byte(" "))
		}
		if !bytes.Equal(back, want) {
			t.Fatalf("%s: %q became %v and then %q", tok.name, text, ids, back)
		}
	}
}

// FuzzText checks that every kind of vocabulary decodes the ids of any text to the text, without a panic.
func FuzzText(f *testing.F) {
	for _, s := range texts {
		f.Add([]byte(s))
	}
	var toks []*Tokenizer
	add := func(name string, c Config) {
		tok, err := New(name, c)
		if err != nil {
			f.Fatal(err)
		}
		toks = append(toks, tok)
	}
	for _, s := range splitters {
		c := bpe([]string{"a a", "aa aa", "Ġ a"}, "aa", "aaaa", "Ġa", "<u>", "</s>")
		c.Types[259], c.Types[260] = typeUserDefined, typeControl
		c.BOS = 260
		c.Pre = strings.Fields(s.names)[0]
		add(c.Pre, c)
	}
	llama := spm(map[string]float32{"▁": -1, "a": -1, "aa": -2, "▁a": -3, "\n": -1, "\n\n": -1})
	add("llama", llama)
	off := false
	llama.AddSpacePrefix = &off
	add("llama without a space", llama)
	llama.Model, llama.Merges = "gemma4", []string{"a a", "▁ a"}
	add("gemma4", llama)
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, tok := range toks {
			holds(t, tok, text)
		}
	})
}

// FuzzModels is the same for real vocabularies, one of each kind.
func FuzzModels(f *testing.F) {
	for _, s := range texts {
		f.Add([]byte(s))
	}
	var toks []*Tokenizer
	for _, vocab := range []string{"gpt-neox", "deepseek-coder", "falcon", "refact", "llama-spm", "llama-bpe", "gemma-4"} {
		toks = append(toks, load(f, filepath.Join("vocab", "ggml-vocab-"+vocab+".gguf")))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, tok := range toks {
			holds(t, tok, text)
		}
	})
}

// FuzzVocabulary makes a vocabulary from the lines of a text. It is either refused with a one-line
// error, or its ids are in range and no text makes it panic.
func FuzzVocabulary(f *testing.F) {
	for model := range byte(3) {
		f.Add(model, byte(0), "1a\n1b\n3<s>\n1ab\n4<u>\n6<0x61>\n2?\n1▁\n1\n\n", "a b\nab ab\n▁ a", []byte("aab <u><s>?"))
		f.Add(model, byte(0xff), "1a\n1a\n6<0xZZ>\n4\n3", "", []byte("\xff a\n\n"))
	}
	f.Fuzz(func(t *testing.T, model, choices byte, tokens, merges string, text []byte) {
		if len(tokens)+len(merges)+len(text) > 1<<12 {
			return
		}
		name := models[int(model)%len(models)].name
		c := Config{Model: name, Pre: splitterNames()[int(choices)%len(splitterNames())], HasPre: true, BOS: -1, EOS: -1, EOT: -1, EOM: -1, UNK: -1}
		var base Config
		if choices&1 != 0 { // all bytes, then the lines
			if base = bpe(nil); name != "gpt2" {
				base = spm(nil)
			}
			c.Tokens, c.Types = base.Tokens, base.Types
		}
		for i, line := range strings.Split(tokens, "\n") {
			kind := int32(typeNormal)
			if line != "" {
				kind, line = int32(line[0])-'0', line[1:]
			}
			c.Tokens, c.Types = append(c.Tokens, line), append(c.Types, kind)
			if choices&2 != 0 && kind == typeControl {
				c.BOS = len(c.Tokens) - 1
			}
			if choices&4 != 0 && kind == typeUnknown {
				c.UNK = i
			}
		}
		if choices&8 != 0 {
			c.AddSpacePrefix = new(bool)
		}
		for i := range c.Tokens {
			c.Scores = append(c.Scores, float32(int(choices)*i%7)-3)
		}
		c.Merges = []string{}
		if merges != "" {
			c.Merges = strings.Split(merges, "\n")
		}
		tok, err := New("toy.gguf", c)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("more than one line: %q", err)
			}
			return
		}
		tok.EndOfGeneration()
		for _, o := range []Options{{}, {BOS: true, ParseSpecial: true}} {
			ids, err := tok.Encode(t.Context(), text, o)
			if err != nil {
				continue
			}
			for _, id := range ids {
				if id < 0 || int(id) >= tok.Size() {
					t.Fatalf("%q: id %d of %d", text, id, tok.Size())
				}
				tok.Piece(id)
			}
			if _, err := tok.Decode(ids); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
		}
	})
}
