package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/demo"
	"pesti/conformance/testenv"
	"pesti/exec/plan"
	"pesti/gguf"
	"pesti/gguf/convert"
	"pesti/gguf/quant"
)

func openGGUF(t *testing.T, path string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// integers are the integer types. Tensors of these types are no weights.
var integers = []quant.Type{quant.I8, quant.I16, quant.I32, quant.I64}

func TestConvert(t *testing.T) {
	model := demoFile(t, nil)
	from := openGGUF(t, model)
	for _, typ := range convert.Types() {
		name := strings.ToLower(typ.String())
		path := filepath.Join(t.TempDir(), name+".gguf")
		r := pesti("convert", model, "--type", name, "-o", path)
		if r.code != 0 || r.out != "" || strings.Contains(r.err, "warning") || !strings.Contains(r.err, path+": ") {
			t.Fatalf("convert --type %s: %+v", name, r)
		}
		to := openGGUF(t, path)
		for _, key := range from.Keys() {
			x, _ := from.Value(key)
			if y, ok := to.Value(key); key != "general.file_type" && (!ok || x.String() != y.String()) {
				t.Errorf("%s: key %s is %v, want %v", name, key, y, x)
			}
		}
		for i, x := range from.Tensors() {
			y := to.Tensors()[i]
			want := typ
			if len(x.Dims) < 2 {
				want = quant.F32
			}
			if y.Name != x.Name || !slices.Equal(y.Dims, x.Dims) || y.Type != want {
				t.Errorf("%s: tensor %d is %s %s %v, want %s %s %v", name, i, y.Name, y.Type, y.Dims, x.Name, want, x.Dims)
			}
			if a, b := floatsOf(t, from, x.Name), floatsOf(t, to, x.Name); typ == quant.F32 && !slices.Equal(a, b) {
				t.Errorf("%s: %s has other values than the model", name, x.Name)
			}
		}
		ok(t, "inspect", "--check", path)
	}
	a, b := ok(t, "run", model, "-p", "Once", "--temp", "0", "-n", "8"), ""
	path := filepath.Join(t.TempDir(), "f32.gguf")
	ok(t, "convert", "demo", "--type", "f32", "-o", path)
	if b = ok(t, "run", path, "-p", "Once", "--temp", "0", "-n", "8"); a != b {
		t.Errorf("in float32 the story goes on %q, want %q", b, a)
	}
	if out := ok(t, "convert", "demo", "--type", "f32", "-o", "-"); out != readFile(t, path) {
		t.Errorf("standard output has other bytes than the file")
	}
}

func floatsOf(t *testing.T, f *gguf.File, name string) []float32 {
	t.Helper()
	x, found := f.Tensor(name)
	if !found {
		t.Fatalf("%s has no tensor %q", f.Path, name)
	}
	values, err := f.Values(x, 0, x.Rows())
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func TestConvertKeeps(t *testing.T) {
	// 48 is a multiple of 16, but not of a block. The keys split.* belong to another file.
	path := rewrittenDemo(t, false, func(w *gguf.Writer) {
		w.SetUint16("split.no", 0)
		w.SetUint16("split.count", 1)
		w.SetInt32("split.tensors.count", 2)
		w.AddTensor("odd", quant.F16, []int64{48, 2}, make([]byte, 192))
		w.AddTensor("even", quant.F16, []int64{64, 2}, make([]byte, 256))
		for i, typ := range integers { // matrices and vectors
			for _, dims := range [][]int64{{32}, {32, 2}} {
				data := make([]byte, 32*len(dims)<<i)
				for j := range data {
					data[j] = byte(j * 7)
				}
				w.AddTensor(fmt.Sprint(typ, len(dims)), typ, dims, data)
			}
		}
	})
	out := filepath.Join(t.TempDir(), "out.gguf")
	r := pesti("convert", path, "--type", "q8_0", "-o", out)
	if r.code != 0 || !strings.Contains(r.err, "warning") || !strings.Contains(r.err, "odd stays F16: its rows of 48") {
		t.Fatalf("%+v", r)
	}
	if !strings.Contains(r.err, out+": 1 of 2 matrices are Q8_0 now, ") {
		t.Errorf("it ends with %q", r.err)
	}
	f := openGGUF(t, out)
	odd, _ := f.Tensor("odd")
	even, _ := f.Tensor("even")
	if odd.Type != quant.F16 || even.Type != quant.Q8_0 || f.Has("split.count") {
		t.Errorf("odd is %s, even is %s, split.count is there: %v", odd.Type, even.Type, f.Has("split.count"))
	}
	from := openGGUF(t, path)
	for _, typ := range integers {
		for n := 1; n <= 2; n++ {
			name := fmt.Sprint(typ, n)
			x, _ := from.Tensor(name)
			y, _ := f.Tensor(name)
			if y.Type != typ || !bytes.Equal(from.Bytes(x), f.Bytes(y)) {
				t.Errorf("%s is %s, expected its own bytes", name, y.Type)
			}
		}
	}
}

// A model is split within the limits, opens from any of its files, and can be joined to the
// original.
func TestConvertSplit(t *testing.T) {
	model := demoFile(t, nil)
	from := openGGUF(t, model)
	hash, err := from.HashData()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  []string
		files int
		same  bool // the data stays the same
	}{
		{[]string{"--split-max-tensors", "20"}, (len(from.Tensors())-1)/20 + 1, true},
		{[]string{"--split-max-tensors", "1000"}, 1, true},
		{[]string{"--split-max-size", "1M"}, 0, true},
		{[]string{"--split-max-size", "1G"}, 1, true},
		{[]string{"--split-max-size", "1M", "--split-max-tensors", "5", "--type", "q8_0"}, 0, false},
	} {
		dir := t.TempDir()
		r := pesti(append([]string{"convert", model, "-o", filepath.Join(dir, "a b.gguf")}, c.args...)...)
		paths, _ := filepath.Glob(filepath.Join(dir, "*"))
		if r.code != 0 || r.out != "" || !strings.HasPrefix(r.err, paths[0]) || c.files > 0 && len(paths) != c.files || c.files == 0 && len(paths) < 2 {
			t.Fatalf("convert %q writes %q: %+v", c.args, paths, r)
		}
		for i, path := range paths {
			if want := fmt.Sprintf("a b-%05d-of-%05d.gguf", i+1, len(paths)); filepath.Base(path) != want {
				t.Errorf("convert %q: file %d is %s, want %s", c.args, i, path, want)
			}
			if info, err := os.Stat(path); err != nil || c.args[1] == "1M" && info.Size() > 1e6 {
				t.Errorf("convert %q: %s has %d bytes, %v", c.args, path, info.Size(), err)
			}
		}
		last := paths[len(paths)-1]
		if got, err := openGGUF(t, last).HashData(); err != nil || c.same && got != hash {
			t.Errorf("convert %q: other weights, %v", c.args, err)
		}
		if !c.same {
			continue
		}
		for _, key := range []string{"general.file_type", "general.name"} {
			x, _ := from.Value(key)
			if y, _ := openGGUF(t, last).Value(key); x.String() != y.String() {
				t.Errorf("convert %q: key %s is %v, want %v", c.args, key, y, x)
			}
		}
	}
	dir := t.TempDir()
	out := filepath.Join(dir, "m.gguf")
	pesti("convert", model, "--split-max-size", "1M", "-o", "-").fails(t, 2, "standard output")
	for _, size := range []string{"", "M", "0M", "-1M", "1", "1K", "1MG", "1.5G", "99999999999G", "+1M", "1 M"} {
		pesti("convert", model, "--split-max-size", size, "-o", out).fails(t, 2, "M or G")
	}
	pesti("convert", model, "--split-max-tensors", "0", "-o", out).fails(t, 2, "1 or more")
	large := rewrittenDemo(t, true, func(w *gguf.Writer) { w.AddTensor("large", quant.I8, []int64{2e6}, make([]byte, 2e6)) })
	pesti("convert", large, "--split-max-size", "1M", "-o", out).fails(t, 1, out, `"large"`, "1000000")
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	// Output to the model's own files, and an interrupt.
	ok(t, "convert", model, "--split-max-tensors", "20", "-o", out)
	before, _ := os.ReadDir(dir)
	first := filepath.Join(dir, before[0].Name())
	pesti("convert", first, "--split-max-tensors", "20", "-o", out).fails(t, 2, "is the model itself")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := (call{ctx: ctx, args: []string{"convert", first, "--split-max-tensors", "5", "-o", out}}).run(); r.code != exitInterrupted {
		t.Errorf("an interrupt: %+v", r)
	}
	if after, _ := os.ReadDir(dir); len(after) != len(before) {
		t.Errorf("left behind: %v", after)
	}
}

// Layers with the same result share a line, and the last line counts the stored matrices. The type
// may be in capitals, as inspect prints it.
func TestConvertFoldsLayers(t *testing.T) {
	path := rewrittenDemo(t, false, func(w *gguf.Writer) {
		for n := range 30 {
			w.AddTensor(fmt.Sprintf("blk.%d.attn_q.weight", n), quant.F16, []int64{48, 2}, make([]byte, 192))
			w.AddTensor(fmt.Sprintf("blk.%d.ffn_up.weight", n), quant.F16, []int64{256, 1}, make([]byte, 512))
		}
		w.AddTensor("blk.7.odd", quant.F16, []int64{48, 2}, make([]byte, 192))
		w.AddTensor("output.weight", quant.F16, []int64{48, 2}, make([]byte, 192))
	})
	out := filepath.Join(t.TempDir(), "out.gguf")
	r := pesti("convert", path, "--type", "Q4_K", "-o", out)
	info, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	warn := "pesti: warning: " + path + ": tensor "
	want := warn + "blk.N.attn_q.weight, 30 layers, stays F16: its rows of 48 are no multiple of a block of Q4_K\n" +
		warn + "blk.7.odd stays F16: its rows of 48 are no multiple of a block of Q4_K\n" +
		warn + "output.weight stays F16: its rows of 48 are no multiple of a block of Q4_K\n" +
		out + ": 30 of 62 matrices are Q4_K now, " + plan.HumanBytes(info.Size()) + ", from "
	if r.code != 0 || !strings.HasPrefix(r.err, want) || strings.Count(r.err, "\n") != 4 {
		t.Errorf("exit code %d, says:\n%s\nwant:\n%s", r.code, r.err, want)
	}
}

func TestConvertRefuses(t *testing.T) {
	dir := t.TempDir()
	model := demoFile(t, nil)
	link := filepath.Join(dir, "link.gguf")
	if err := os.Symlink(model, link); err != nil {
		testenv.Lacks(t, err)
	}
	out := filepath.Join(dir, "out.gguf")
	pesti("convert", model, "-o", out).fails(t, 2, "--type", "f32, f16", "q6_k")
	pesti("convert", model, "--type", "q9", "-o", out).fails(t, 2, "q9", "expected one of f32")
	pesti("convert", model, "--type", "f32").fails(t, 2, "-o FILE.gguf")
	pesti("convert", "--type", "f32", "-o", out).fails(t, 2, "expected MODEL")
	pesti("convert", model, "--type", "f32", "-o", model).fails(t, 2, model, "itself")
	pesti("convert", model, "--type", "f32", "-o", link).fails(t, 2, link, "itself")
	pesti("convert", filepath.Join(dir, "none"), "--type", "f32", "-o", out).fails(t, 1, "none")
	if readFile(t, model) != string(demo.GGUF()) {
		t.Error("the model was changed")
	}
	// A failed conversion leaves no file.
	if r := pesti("convert", model, "--type", "f32", "-o", filepath.Join(dir, "no", "out.gguf")); r.code != 1 {
		t.Errorf("into a folder that is missing: %+v", r)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}
