package gguf

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pesti/gguf/quant"
)

// shardOf returns a writer of shard no of count; shard i holds tensor "t<i>"
// with the one value i.
func shardOf(no, count uint16, tensors int32) *Writer {
	w := NewWriter()
	if no == 0 {
		w.SetStr("general.architecture", "test")
	}
	w.SetUint16(splitNoKey, no)
	w.SetUint16(splitCountKey, count)
	w.SetInt32(splitTensorsKey, tensors)
	w.AddTensor(fmt.Sprintf("t%d", no), quant.F32, []int64{1}, []byte(f32s(float32(no))))
	return w
}

func shardName(no, count int) string { return fmt.Sprintf("m-%05d-of-%05d.gguf", no+1, count) }

func TestSplit(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		if err := shardOf(uint16(i), 3, 3).WriteFile(filepath.Join(dir, shardName(i, 3))); err != nil {
			t.Fatal(err)
		}
	}
	var digest, data [32]byte
	for i := range 3 {
		f, err := Open(filepath.Join(dir, shardName(i, 3)))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if s, err := f.Str("general.architecture"); err != nil || s != "test" {
			t.Errorf("from shard %d: architecture %q, %v", i, s, err)
		}
		for j, x := range f.Tensors() {
			if d := valuesOf(t, f, x.Name); x.Shard != j || !slices.Equal(d, []float32{float32(j)}) {
				t.Errorf("from shard %d: tensor %q in shard %d is %v", i, x.Name, x.Shard, d)
			}
		}
		hash, err := f.HashData()
		if err != nil || len(f.Tensors()) != 3 {
			t.Errorf("from shard %d: %d tensors, %v", i, len(f.Tensors()), err)
		}
		if i > 0 && (f.Digest() != digest || hash != data) {
			t.Errorf("from shard %d: other digests than from shard 0", i)
		}
		digest, data = f.Digest(), hash
	}
}

func TestSplitRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		// shards to write, by file name
		files map[string]*Writer
		open  string
		want  []string
	}{
		{"one missing", map[string]*Writer{shardName(1, 3): shardOf(1, 3, 3), shardName(2, 3): shardOf(2, 3, 3)},
			shardName(1, 3), []string{"1 of 3 shards are missing", shardName(0, 3)}},
		{"many missing", map[string]*Writer{shardName(1, 9): shardOf(1, 9, 9)},
			shardName(1, 9), []string{"8 of 9 shards are missing", shardName(0, 9), "and 4 more"}},
		{"renamed", map[string]*Writer{"model.gguf": shardOf(1, 3, 3)},
			"model.gguf", []string{"is shard 2 of 3", "-00002-of-00003.gguf"}},
		{"swapped", map[string]*Writer{shardName(0, 2): shardOf(1, 2, 2), shardName(1, 2): shardOf(0, 2, 2)},
			shardName(0, 2), []string{"is shard 2 of 2, expected a name that ends in -00002-of-00002.gguf"}},
		{"counts disagree", map[string]*Writer{shardName(0, 2): shardOf(0, 2, 2), shardName(1, 2): shardOf(1, 3, 2)},
			shardName(0, 2), []string{shardName(1, 2), "says shard 2 of 3", "expected shard 2 of 2"}},
		{"no count in one", map[string]*Writer{shardName(0, 2): shardOf(0, 2, 3), shardName(1, 2): twoTensors()},
			shardName(0, 2), []string{shardName(1, 2), "expected shard 2 of 2"}},
		{"tensors disagree", map[string]*Writer{shardName(0, 2): shardOf(0, 2, 5), shardName(1, 2): shardOf(1, 2, 5)},
			shardName(0, 2), []string{"hold 2 tensors, expected 5"}},
		{"number beyond count", map[string]*Writer{shardName(0, 2): shardOf(2, 2, 2)},
			shardName(0, 2), []string{`key "split.no"`}},
		{"shard of another model", map[string]*Writer{shardName(0, 2): shardOf(0, 2, 2), shardName(1, 2): shardOf(1, 2, 7)},
			shardName(0, 2), []string{shardName(1, 2), "with 7 tensors in all", "with 2", shardName(0, 2) + " says"}},
		{"not a shard in between", map[string]*Writer{shardName(0, 3): shardOf(0, 3, 3), shardName(1, 3): shardOf(0, 1, 1), shardName(2, 3): shardOf(2, 3, 3)},
			shardName(2, 3), []string{shardName(1, 3), "expected shard 2 of 3"}},
		{"second missing, first given", map[string]*Writer{shardName(0, 2): shardOf(0, 2, 2)},
			shardName(0, 2), []string{"1 of 2 shards are missing", shardName(1, 2)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, w := range c.files {
				if err := w.WriteFile(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			f, err := Open(filepath.Join(dir, c.open))
			if err == nil {
				f.Close()
				t.Fatal("accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line", err)
			}
		})
	}
}

func TestSplitTwice(t *testing.T) {
	dir := t.TempDir()
	for i := range uint16(2) {
		w := shardOf(i, 2, 3)
		if i == 1 {
			w.AddTensor("t0", quant.F32, []int64{1}, []byte(f32s(9)))
		}
		if err := w.WriteFile(filepath.Join(dir, shardName(int(i), 2))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(filepath.Join(dir, shardName(0, 2))); err == nil || !strings.Contains(err.Error(), `tensor "t0": is in shards 1 and 2`) {
		t.Errorf("error %v", err)
	}
	// From memory there are no other shards to find.
	data, err := os.ReadFile(filepath.Join(dir, shardName(0, 2)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse("m", data); err == nil || !strings.Contains(err.Error(), "is shard 1 of 2") {
		t.Errorf("error %v", err)
	}
}
