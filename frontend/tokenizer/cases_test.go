package tokenizer

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode"

	"pesti/conformance/testenv"
)

// Each row is a text that distinguishes a splitting rule from the other published ones.
func TestSplitterRules(t *testing.T) {
	for _, c := range []struct{ pre, text, words string }{
		{"smollm", "a123 45", "a|1|2|3| |4|5"}, // the rule for digits comes first, so a space does not join them
		{"gpt-2", "a123 45", "a|123| 45"},
		{"qwen2", "a123 45", "a|1|2|3| |4|5"},
		{"llama3", "1234567", "123|456|7"}, // groups of three from the left
		{"default", "1234567", "123|456|7"},
		{"tekken", "1234", "1|2|3|4"},
		{"llama3", "I'LL we'Ve", "I|'LL| we|'Ve"}, // contractions in upper and lower case
		{"qwen2", "I'LL we'Ve", "I|'LL| we|'Ve"},
		{"gpt-2", "I'LL we've", "I|'|LL| we|'ve"}, // contractions in lower case only
		{"smollm", "I'LL we've", "I|'|LL| we|'ve"},
		{"gpt-2", "a   b", "a|  | b"}, // white space without its last rune
		{"gpt-2", "a   ", "a|   "},
	} {
		s, ok := findSplitter(c.pre)
		if !ok {
			t.Fatalf("no splitter %q", c.pre)
		}
		if got := strings.Join(words(s.rules, c.text), "|"); got != c.words {
			t.Errorf("%s: %q is split into %s, want %s", c.pre, c.text, got, c.words)
		}
	}
}

// gemma4 files name no splitter, and this causes no warning. Words end at runs of line breaks. A whole run is looked
// up before it is merged.
func TestGemma4(t *testing.T) {
	c := spm(map[string]float32{"▁": 0, "a": 0, "a▁": 0, "\n": 0, "\n\n": 0, "\n\n\n": 0, "a\n": 0})
	c.Model, c.HasPre = "gemma4", false
	c.Merges = []string{"\n \n", "a ▁", "a \n"}
	c.BOS = 1
	tok := make1(t, c)
	if w := tok.Warnings(); len(w) > 0 {
		t.Errorf("warnings %q", w)
	}
	for text, want := range map[string][]string{
		"a a":        {"a▁", "a"}, // merges cross spaces
		"a\n\n\na":   {"a", "\n\n\n", "a"},
		"\n\n\n\n":   {"\n\n", "\n\n"},
		"\n\n\n\n\n": {"\n\n", "\n\n", "\n"},
		"é":          {"<0xC3>", "<0xA9>"},
		"a\n":        {"a", "\n"}, // merges do not cross line breaks
	} {
		if got := spelled(t, tok, text, Options{}); !slices.Equal(got, want) {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
}

// Vocabularies without tokens for some bytes still encode all characters: the missing bytes belong
// to control characters, to planes without characters, or never occur in UTF-8.
func TestAllCharacters(t *testing.T) {
	var text []byte
	for r := rune(' '); r <= unicode.MaxRune; r++ {
		if unicode.IsGraphic(r) && r != '▁' {
			text = append(text, string(r)...)
		}
	}
	text = append(text, "\t\n\r"...)
	for _, name := range []string{testenv.SmolLM2, "vocab/ggml-vocab-starcoder.gguf", "vocab/ggml-vocab-falcon.gguf", "vocab/ggml-vocab-llama-spm.gguf"} {
		tok := load(t, name)
		ids, err := tok.Encode(t.Context(), text, Options{})
		if err != nil {
			t.Error(err)
			continue
		}
		if back, err := tok.Decode(ids); err != nil || !bytes.Equal(back, text) {
			t.Errorf("%s: all characters do not come back: %v", name, err)
		}
	}
}
