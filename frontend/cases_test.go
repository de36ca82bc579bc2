package frontend

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/sparsegguf"
	"pesti/conformance/testenv"
	"pesti/conformance/tiny"
	"pesti/frontend/tokenizer"
	"pesti/gguf"
)

// set returns an edit that sets a key of a model. The Go type of value gives the type of the key's value.
func set(key string, value any) func(w *gguf.Writer) {
	return func(w *gguf.Writer) {
		switch v := value.(type) {
		case uint32:
			w.SetUint32(key, v)
		case uint64:
			w.SetUint64(key, v)
		case int32:
			w.SetInt32(key, v)
		case uint8:
			w.SetUint8(key, v)
		case float32:
			w.SetFloat32(key, v)
		case float64:
			w.SetFloat64(key, v)
		case bool:
			w.SetBool(key, v)
		case string:
			w.SetStr(key, v)
		case []uint32:
			w.SetUint32s(key, v)
		default:
			panic(fmt.Sprintf("set does not know %T", v))
		}
	}
}

// loadHollow loads the model f with an edited key and without weights: code that reads a weight
// faults.
func loadHollow(t *testing.T, f *gguf.File, edit func(w *gguf.Writer)) (*Model, error) {
	t.Helper()
	path := sparsegguf.Like(t, f, edit)
	h, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	if err := os.Truncate(path, 1); err != nil {
		t.Fatal(err)
	}
	return Load(h)
}

// TestHyperParameterCases changes one key of SmolLM2 (30 blocks, width 576, 9 heads of 64, 3 heads of keys and
// values). The error must name the key.
func TestHyperParameterCases(t *testing.T) {
	f := openModel(t, testenv.SmolLM2)
	nan := float32(math.NaN())
	for _, c := range []struct {
		name, key string
		value     any
	}{
		{"head_count 0", "attention.head_count", uint32(0)},
		{"head_count 7", "attention.head_count", uint32(7)},
		{"head_count -9", "attention.head_count", int32(-9)},
		{"head_count_kv 0", "attention.head_count_kv", uint32(0)},
		{"head_count_kv 2", "attention.head_count_kv", uint32(2)},
		{"head_count_kv 10", "attention.head_count_kv", uint32(10)},
		{"block_count 0", "block_count", uint32(0)},
		{"block_count 29", "block_count", uint32(29)},
		{"block_count 31", "block_count", uint32(31)},
		{"block_count 2^31", "block_count", uint32(1 << 31)},
		{"block_count 2^64-1", "block_count", uint64(math.MaxUint64)},
		{"block_count string", "block_count", "30"},
		{"block_count array", "block_count", []uint32{30}},
		{"block_count float", "block_count", float32(30)},
		{"embedding_length 0", "embedding_length", uint32(0)},
		{"embedding_length 575", "embedding_length", uint32(575)},
		{"context_length 0", "context_length", uint32(0)},
		{"feed_forward_length 0", "feed_forward_length", uint32(0)},
		{"rope.dimension_count 0", "rope.dimension_count", uint32(0)},
		{"rope.dimension_count 65", "rope.dimension_count", uint32(65)},
		{"eps 0", "attention.layer_norm_rms_epsilon", float32(0)},
		{"eps NaN", "attention.layer_norm_rms_epsilon", nan},
		{"eps integer", "attention.layer_norm_rms_epsilon", uint32(1)},
		{"freq_base 0", "rope.freq_base", float32(0)},
		{"freq_base -1", "rope.freq_base", float32(-1)},
		{"freq_base NaN", "rope.freq_base", nan},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := loadHollow(t, f, set("llama."+c.key, c.value))
			refuses(t, err, c.key)
		})
	}
	for _, value := range []any{uint8(30), uint64(30), int32(30)} { // an integer of any width is accepted
		if _, err := loadHollow(t, f, set("llama.block_count", value)); err != nil {
			t.Errorf("block_count as %T: %v", value, err)
		}
	}
}

