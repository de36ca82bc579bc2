package tokenizer

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// bpe is a small byte-level vocabulary: the 256 bytes, then more tokens.
func bpe(merges []string, more ...string) Config {
	c := Config{Model: "gpt2", Pre: "gpt-2", HasPre: true, Merges: merges, BOS: -1, EOS: -1, EOT: -1, EOM: -1, UNK: -1}
	for b := range 256 {
		c.Tokens = append(c.Tokens, string(byteLetters[b]))
	}
	c.Tokens = append(c.Tokens, more...)
	c.Types = slices.Repeat([]int32{typeNormal}, len(c.Tokens))
	return c
}

// spm is a small SentencePiece vocabulary: <unk>, <s>, </s>, the 256 bytes, then
// more tokens with their scores.
func spm(more map[string]float32) Config {
	c := Config{
		Model:  "llama",
		Tokens: []string{"<unk>", "<s>", "</s>"},
		Types:  []int32{typeUnknown, typeControl, typeControl},
		BOS:    1, EOS: 2, EOT: -1, EOM: -1, UNK: 0,
	}
	for b := range 256 {
		c.Tokens = append(c.Tokens, hexByte(byte(b)))
		c.Types = append(c.Types, typeByte)
	}
	c.Scores = make([]float32, len(c.Tokens))
	for _, s := range sortedKeys(more) {
		c.Tokens = append(c.Tokens, s)
		c.Types = append(c.Types, typeNormal)
		c.Scores = append(c.Scores, more[s])
	}
	return c
}

func sortedKeys(m map[string]float32) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func make1(t *testing.T, c Config) *Tokenizer {
	t.Helper()
	tok, err := New("toy.gguf", c)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// spelled encodes text and returns the tokens as the file spells them.
func spelled(t *testing.T, tok *Tokenizer, text string, o Options) []string {
	t.Helper()
	ids, err := tok.Encode(t.Context(), []byte(text), o)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, id := range ids {
		all = append(all, tok.tokens[id])
	}
	return all
}

func TestMergeOrder(t *testing.T) {
	tok := make1(t, bpe([]string{"b c", "a b", "a a", "aa aa"}, "bc", "ab", "aa", "aaaa"))
	tests := []struct {
		text string
		want []string
	}{
		{"", []string{}},
		{"a", []string{"a"}},
		{"abc", []string{"a", "bc"}},       // the earlier merge wins
		{"aaa", []string{"aa", "a"}},       // the leftmost of equal ones
		{"aaaaa", []string{"aaaa", "a"}},   // merges of merges
		{"aaaaaa", []string{"aaaa", "aa"}}, //
		{"abab", []string{"ab", "ab"}},     //
		{"a a", []string{"a", "Ġ", "a"}},   // merges do not cross words
		{"aa a a", []string{"aa", "Ġ", "a", "Ġ", "a"}},
	}
	for _, c := range tests {
		if got := spelled(t, tok, c.text, Options{}); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q; want %q", c.text, got, c.want)
		}
	}
}

func TestWholeWords(t *testing.T) {
	// "xyz" cannot be reached by merges.
	for pre, want := range map[string][]string{"llama-bpe": {"xyz"}, "tekken": {"xyz"}, "qwen2": {"x", "y", "z"}} {
		c := bpe([]string{"a b"}, "ab", "xyz", "<bos>")
		c.Pre = pre
		c.BOS = len(c.Tokens) - 1
		if got := spelled(t, make1(t, c), "xyz", Options{}); !slices.Equal(got, want) {
			t.Errorf("%s: %q; want %q", pre, got, want)
		}
	}
}

