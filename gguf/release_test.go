package gguf

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"pesti/gguf/quant"
)

// TestRelease checks that released rows can be read again. Rows at both ends may share a page with
// others, and a file in memory must not lose data.
func TestRelease(t *testing.T) {
	const rows, cols = 300, 200
	data := make([]byte, 4*rows*cols)
	for i := range data {
		data[i] = byte(i * 7)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	w := NewWriter()
	w.AddTensor("a", quant.F32, []int64{cols, rows}, data)
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	mapped, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := Parse("m.gguf", whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*File{mapped, parsed} {
		a := &f.Tensors()[0]
		for _, part := range [][2]int64{{0, 0}, {0, 1}, {3, 70}, {299, 300}, {0, 300}} {
			f.Release(a, part[0], part[1])
			if !bytes.Equal(f.Bytes(a), data) {
				t.Errorf("%s: rows %v changed by being released", f.Path, part)
			}
		}
	}
	a := &mapped.Tensors()[0]
	if err := mapped.Close(); err != nil {
		t.Fatal(err)
	}
	mapped.Release(a, 0, rows) // does nothing for a closed file
}
