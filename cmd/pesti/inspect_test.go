package main

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/demo"
	"pesti/frontend/inspect"
	"pesti/gguf"
	"pesti/gguf/dense"
)

func TestInspect(t *testing.T) {
	page := ok(t, "inspect", "demo")
	for _, word := range []string{"qwen2\n", "PESTI demo storyteller", " million parameters", "Q4_K", "Q6_K", "Q8_0", "qwen2.block_count", "]string"} {
		if !strings.Contains(page, word) {
			t.Errorf("inspect does not print %q:\n%s", word, page)
		}
	}
	page = ok(t, "inspect", "demo", "--tensors")
	if !strings.Contains(page, "blk.3.ffn_down.weight") || !strings.Contains(page, "[512, 256]") {
		t.Errorf("inspect --tensors prints:\n%s", page)
	}

	var r inspect.Description
	text := ok(t, "inspect", "demo", "--json")
	if err := json.Unmarshal([]byte(text), &struct {
		*inspect.Description
		Metadata []struct{ Key, Type string } `json:"metadata"`
	}{Description: &r}); err != nil {
		t.Fatal(err)
	}
	if r.Architecture != "qwen2" || !r.Supported || r.TensorCount != 50 || r.KeyCount < 20 || r.Size != int64(len(demo.GGUF())) || r.Tensors != nil {
		t.Errorf("inspect --json: %+v", r)
	}
	bytes := int64(0)
	for _, c := range r.Types {
		bytes += c.Bytes
	}
	if bytes <= 0 || bytes >= r.Size {
		t.Errorf("the types have %d bytes together, in a file of %d", bytes, r.Size)
	}
	if !strings.Contains(text, `"key": "qwen2.block_count",`) || strings.Contains(text, "Ġthe") {
		t.Errorf("inspect --json has not the keys, or the whole vocabulary")
	}
	if out := ok(t, "inspect", "demo", "--json", "--tensors"); !strings.Contains(out, `"name": "blk.3.ffn_down.weight"`) {
		t.Errorf("inspect --json --tensors lists no tensors")
	}
}

func TestInspectOddFiles(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.gguf")
	saveFile(t, empty, "GGUF\x03\x00\x00\x00"+strings.Repeat("\x00", 16))
	if out := ok(t, "inspect", empty); !strings.Contains(out, "keys          0\n") || !strings.Contains(out, "tensors       0 ") {
		t.Errorf("inspect of an empty file prints:\n%s", out)
	}
	strange := rewrittenDemo(t, true, func(w *gguf.Writer) { w.SetStr("general.architecture", "mamba9") })
	if out := ok(t, "inspect", strange); !strings.Contains(out, "mamba9 (not supported)") {
		t.Errorf("inspect of an unknown architecture prints:\n%s", out)
	}
	if r := pesti("inspect", "--check", strange); r.code != 0 || !strings.Contains(r.err, "mamba9") {
		t.Errorf("inspect --check of an unknown architecture: %+v", r)
	}
	pesti("run", strange, "-p", "a").fails(t, 1, strange, `"mamba9" is not supported`, "gemma3, llama, qwen2")
	vocabulary := rewrittenDemo(t, false, nil)
	ok(t, "inspect", vocabulary)
	ok(t, "inspect", "--check", vocabulary)
	pesti("inspect", filepath.Join(dir, "none")).fails(t, 1, "none")
	pesti("inspect", "--check", filepath.Join(dir, "none")).fails(t, 1, "none")
}

func TestInspectCheck(t *testing.T) {
	if out := ok(t, "inspect", "--check", "demo"); out != "demo: ok\n" {
		t.Errorf("inspect --check demo prints %q", out)
	}
	findings := func(path string, count string, words ...string) {
		t.Helper()
		r := pesti("inspect", "--check", path)
		if r.code != 1 || !strings.Contains(r.err, count) {
			t.Errorf("inspect --check: exit code %d, says %q, want 1 and %q", r.code, r.err, count)
		}
		for _, w := range words {
			if !strings.Contains(r.out, w) {
				t.Errorf("inspect --check finds %q, want %q", r.out, w)
			}
		}
	}
	f, err := gguf.Parse(demoName, demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	x, _ := f.Tensor("token_embd.weight")
	nan := demoFile(t, func(b []byte) { // in the float16 scale of the third block of Q8_0
		b[x.Offset+2*34], b[x.Offset+2*34+1] = 0xff, 0x7f
	})
	findings(nan, "1 finding", `tensor "token_embd.weight", block 2`)
	findings(rewrittenDemo(t, true, func(w *gguf.Writer) { w.SetUint32("qwen2.attention.head_count", 0) }),
		"1 finding", "qwen2.attention.head_count")
	findings(rewrittenDemo(t, true, func(w *gguf.Writer) { w.SetStr("tokenizer.ggml.pre", "martian") }), "1 finding", "martian")
	findings(rewrittenDemo(t, true, nil, "general.architecture"), "1 finding", "general.architecture")
}

func TestInspectExtract(t *testing.T) {
	dir := t.TempDir()
	f, err := gguf.Parse(demoName, demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"blk.0.attn_k.weight", "blk.0.attn_k.bias"} {
		path := filepath.Join(dir, name+".npy")
		if out := ok(t, "inspect", "demo", "--extract", name, "-o", path); out != "" {
			t.Errorf("--extract prints %q", out)
		}
		want, err := dense.Read(f, name)
		if err != nil {
			t.Fatal(err)
		}
		if out := ok(t, "inspect", "demo", "--extract", name, "-o", "-"); out != readFile(t, path) {
			t.Errorf("-o - prints %d bytes, not those of the file", len(out))
		}
		got := readNpy(t, path)
		if !slices.Equal(got.shape, want.Shape()) {
			t.Errorf("%s has shape %v, want %v", name, got.shape, want.Shape())
		}
		if !slices.EqualFunc(got.floats, want.Float32s(), func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
			t.Errorf("%s has other values than the file", name)
		}
	}
	pesti("inspect", "demo", "--extract", "blk.9.x", "-o", filepath.Join(dir, "x.npy")).fails(t, 1, "blk.9.x")
}