func TestScores(t *testing.T) {
	c := spm(map[string]float32{
		"▁": -1, "a": -1, "b": -1, "c": -1,
		"ab": -5, "bc": -4, "aa": -6, "▁a": -7,
	})
	off := false
	tests := []struct {
		space *bool
		text  string
		want  []string
	}{
		{&off, "", []string{}},
		{nil, "", []string{}},
		{&off, "abc", []string{"a", "bc"}}, // the higher score wins
		{&off, "aaa", []string{"aa", "a"}}, // the leftmost of equal ones
		{nil, "a", []string{"▁a"}},
		{nil, " a", []string{"▁", "▁a"}},
		{&off, "é", []string{"<0xC3>", "<0xA9>"}},
		{&off, "\xff", []string{"<0xFF>"}},
		{&off, "</s>", []string{"<0x3C>", "<0x2F>", "<0x73>", "<0x3E>"}},
		{&off, "<0x41>", []string{"<0x3C>", "<0x30>", "<0x78>", "<0x34>", "<0x31>", "<0x3E>"}},
	}
	for _, d := range tests {
		c.AddSpacePrefix = d.space
		tok := make1(t, c)
		if got := spelled(t, tok, d.text, Options{}); !slices.Equal(got, d.want) {
			t.Errorf("%q: %q; want %q", d.text, got, d.want)
		}
		ids, _ := tok.Encode(t.Context(), []byte(d.text), Options{})
		if back, err := tok.Decode(ids); err != nil || string(back) != d.text {
			t.Errorf("%q: decoded %q, %v", d.text, back, err)
		}
	}
}

// TestNoControlByMerging checks that merges which spell a control token do not produce it.
func TestNoControlByMerging(t *testing.T) {
	c := spm(map[string]float32{"<": -1, "/": -1, "s": -1, ">": -1, "</": -2, "s>": -2})
	tok := make1(t, c)
	if got := spelled(t, tok, "</s>", Options{}); slices.Contains(got, "</s>") {
		t.Errorf("text became the control token: %q", got)
	}
	if got, want := spelled(t, tok, "</s>", Options{ParseSpecial: true}), []string{"</s>"}; !slices.Equal(got, want) {
		t.Errorf("with ParseSpecial: %q; want %q", got, want)
	}
}

func TestSpecialTokens(t *testing.T) {
	c := bpe(nil, "<u>", "<u>>", "<c>", "", "é")
	c.Merges = []string{}
	for i, kind := range []int32{typeUserDefined, typeUserDefined, typeControl, typeControl, typeUserDefined} {
		c.Types[256+i] = kind
	}
	tok := make1(t, c)
	tests := []struct {
		text  string
		parse bool
		want  []string
	}{
		{"<u>", false, []string{"<u>"}},
		{"<u>>", false, []string{"<u>>"}}, // the longest
		{"a<u><u", false, []string{"a", "<u>", "<", "u"}},
		{"<<u>", false, []string{"<", "<u>"}},
		{"<c>", false, []string{"<", "c", ">"}},
		{"<c>", true, []string{"<c>"}},
		{"<c><u>", true, []string{"<c>", "<u>"}},
		{"é", false, []string{"é"}},    // the text é, not the letter of byte 0xE9
		{"\xe9", false, []string{"é"}}, // the letter of byte 0xE9
	}
	for _, d := range tests {
		o := Options{ParseSpecial: d.parse}
		if got := spelled(t, tok, d.text, o); !slices.Equal(got, d.want) {
			t.Errorf("%q, %v: %q; want %q", d.text, d.parse, got, d.want)
		}
		ids, _ := tok.Encode(t.Context(), []byte(d.text), o)
		if back, err := tok.Decode(ids); err != nil || string(back) != d.text {
			t.Errorf("%q, %v: decoded %q, %v", d.text, d.parse, back, err)
		}
	}
}