// refuses requires an error of one line that begins with the file and names the key.
func refuses(t *testing.T, err error, key string) {
	t.Helper()
	if err == nil {
		t.Fatalf("accepted, expected an error that names %s", key)
	}
	path, rest, _ := strings.Cut(err.Error(), ": ")
	if !strings.HasSuffix(path, ".gguf") || !strings.Contains(rest, key) || strings.Contains(rest, "\n") {
		t.Errorf("error %q, expected one line that begins with the file and names %s", err, key)
	}
}

// TestVocabularyCases damages the vocabularies of SmolLM2 (byte-level BPE) and gemma (SentencePiece).
// The error must name the key, whichever function reads it first.
func TestVocabularyCases(t *testing.T) {
	const prefix = "tokenizer.ggml."
	smol, gemma := openModel(t, testenv.SmolLM2), openModel(t, testenv.Gemma)
	strs := func(f *gguf.File, key string, edit func(s []string) []string) func(w *gguf.Writer) {
		return func(w *gguf.Writer) {
			s, err := f.Strs(prefix + key)
			if err != nil {
				t.Fatal(err)
			}
			w.SetStrs(prefix+key, edit(s))
		}
	}
	short := func(s []string) []string { return s[:len(s)-1] }
	for _, c := range []struct {
		name string
		f    *gguf.File
		edit func(w *gguf.Writer)
		key  string
	}{
		{"tokens one short", smol, strs(smol, "tokens", short), "tokens"},
		{"tokens one long", smol, strs(smol, "tokens", func(s []string) []string { return append(slices.Clone(s), "more") }), "tokens"},
		{"no tokens", smol, strs(smol, "tokens", func([]string) []string { return nil }), "tokens"},
		{"a merge without a space", smol, strs(smol, "merges", func(s []string) []string { return append(slices.Clone(s), "ab") }), "merges"},
		{"token_type short", smol, func(w *gguf.Writer) { w.SetInt32s(prefix+"token_type", make([]int32, 49151)) }, "token_type"},
		{"eos id = vocabulary size", smol, set(prefix+"eos_token_id", uint32(49152)), "eos_token_id"},
		{"bos id = vocabulary size", smol, set(prefix+"bos_token_id", uint32(49152)), "bos_token_id"},
		{"scores short", gemma, func(w *gguf.Writer) { w.SetFloat32s(prefix+"scores", make([]float32, 262143)) }, "scores"},
		{"tokens one short, SentencePiece", gemma, strs(gemma, "tokens", short), "tokens"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := loadHollow(t, c.f, c.edit)
			if err == nil {
				_, err = tokenizer.FromGGUF(m.File)
			}
			refuses(t, err, prefix+c.key)
		})
	}
}

// TestBlockNumbers adds tensors of blocks that do not exist. Some names have characters that must not reach a
// terminal unescaped.
func TestBlockNumbers(t *testing.T) {
	smol := openModel(t, testenv.SmolLM2)
	for _, name := range []string{"blk.30.attn_q.weight", "blk.-1.x", "blk.x\x1b[2J\n", "blk.99999999999999999999.x", "blk."} {
		w := gguf.NewWriter()
		w.SetAll(smol)
		path := t.TempDir() + "/blocks.gguf"
		sparsegguf.Write(t, path, w, append(slices.Clone(smol.Tensors()), gguf.Tensor{Name: name, Dims: []int64{1}}))
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := Load(f); err == nil || strings.ContainsAny(err.Error(), "\n\x1b") || !strings.Contains(err.Error(), "blk.") {
			t.Errorf("tensor %q: error %v, expected one printable line that names it", name, err)
		}
	}
}

// TestMixtureTensors replaces a feed-forward by experts, without the key that declares them.
func TestMixtureTensors(t *testing.T) {
	_, err := load(t, tiny.Config{Arch: "llama", Edit: func(m *tiny.Model) {
		w := m.Tensor("blk.0.ffn_gate.weight")
		w.Name, w.Dims = "blk.0.ffn_gate_exps.weight", append(slices.Clone(w.Dims), 1)
	}})
	refuses(t, err, "blk.0.ffn_gate")
}
