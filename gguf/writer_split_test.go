package gguf

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti/gguf/quant"
)

// eleven returns a writer of eleven tensors of several types and sizes, one of them empty, with
// metadata of some hundred bytes and an alignment of its own.
func eleven() *Writer {
	w := NewWriter()
	w.SetStr("general.architecture", "test")
	w.SetUint32("general.alignment", 64)
	w.SetStrs("test.words", slices.Repeat([]string{"word", ""}, 30))
	for i := range 11 {
		rows := int64(i * 7 % 11)
		data := bytes.Repeat([]byte{byte(i), 0x3c}, int(rows)*32)
		switch i % 3 {
		case 0:
			w.AddTensor(fmt.Sprintf("blk.%d.f16", i), quant.F16, []int64{32, rows}, data)
		case 1:
			w.AddTensor(fmt.Sprintf("blk.%d.q8_0", i), quant.Q8_0, []int64{32, rows}, data[:34*rows])
		case 2:
			w.AddTensor(fmt.Sprintf("a name of some length, block %d", i), quant.I8, []int64{1, rows, 2}, data[:2*rows])
		}
	}
	return w
}

// fileOf returns the bytes of a shard with the given number and count, written as a single file.
func fileOf(t *testing.T, w *Writer, from, to, no int) []byte {
	t.Helper()
	s := NewWriter()
	for _, k := range w.keys {
		if no == 0 || k == "general.alignment" {
			s.Set(k, w.values[k])
		}
	}
	s.SetUint16("split.no", uint16(no))
	s.SetUint16("split.count", 1)
	s.SetInt32("split.tensors.count", int32(len(w.tensors)))
	s.tensors = w.tensors[from:to]
	var out bytes.Buffer
	if err := s.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestSplitWritten writes split files under many limits and opens them from every shard: their
// contents equal a single file's, no shard exceeds its limit, and no shard has room for one more
// tensor.
func TestSplitWritten(t *testing.T) {
	w := eleven()
	whole := reopen(t, w)
	hash, err := whole.HashData()
	if err != nil {
		t.Fatal(err)
	}
	metadata := int64(len(fileOf(t, w, 0, 0, 0)))
	for _, c := range []struct {
		limit SplitLimit
		want  int // shards
	}{
		{SplitLimit{}, 1},
		{SplitLimit{Tensors: 11}, 1},
		{SplitLimit{Tensors: 10}, 2},
		{SplitLimit{Tensors: 4}, 3},
		{SplitLimit{Tensors: 1}, 11},
		{SplitLimit{Tensors: -1, Bytes: -1}, 1},
		{SplitLimit{Bytes: math.MaxInt64}, 1},
		{SplitLimit{Bytes: whole.Size}, 2}, // the split keys make the first shard longer than the limit
		{SplitLimit{Bytes: metadata}, 0},
		{SplitLimit{Bytes: metadata + 1}, 0},
		{SplitLimit{Bytes: metadata + 700}, 0},
		{SplitLimit{Bytes: metadata + 1500, Tensors: 3}, 0},
	} {
		t.Run(fmt.Sprintf("%+v", c.limit), func(t *testing.T) {
			dir := t.TempDir()
			paths, err := w.WriteSplit(t.Context(), filepath.Join(dir, "a model"), c.limit)
			if err != nil {
				t.Fatal(err)
			}
			if c.want > 0 && len(paths) != c.want {
				t.Errorf("%d shards, want %d", len(paths), c.want)
			}
			if left, _ := os.ReadDir(dir); len(left) != len(paths) {
				t.Errorf("the folder has %v", left)
			}
			next := 0
			for i, path := range paths {
				if want := fmt.Sprintf("a model-%05d-of-%05d.gguf", i+1, len(paths)); filepath.Base(path) != want {
					t.Errorf("shard %d is %s, want %s", i, path, want)
				}
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				f := splitMember(t, path)
				from := next
				next += len(f.Tensors())
				if want := fileOf(t, w, from, next, i); len(data) != len(want) {
					t.Errorf("shard %d has %d bytes, expected %d", i, len(data), len(want))
				}
				over := func(to int) bool {
					return c.limit.Tensors > 0 && to-from > c.limit.Tensors || c.limit.Bytes > 0 && int64(len(fileOf(t, w, from, to, i))) > c.limit.Bytes
				}
				if over(next) {
					t.Errorf("shard %d has %d tensors in %d bytes", i, len(f.Tensors()), len(data))
				}
				if next < len(w.tensors) && !over(next+1) {
					t.Errorf("shard %d could hold more than %d tensors", i, len(f.Tensors()))
				}
				if i > 0 && len(f.Keys()) != 4 {
					t.Errorf("shard %d has keys %v", i, f.Keys())
				}
			}
			for _, path := range paths {
				f, err := Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if got, err := f.HashData(); err != nil || got != hash {
					t.Errorf("from %s: other data, %v", path, err)
				}
				names := func(f *File) (all []string) {
					for _, x := range f.Tensors() {
						all = append(all, fmt.Sprint(x.Name, x.Type, x.Dims, x.Size))
					}
					return all
				}
				if !slices.Equal(names(f), names(whole)) {
					t.Errorf("from %s: tensors %v", path, names(f))
				}
				if want := append(slices.Clone(whole.Keys()), "split.no", "split.count", "split.tensors.count"); !slices.Equal(f.Keys(), want) {
					t.Errorf("from %s: keys %v, want %v", path, f.Keys(), want)
				}
				for _, k := range whole.Keys() {
					got, _ := f.Value(k)
					if want, _ := whole.Value(k); got.String() != want.String() {
						t.Errorf("from %s: key %s is %v, want %v", path, k, got, want)
					}
				}
				if len(f.Warnings()) > 0 {
					t.Errorf("from %s: %v", path, f.Warnings())
				}
			}
		})
	}
}

// splitMember opens one shard as if it were a file.
func splitMember(t *testing.T, path string) *File {
	t.Helper()
	s, h, err := openShard(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFile(path, []*shard{s}, []*header{h})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestSplitWrittenPython has the Python package read each shard, as its reader does: alone.
func TestSplitWrittenPython(t *testing.T) {
	w := twoTensors()
	w.AddTensor("c", quant.Q4_0, []int64{32, 3}, make([]byte, 54))
	paths, err := w.WriteSplit(t.Context(), filepath.Join(t.TempDir(), "m"), SplitLimit{Tensors: 2})
	if err != nil || len(paths) != 2 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		compareWithPython(t, splitMember(t, path))
	}
}

// TestSplitAgain splits a split model. The new set has its own shard numbers.
func TestSplitAgain(t *testing.T) {
	dir := t.TempDir()
	paths, err := eleven().WriteSplit(t.Context(), filepath.Join(dir, "m"), SplitLimit{Tensors: 2})
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(paths[3])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := NewWriter()
	w.SetAll(f)
	for i := range f.Tensors() {
		x := &f.Tensors()[i]
		w.AddTensor(x.Name, x.Type, x.Dims, f.Bytes(x))
	}
	again, err := w.WriteSplit(t.Context(), filepath.Join(dir, "again"), SplitLimit{Tensors: 5})
	if err != nil || len(again) != 3 {
		t.Fatal(again, err)
	}
	g, err := Open(again[2])
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	a, _ := f.HashData()
	b, err := g.HashData()
	if err != nil || a != b {
		t.Errorf("other data, %v", err)
	}
}

// TestSplitWriteFails checks that a failed split leaves no files, neither shards nor temporary
// files.
func TestSplitWriteFails(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit SplitLimit
		make  func(w *Writer, dir string)
		want  string
	}{
		{"source of the last tensor", SplitLimit{Tensors: 4}, func(w *Writer, _ string) {
			w.AddTensorFunc("last", quant.F32, []int64{1}, func(io.Writer) error { return io.ErrUnexpectedEOF })
		}, `-00003-of-00003.gguf: writing GGUF: tensor "last": unexpected EOF`},
		{"short data", SplitLimit{Tensors: 1}, func(w *Writer, _ string) {
			w.AddTensor("last", quant.F32, []int64{2}, make([]byte, 4))
		}, `found 4 bytes of data, expected 8`},
		{"folder of that name", SplitLimit{Tensors: 6}, func(_ *Writer, dir string) {
			os.Mkdir(filepath.Join(dir, "m-00002-of-00002.gguf"), 0o755)
		}, `m-00002-of-00002.gguf: cannot be written`},
		{"twice in different shards", SplitLimit{Tensors: 1}, func(w *Writer, _ string) {
			w.AddTensor("blk.0.f16", quant.F32, []int64{1}, make([]byte, 4))
		}, `duplicate name`},
		{"metadata too large", SplitLimit{Bytes: 64}, func(*Writer, string) {}, "metadata takes"},
		{"tensor too large", SplitLimit{Bytes: 2000}, func(w *Writer, _ string) {
			w.AddTensor("large", quant.F32, []int64{500}, make([]byte, 2000))
		}, `tensor "large": takes 2000 bytes and a header, expected up to 2000`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			w := eleven()
			c.make(w, dir)
			before, _ := os.ReadDir(dir)
			paths, err := w.WriteSplit(t.Context(), filepath.Join(dir, "m"), c.limit)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || strings.Count(err.Error(), dir) > 1 {
				t.Errorf("%v, error %v, want one line with the path once and %q", paths, err, c.want)
			}
			if left, _ := os.ReadDir(dir); len(left) != len(before) {
				t.Errorf("left %v behind", left)
			}
		})
	}
	if _, err := eleven().WriteSplit(t.Context(), filepath.Join(t.TempDir(), "no", "m"), SplitLimit{}); err == nil {
		t.Error("wrote into a folder that is not there")
	}
}