func TestBOS(t *testing.T) {
	on, off := true, false
	withBOS := func(c Config) Config {
		c.Tokens = append(c.Tokens, "<bos>")
		c.Types = append(c.Types, typeControl)
		if c.Scores != nil {
			c.Scores = append(c.Scores, 0)
		}
		c.BOS = len(c.Tokens) - 1
		return c
	}
	pre := func(name string) Config {
		c := withBOS(bpe([]string{}))
		c.Pre = name
		return c
	}
	gemma4 := withBOS(spm(map[string]float32{"▁": 0, "a": 0}))
	gemma4.Model, gemma4.Merges = "gemma4", []string{}
	tests := []struct {
		name   string
		config Config
		add    *bool
		want   bool
	}{
		{"gpt-2", pre("gpt-2"), nil, false},
		{"gpt-2", pre("gpt-2"), &on, true},
		{"llama-bpe", pre("llama-bpe"), nil, true},
		{"llama3", pre("llama3"), nil, true},
		{"tekken", pre("tekken"), nil, true},
		{"llama-bpe", pre("llama-bpe"), &off, false},
		{"spm", withBOS(spm(nil)), nil, true},
		{"spm", withBOS(spm(nil)), &off, false},
		{"gemma4", gemma4, &off, true},
	}
	for _, c := range tests {
		c.config.AddBOS = c.add
		tok := make1(t, c.config)
		for _, text := range []string{"", "a", "<bos>a"} {
			got := spelled(t, tok, text, Options{BOS: true, ParseSpecial: true})
			n := 0
			for _, s := range got {
				if s == "<bos>" {
					n++
				}
			}
			want := 0
			if c.want || strings.HasPrefix(text, "<bos>") {
				want = 1
			}
			if n != want || n == 1 && got[0] != "<bos>" {
				t.Errorf("%s, add %v, %q: %q; want %d BOS first", c.name, c.add, text, got, want)
			}
		}
		if got := spelled(t, tok, "a", Options{}); slices.Contains(got, "<bos>") {
			t.Errorf("%s: BOS without asking: %q", c.name, got)
		}
	}
}

