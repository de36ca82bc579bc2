package tokenizer

import (
	"os"
	"slices"
	"strings"
	"testing"

	"pesti/gguf"
)

// knownControls are names that llama.cpp takes as control tokens, whatever their type, with whether they end
// generation: testdata/ends.py made them.
func knownControls(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("testdata/ends.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		name, kind, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok || kind != "end" && kind != "control" {
			t.Fatalf("ends.txt: line %q", line)
		}
		known[name] = kind == "end"
	}
	if len(known) < 50 {
		t.Fatalf("ends.txt has %d names", len(known))
	}
	return known
}

// TestControlsTypedNormal gives each known control token the type of normal text. It must be recognized as a whole,
// print nothing, end generation if it is an end, and cause a warning.
func TestControlsTypedNormal(t *testing.T) {
	known := knownControls(t)
	delete(known, htmlEnd) // see TestHTMLEnd
	known["<|unknown|>"] = false
	for name, ends := range known {
		_, control := controls[name]
		for _, typ := range []int32{typeNormal, typeUndefined, typeControl} {
			c := bpe([]string{}, name)
			c.Types[256] = typ
			tok := make1(t, c)
			if got := slices.Contains(tok.EndOfGeneration(), 256); got != ends {
				t.Errorf("%q, type %d: ends generation: %v, want %v", name, typ, got, ends)
			}
			ids, err := tok.Encode(t.Context(), []byte("a"+name+"b"), Options{ParseSpecial: true})
			if err != nil || slices.Contains(ids, 256) != (control || typ == typeControl) {
				t.Errorf("%q, type %d: %v, %v", name, typ, ids, err)
			}
			if ids, _ := tok.Encode(t.Context(), []byte("a"+name+"b"), Options{}); slices.Contains(ids, 256) {
				t.Errorf("%q, type %d: plain text became a control token", name, typ)
			}
			if text := tok.Piece(256); control && len(text) > 0 {
				t.Errorf("%q, type %d: prints %q", name, typ, text)
			}
			w := tok.Warnings()
			if control && typ != typeControl {
				if len(w) != 1 || !strings.HasPrefix(w[0], "toy.gguf: tokenizer.ggml.token_type: 1 tokens are typed as normal text") || !strings.Contains(w[0], name) {
					t.Errorf("%q, type %d: warnings %q", name, typ, w)
				}
			} else if len(w) > 0 {
				t.Errorf("%q, type %d: warnings %q, want none", name, typ, w)
			}
			if c.Types[256] != typ {
				t.Errorf("%q: the caller's types changed", name)
			}
		}
	}
}

// TestHTMLEnd checks that </s> ends generation only where it is a control token or the end that the file names: the
// vocabularies of Qwen and Gemma have it as a tag of HTML.
func TestHTMLEnd(t *testing.T) {
	for typ, want := range map[int32][]int32{typeNormal: nil, typeUserDefined: nil, typeControl: {256}} {
		c := bpe([]string{}, htmlEnd)
		c.Types[256] = typ
		tok := make1(t, c)
		if got := tok.EndOfGeneration(); !slices.Equal(got, want) || len(tok.Warnings()) > 0 {
			t.Errorf("type %d: ends %v, want %v; warnings %q", typ, got, want, tok.Warnings())
		}
	}
}

// TestFIMKeys names the tokens that end generation by the keys of fill-in-the-middle.
func TestFIMKeys(t *testing.T) {
	w := gguf.NewWriter()
	c := bpe([]string{}, "<pad1>", "<repo1>", "<file1>", "<prefix1>")
	w.SetStr(keyModel, "gpt2")
	w.SetStr(keyPre, "gpt-2")
	w.SetStrs(keyTokens, c.Tokens)
	w.SetStrs(keyMerges, nil)
	for i, key := range []string{keyFIMPad, keyFIMRepo, keyFIMFile, "tokenizer.ggml.fim_pre_token_id"} {
		w.SetUint32(key, uint32(256+i))
	}
	var b strings.Builder
	if err := w.Write(&b); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse("toy.gguf", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tok.EndOfGeneration(), []int32{256, 257, 258}; !slices.Equal(got, want) {
		t.Errorf("ends %v, want %v", got, want)
	}
	if w := tok.Warnings(); len(w) != 1 || !strings.Contains(w[0], `"<pad1>", "<repo1>", "<file1>"`) {
		t.Errorf("warnings %q, want one that names the three", w)
	}
	c.FIM = &[3]int{-1, 260, -1}
	if _, err := New("toy.gguf", c); err == nil || !strings.Contains(err.Error(), keyFIMRepo+" is 260; expected an id below 260") {
		t.Errorf("error %v", err)
	}
}

// TestEndsOfVocabularies compares the ends of published vocabularies with those of llama.cpp-python 0.3.36
// (llama_vocab_is_eog), without </s> as a tag of HTML.
func TestEndsOfVocabularies(t *testing.T) {
	for name, want := range map[string][]int32{
		"command-r": {0, 255001}, "deepseek-coder": {32014}, "deepseek-llm": {100001}, "falcon": {11}, "gemma-4": {1, 50, 106},
		"gpt-2": {50256}, "llama-bpe": {128001, 128009}, "llama-spm": {2}, "mpt": {0}, "phi-3": {32000, 32007},
		"qwen2": {151643, 151645}, "qwen35": {151643, 151645}, "refact": {0, 4, 18}, "starcoder": {0, 4},
	} {
		if got := load(t, "vocab/ggml-vocab-"+name+".gguf").EndOfGeneration(); !slices.Equal(got, want) {
			t.Errorf("%s: ends %v, want %v", name, got, want)
		}
	}
}
