package tokenizer

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pesti/gguf"
)

// write makes a GGUF file of c, changes it, and reads it back.
func write(t *testing.T, c Config, edit func(w *gguf.Writer)) *gguf.File {
	t.Helper()
	w := gguf.NewWriter()
	w.SetStr("general.architecture", "llama")
	w.SetStr(keyModel, c.Model)
	if c.HasPre {
		w.SetStr(keyPre, c.Pre)
	}
	w.SetStrs(keyTokens, c.Tokens)
	if c.Scores != nil {
		w.SetFloat32s(keyScores, c.Scores)
	}
	w.SetInt32s(keyTypes, c.Types)
	if c.Merges != nil {
		w.SetStrs(keyMerges, c.Merges)
	}
	if c.BOS >= 0 {
		w.SetUint32(keyBOS, uint32(c.BOS))
	}
	edit(w)
	var b bytes.Buffer
	if err := w.Write(&b); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse("toy.gguf", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFromGGUF(t *testing.T) {
	c := bpe([]string{"a b"}, "ab", "<bos>", "<eos>", "<eot>")
	c.Types[257] = typeControl
	f := write(t, c, func(w *gguf.Writer) {
		w.SetUint32(keyBOS, 257)
		w.SetUint64(keyEOS, 258)
		w.SetInt32(keyEOT, 259)
		w.SetBool(keyAddBOS, true)
	})
	tok, err := FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := spelled(t, tok, "ab", Options{BOS: true}), []string{"<bos>", "ab"}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
	if bos, ok := tok.BOS(); bos != 257 || !ok {
		t.Errorf("BOS %d, %v; want 257", bos, ok)
	}
	if got, want := tok.EndOfGeneration(), []int32{258, 259}; !slices.Equal(got, want) {
		t.Errorf("ends %v; want %v", got, want)
	}
	if tok.Size() != 260 {
		t.Errorf("size %d; want 260", tok.Size())
	}
	s := spm(map[string]float32{"▁": -1, "a": -1, "▁a": -2})
	for prefix, want := range map[bool]string{true: "▁a", false: "a"} {
		tok, err := FromGGUF(write(t, s, func(w *gguf.Writer) { w.SetBool(keySpaceFirst, prefix) }))
		if err != nil {
			t.Fatal(err)
		}
		if got := spelled(t, tok, "a", Options{}); !slices.Equal(got, []string{want}) {
			t.Errorf("add_space_prefix %v: %q; want %q", prefix, got, want)
		}
	}
}

func TestFromGGUFErrors(t *testing.T) {
	noMerges := bpe(nil)
	tests := []struct {
		name   string
		config Config
		edit   func(w *gguf.Writer)
		want   []string
	}{
		{"eos outside", bpe([]string{}), func(w *gguf.Writer) { w.SetUint32(keyEOS, 256) }, []string{"tokenizer.ggml.eos_token_id is 256", "below 256"}},
		{"id without end", bpe([]string{}), func(w *gguf.Writer) { w.SetUint64(keyEOS, 1<<64-1) }, []string{"tokenizer.ggml.eos_token_id is ", "below 256"}},
		{"types too short", bpe([]string{}), func(w *gguf.Writer) { w.SetInt32s(keyTypes, []int32{1}) }, []string{"tokenizer.ggml.token_type has 1 elements; expected 256"}},
		{"empty scores", spm(nil), func(w *gguf.Writer) { w.SetFloat32s(keyScores, nil) }, []string{"tokenizer.ggml.scores has 0 elements; expected 259"}},
		{"no merges", noMerges, func(w *gguf.Writer) {}, []string{"tokenizer.ggml.merges is missing"}},
		{"tokens of another type", bpe([]string{}), func(w *gguf.Writer) { w.SetStr(keyTokens, "a") }, []string{keyTokens, "array of strings"}},
		{"model of another type", bpe([]string{}), func(w *gguf.Writer) { w.SetUint32(keyModel, 1) }, []string{keyModel, "a string"}},
		{"add_bos of another type", bpe([]string{}), func(w *gguf.Writer) { w.SetUint32(keyAddBOS, 1) }, []string{keyAddBOS, "a bool"}},
		{"add_bos without id", bpe([]string{}), func(w *gguf.Writer) { w.SetBool(keyAddBOS, true) }, []string{keyBOS + " is missing"}},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			_, err := FromGGUF(write(t, c.config, c.edit))
			if err == nil {
				t.Fatal("no error")
			}
			msg := err.Error()
			for _, want := range append(c.want, "toy.gguf: ") {
				if !strings.Contains(msg, want) {
					t.Errorf("%q does not say %q", msg, want)
				}
			}
			if strings.Contains(msg, "\n") {
				t.Errorf("%q: more than one line", msg)
			}
		})
	}
}