// TestSpaceFirstOnce checks that only the first ordinary text gets a space, also
// if the template writes the BOS.
func TestSpaceFirstOnce(t *testing.T) {
	tok := make1(t, spm(map[string]float32{"▁": -1, "a": -1, "b": -1, "▁a": -2, "▁b": -2}))
	want := []string{"<s>", "▁a", "</s>", "b"}
	for _, text := range []string{"a</s>b", "<s>a</s>b"} {
		if got := spelled(t, tok, text, Options{BOS: true, ParseSpecial: true}); !slices.Equal(got, want) {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
	ids, _ := tok.Encode(t.Context(), []byte("<s>a</s>b"), Options{ParseSpecial: true})
	if back, _ := tok.Decode(ids); string(back) != "<s>a</s>b" {
		t.Errorf("decoded %q", back)
	}
	// Generated text continues the prompt, so a leading space of a token stays.
	if got := tok.Piece(tok.ids["▁a"]); string(got) != " a" {
		t.Errorf("piece of ▁a: %q; want \" a\"", got)
	}
}

func TestUnknown(t *testing.T) {
	c := bpe([]string{}, "<unk>")
	c.Tokens['x'] = "none"
	tok := make1(t, c)
	for text, at := range map[string]string{"x": "0", "axb": "1", "a b xx": "4", "é<unk>x": "7", "a\n\n bbx": "6"} {
		_, err := tok.Encode(t.Context(), []byte(text), Options{})
		if err == nil || !strings.Contains(err.Error(), "toy.gguf: the vocabulary has no token for the byte 0x78; found it at offset "+at+" of the text") {
			t.Errorf("%q: error %v; want the file, the byte and its offset %s", text, err, at)
		}
	}
	c.UNK = 256
	if got, want := spelled(t, make1(t, c), "axb", Options{}), []string{"a", "<unk>", "b"}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
	c.Types[256] = typeControl
	// A space and ▁ are spelled alike.
	s := spm(map[string]float32{"▁": -1})
	s.UNK, s.AddSpacePrefix = -1, new(bool)
	s.Tokens[3+'x'] = "none"
	for text, at := range map[string]string{" x": "1", "▁ ▁x": "7", "▁é\xffx": "6"} {
		_, err := make1(t, s).Encode(t.Context(), []byte(text), Options{})
		if err == nil || !strings.Contains(err.Error(), "at offset "+at+" of the text") {
			t.Errorf("%q: error %v; want the offset %s", text, err, at)
		}
	}
	if ids, err := make1(t, c).Encode(t.Context(), []byte("axb"), Options{}); err == nil {
		t.Errorf("text became a control token: %v", ids)
	}
}

func TestDecodeOutside(t *testing.T) {
	tok := make1(t, bpe([]string{}))
	for _, id := range []int32{-1, 256, math.MaxInt32, math.MinInt32} {
		_, err := tok.Decode([]int32{97, id})
		if err == nil || !strings.Contains(err.Error(), "at position 1 is outside the vocabulary; expected an id from 0 to 255") {
			t.Errorf("%d: error %v", id, err)
		}
		if got := tok.Piece(id); len(got) > 0 {
			t.Errorf("%d: piece %q", id, got)
		}
	}
}

func TestErrors(t *testing.T) {
	on := true
	tests := []struct {
		name string
		edit func(c *Config)
		want string
	}{
		{"no model", func(c *Config) { c.Model = "" }, "tokenizer.ggml.model is missing; expected one of: gpt2, llama, gemma4"},
		{"unknown model", func(c *Config) { c.Model = "rwkv" }, `tokenizer.ggml.model is "rwkv"; expected one of: gpt2, llama, gemma4`},
		{"no tokens", func(c *Config) { c.Tokens = nil }, "tokenizer.ggml.tokens is missing or empty"},
		{"types", func(c *Config) { c.Types = c.Types[1:] }, "tokenizer.ggml.token_type has 255 elements; expected 256"},
		{"scores", func(c *Config) { c.Scores = []float32{1} }, "tokenizer.ggml.scores has 1 elements; expected 256"},
		{"NaN score", func(c *Config) { c.Scores = make([]float32, 256); c.Scores[7] = float32(math.NaN()) }, "tokenizer.ggml.scores[7] is NaN"},
		{"no merges", func(c *Config) { c.Merges = nil }, `tokenizer.ggml.merges is missing; expected it with tokenizer.ggml.model "gpt2"`},
		{"no space", func(c *Config) { c.Merges = []string{"a b", "ab"} }, `tokenizer.ggml.merges[1] is "ab"; expected two tokens`},
		{"half a merge", func(c *Config) { c.Merges = []string{"a "} }, `tokenizer.ggml.merges[0] is "a "; expected two tokens`},
		{"three tokens", func(c *Config) { c.Merges = []string{"a b c"} }, `tokenizer.ggml.merges[0] is "a b c"; expected two tokens`},
		{"unknown splitter", func(c *Config) { c.Pre = "nope" }, `tokenizer.ggml.pre is "nope"; expected one of: bloom, chatglm-bpe,`},
		{"empty splitter", func(c *Config) { c.Pre = "" }, `tokenizer.ggml.pre is ""; expected one of: `},
		{"eos outside", func(c *Config) { c.EOS = 256 }, "tokenizer.ggml.eos_token_id is 256; expected an id below 256"},
		{"eos far outside", func(c *Config) { c.EOS = math.MaxInt }, "tokenizer.ggml.eos_token_id is 9223372036854775807; expected an id below 256"},
		{"add_bos without bos", func(c *Config) { c.AddBOS = &on }, "tokenizer.ggml.bos_token_id is missing; expected an id"},
		{"llama without scores", func(c *Config) { c.Model = "llama" }, `tokenizer.ggml.scores is missing; expected it with tokenizer.ggml.model "llama"`},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			cfg := bpe([]string{"a b"})
			c.edit(&cfg)
			_, err := New("toy.gguf", cfg)
			if err == nil {
				t.Fatal("no error")
			}
			if got := err.Error(); !strings.HasPrefix(got, "toy.gguf: "+c.want) || strings.Contains(got, "\n") {
				t.Errorf("got  %s\nwant toy.gguf: %s…", got, c.want)
			}
		})
	}
}

func TestMissingSplitter(t *testing.T) {
	c := bpe([]string{})
	c.HasPre, c.Pre = false, ""
	if w := make1(t, c).Warnings(); len(w) != 1 || !strings.HasPrefix(w[0], "toy.gguf: tokenizer.ggml.pre is missing") {
		t.Errorf("warnings %q", w)
	}
	c.HasPre, c.Pre = true, "default"
	if w := make1(t, c).Warnings(); len(w) != 0 {
		t.Errorf("warnings %q; want none", w)
	}
}

func TestEndOfGeneration(t *testing.T) {
	c := bpe([]string{}, "<|im_end|>", "<|eot_id|>", "</s>", "x")
	c.EOS, c.EOT, c.EOM = 65, 259, 256
	if got, want := make1(t, c).EndOfGeneration(), []int32{65, 256, 257, 259}; !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	if got := make1(t, bpe([]string{})).EndOfGeneration(); len(got) != 0 {
		t.Errorf("%v; want none", got)
	}
}
