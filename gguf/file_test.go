package gguf

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pesti/gguf/quant"
)

// twoTensors is a writer of a file with an F32 and a Q8_0 tensor.
func twoTensors() *Writer {
	w := NewWriter()
	w.SetStr("general.architecture", "test")
	w.AddTensor("a", quant.F32, []int64{3, 2}, []byte(f32s(1, 2, 3, 4, 5, 6)))
	block := "\x00\x3c" + string(slices.Repeat([]byte{2, 0xff}, 16)) // scale 1
	w.AddTensor("b", quant.Q8_0, []int64{32, 2}, []byte(block+block))
	return w
}

func f32s(x ...float32) string {
	s := ""
	for _, v := range x {
		s += num(math.Float32bits(v))
	}
	return s
}

func writeFile(t *testing.T, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	var whole bytes.Buffer
	if err := twoTensors().Write(&whole); err != nil {
		t.Fatal(err)
	}
	data := whole.Bytes()
	secret := writeFile(t, path("secret.gguf"), data)
	if err := os.Chmod(secret, 0); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ path, want string }{
		{path("absent.gguf"), "no such file"},
		{dir, "is a directory"},
		{writeFile(t, path("empty.gguf"), nil), "truncated: the file is empty"},
		{writeFile(t, path("page.gguf"), []byte("<html><body>Not found</body></html>")), "is a web page"},
		{writeFile(t, path("metadata.gguf"), data[:40]), "truncated"},
		{writeFile(t, path("directory.gguf"), data[:len(data)/2]), `tensor "b": truncated`},
		{writeFile(t, path("half.gguf"), data[:len(data)-128]), `tensor "a": needs 24 bytes`},
		// The last 60 bytes are padding after tensor b, which may be missing.
		{writeFile(t, path("byte.gguf"), data[:len(data)-61]), `tensor "b": needs 68 bytes`},
		{os.DevNull, "is not a regular file"},
	}
	if os.Geteuid() != 0 { // root can read any file
		cases = append(cases, struct{ path, want string }{secret, "permission denied"})
	}
	for _, c := range cases {
		f, err := Open(c.path)
		if err == nil {
			f.Close()
			t.Errorf("%s: accepted, want an error with %q", c.path, c.want)
			continue
		}
		if s := err.Error(); strings.Count(s, c.path) != 1 || !strings.Contains(s, c.want) || strings.Contains(s, "\n") {
			t.Errorf("error is %q, want one line with the file once and %q", s, c.want)
		}
	}
}

// valuesOf returns all values of a tensor.
func valuesOf(t *testing.T, f *File, name string) []float32 {
	t.Helper()
	x, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %q", name)
	}
	values, err := f.Values(x, 0, x.Rows())
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func TestTensorValues(t *testing.T) {
	w := twoTensors()
	w.AddTensor("scalar", quant.F32, nil, []byte(f32s(7)))
	w.AddTensor("none", quant.F32, []int64{4, 0}, nil)
	w.AddTensor("cube", quant.I8, []int64{2, 1, 3}, []byte{1, 2, 3, 4, 5, 6})
	f := reopen(t, w)
	for name, want := range map[string][]float32{
		"a":      {1, 2, 3, 4, 5, 6},
		"b":      slices.Repeat([]float32{2, -1}, 32),
		"scalar": {7},
		"none":   {},
		"cube":   {1, 2, 3, 4, 5, 6},
	} {
		if got := valuesOf(t, f, name); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	b, _ := f.Tensor("cube")
	if b.Elems() != 6 || b.Rows() != 3 || b.Size != 6 {
		t.Errorf("cube has %d elements, %d rows, %d bytes", b.Elems(), b.Rows(), b.Size)
	}
}

// reopen writes to a file and opens it.
func reopen(t *testing.T, w *Writer) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestDigests(t *testing.T) {
	f := reopen(t, twoTensors())
	raw, err := os.ReadFile(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := f.Tensor("a")
	// Metadata, directory and its last field, the offset of b, end before the
	// padding to the first tensor.
	end := bytes.LastIndex(raw[:a.Offset], []byte(T("b", []uint64{32, 2}, 8, 32))) + len(T("b", []uint64{32, 2}, 8, 32))
	if got, want := f.Digest(), sha256.Sum256(raw[:end]); got != want {
		t.Errorf("digest %x, want that of the first %d bytes, %x", got, end, want)
	}
	data := append(slices.Clone(raw[a.Offset:a.Offset+24]), raw[a.Offset+32:a.Offset+32+68]...)
	if got, err := f.HashData(); err != nil || got != sha256.Sum256(data) {
		t.Errorf("hash of the data %x, %v, want %x", got, err, sha256.Sum256(data))
	}
	if f.Size != int64(len(raw)) || f.Version != 3 {
		t.Errorf("size %d, version %d, want %d, 3", f.Size, f.Version, len(raw))
	}
}

// TestSampleData changes bytes that are read and bytes between them.
func TestSampleData(t *testing.T) {
	const size = 64 * 8192
	sample := func(at int) [32]byte {
		data := make([]byte, size)
		if at >= 0 {
			data[at] = 1
		}
		w := NewWriter()
		w.SetStr("general.architecture", "test")
		const cut = 100 * 1024 // in the middle of a piece
		w.AddTensor("a", quant.I8, []int64{cut}, data[:cut])
		w.AddTensor("none", quant.I8, []int64{0}, nil)
		w.AddTensor("b", quant.I8, []int64{size - cut}, data[cut:])
		f := reopen(t, w)
		sum, err := f.SampleData()
		if err != nil {
			t.Fatal(err)
		}
		for sample, want := range map[bool]string{true: fmt.Sprintf("samples-sha256:%x", sum), false: fmt.Sprintf("sha256:%x", sha256.Sum256(data))} {
			if got, err := f.WeightsDigest(sample); err != nil || got != want || SampledDigest(got) != sample {
				t.Errorf("digest %s, error %v, expected %s", got, err, want)
			}
		}
		return sum
	}
	same := sample(-1)
	for at, seen := range map[int]bool{0: true, 4095: true, 4096: false, 8191: false, 12*8192 + 4095: true, 30 * 8192: true, 63*8192 + 4095: true, size - 1: false} {
		if got := sample(at) != same; got != seen {
			t.Errorf("byte %d: seen %v, expected %v", at, got, seen)
		}
	}
	empty := NewWriter()
	empty.SetStr("general.architecture", "test")
	if sum, err := reopen(t, empty).SampleData(); err != nil || sum != sha256.Sum256(nil) {
		t.Errorf("no tensors: %x, %v", sum, err)
	}
}

func TestCheck(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	w := twoTensors()
	w.AddTensor("values", quant.F32, []int64{3}, []byte(f32s(1, nan, inf)))
	q4k := make([]byte, 3*144)
	copy(q4k[144+2:], "\x00\x7e")         // dmin of block 1 is NaN
	copy(q4k[2*144:], "\x00\xfc\x00\x7c") // both of block 2, reported once
	w.AddTensor("q4k", quant.Q4_K, []int64{768}, q4k)
	q6k := make([]byte, 2*210)
	copy(q6k[210+208:], "\x00\x7c")
	w.AddTensor("q6k", quant.Q6_K, []int64{512}, q6k)
	w.AddTensor("many", quant.Q4_0, []int64{32, 10}, bytes.Repeat(append([]byte{1, 0x7c}, make([]byte, 16)...), 10))
	w.AddTensor("long", quant.BF16, []int64{3000}, append(make([]byte, 2*2999), 0x80, 0xff))
	w.AddTensor("undecoded", quant.Q1_0, []int64{128}, append([]byte{0, 0x7e}, make([]byte, 16)...))
	block := func(bytes int, at int, scale string) []byte {
		b := make([]byte, bytes)
		copy(b[at:], scale)
		return b
	}
	// 0xfe is the largest power of two, and 0x7e the largest number.
	w.AddTensor("mxfp4", quant.MXFP4, []int64{64}, append(block(17, 0, "\xfe"), block(17, 0, "\xff")...))
	w.AddTensor("nvfp4", quant.NVFP4, []int64{192}, slices.Concat(block(36, 0, "\x7e\xfe\x00\x01"), block(36, 3, "\x7f"), block(36, 1, "\xff")))
	w.AddTensor("q8k", quant.Q8_K, []int64{256}, block(292, 0, f32s(inf)))
	// The nibbles 7, c, 0, 0, stored from the last one on, are +Inf.
	w.AddTensor("iq1m", quant.IQ1_M, []int64{512}, append(block(56, 48, "\xff\xbf\xff\xff\xff\xff\xff\xff"), block(56, 48, "\xff\x0f\xff\x0f\xff\xcf\xff\x7f")...))
	f := reopen(t, w)
	want := []string{
		`tensor "values", block 1: the value is NaN, expected a finite float32`,
		`tensor "values", block 2: the value is +Inf, expected a finite float32`,
		`tensor "q4k", block 1: the scale at byte 2 is NaN, expected a finite number`,
		`tensor "q4k", block 2: the scale at byte 0 is -Inf, expected a finite number`,
		`tensor "q6k", block 1: the scale at byte 208 is +Inf, expected a finite number`,
	}
	for i := range maxFindings {
		want = append(want, `tensor "many", block `+string(rune('0'+i))+`: the scale at byte 0 is NaN, expected a finite number`)
	}
	want = append(want,
		`tensor "many": 2 blocks more`,
		`tensor "long", block 2999: the value is -Inf, expected a finite float32`,
		`tensor "undecoded", block 0: the scale at byte 0 is NaN, expected a finite number`,
		`tensor "mxfp4", block 1: the scale at byte 0 is NaN, expected a finite number`,
		`tensor "nvfp4", block 1: the scale at byte 3 is NaN, expected a finite number`,
		`tensor "nvfp4", block 2: the scale at byte 1 is NaN, expected a finite number`,
		`tensor "q8k", block 0: the scale at byte 0 is +Inf, expected a finite number`,
		`tensor "iq1m", block 0: the scale at byte 48 is NaN, expected a finite number`,
		`tensor "iq1m", block 1: the scale at byte 48 is +Inf, expected a finite number`,
	)
	var got []string
	for _, d := range f.Check() {
		got = append(got, d.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := reopen(t, twoTensors()).Check(); len(got) > 0 {
		t.Errorf("found %v in a sound file", got)
	}
}

// TestFileBecomesShorter truncates an open file. Reading the missing part must return an error and
// not fault.
func TestFileBecomesShorter(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what a shortened mapping does is known for Linux")
	}
	w := NewWriter()
	w.SetStr("general.name", "still here")
	w.AddTensor("t", quant.F32, []int64{1 << 16}, make([]byte, 4<<16))
	f := reopen(t, w)
	if err := os.Truncate(f.Path, 4096); err != nil {
		t.Fatal(err)
	}
	const want = "became shorter"
	x, _ := f.Tensor("t")
	if _, err := f.Values(x, 0, 1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Values: error %v", err)
	}
	if _, err := f.Copy(x); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Copy: error %v", err)
	}
	if err := f.ReadAt(x, make([]byte, 8), 4000); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("ReadAt: error %v", err)
	}
	if _, err := f.SampleData(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("SampleData: error %v", err)
	}
	if _, err := f.HashData(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("HashData: error %v", err)
	}
	if found := f.Check(); len(found) != 1 || !strings.Contains(found[0].What, want) {
		t.Errorf("Check found %v", found)
	}
	if s, err := f.Str("general.name"); err != nil || s != "still here" {
		t.Errorf("metadata is %q, %v", s, err)
	}
}

// TestRows compares some rows of a tensor of blocks with the same rows of the whole tensor.
func TestRows(t *testing.T) {
	const rows, cols = 6, 64 // of two blocks each
	data := make([]byte, rows*2*34)
	for i := range data {
		data[i] = byte(i * 7 % 60) // small scales
	}
	w := NewWriter()
	w.AddTensor("matrix", quant.Q8_0, []int64{cols, 2, 3}, data)
	w.AddTensor("vector", quant.F32, []int64{2}, data[:8])
	w.AddTensor("scalar", quant.F32, nil, data[8:12])
	w.AddTensor("undecoded", quant.Q1_0, []int64{128}, make([]byte, 18))
	f := reopen(t, w)
	tensor := func(name string) *Tensor {
		x, ok := f.Tensor(name)
		if !ok {
			t.Fatalf("no tensor %q", name)
		}
		return x
	}
	for name, n := range map[string]int64{"matrix": rows, "vector": 1, "scalar": 1} {
		all := valuesOf(t, f, name)
		width := int64(len(all)) / n
		for first := range n + 1 {
			for end := first; end <= n; end++ {
				got, err := f.Values(tensor(name), first, end)
				if err != nil || !slices.Equal(got, all[first*width:end*width]) {
					t.Errorf("%s: rows %d to %d are %v, %v", name, first, end-1, got, err)
				}
			}
		}
		for _, bad := range [][2]int64{{-1, 1}, {1, 0}, {0, n + 1}, {n + 1, n + 1}, {math.MinInt64, math.MaxInt64}} {
			if _, err := f.Values(tensor(name), bad[0], bad[1]); err == nil || !strings.Contains(err.Error(), "has no rows") {
				t.Errorf("%s: rows %v: error %v", name, bad, err)
			}
		}
		x := tensor(name)
		for from := range x.Size + 1 {
			data := make([]byte, x.Size-from)
			if err := f.ReadAt(x, data, from); err != nil || !slices.Equal(data, f.Bytes(x)[from:]) {
				t.Errorf("%s from byte %d: %v, %v", name, from, data, err)
			}
		}
		for _, at := range []int64{-1, 1, math.MinInt64, math.MaxInt64} {
			if err := f.ReadAt(x, make([]byte, x.Size), at); err == nil || !strings.Contains(err.Error(), "has no bytes") {
				t.Errorf("%s: reading from %d: error %v", name, at, err)
			}
		}
		if data, err := f.Copy(tensor(name)); err != nil || !slices.Equal(data, f.Bytes(tensor(name))) {
			t.Errorf("%s: the copy is %v, %v", name, data, err)
		}
	}
	if _, err := f.Values(tensor("undecoded"), 0, 1); err == nil || !strings.Contains(err.Error(), "cannot be decoded") {
		t.Errorf("a type without values: error %v", err)
	}
}

func TestClosed(t *testing.T) {
	f := reopen(t, twoTensors())
	b, _ := f.Tensor("b")
	for range 2 {
		if err := f.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if f.Bytes(b) != nil {
		t.Error("a closed file has bytes")
	}
	if _, err := f.Values(b, 0, b.Rows()); err == nil {
		t.Error("a closed file has values")
	}
	if _, err := f.Copy(b); err == nil {
		t.Error("a closed file has a copy of its bytes")
	}
	if _, err := f.HashData(); err == nil {
		t.Error("a closed file has a hash")
	}
	if s, err := f.Str("general.architecture"); err != nil || s != "test" {
		t.Errorf("metadata of a closed file: %q, %v", s, err)
	}
	f.Check()
}

func TestWriterRefuses(t *testing.T) {
	data := make([]byte, 128)
	for _, c := range []struct {
		name string
		make func(*Writer)
		want string
	}{
		{"alignment", func(w *Writer) { w.SetUint32("general.alignment", 48) }, `key "general.alignment": found 48`},
		{"alignment kind", func(w *Writer) { w.SetUint64("general.alignment", 64) }, `key "general.alignment": found u64`},
		{"empty key", func(w *Writer) { w.SetBool("", true) }, "empty key"},
		{"long name", func(w *Writer) { w.AddTensor(strings.Repeat("n", 64), quant.F32, []int64{32}, data) }, "… of 64 bytes"},
		{"two of a name", func(w *Writer) {
			w.AddTensor("t", quant.F32, []int64{32}, data)
			w.AddTensor("t", quant.F32, []int64{32}, data)
		}, "duplicate name"},
		{"removed type", func(w *Writer) { w.AddTensor("t", 4, []int64{32}, data) }, "removed"},
		{"unknown type", func(w *Writer) { w.AddTensor("t", 99, []int64{32}, data) }, "type 99 is not known"},
		{"part of a block", func(w *Writer) { w.AddTensor("t", quant.Q4_0, []int64{33}, data) }, "multiple of 32"},
		{"negative dim", func(w *Writer) { w.AddTensor("t", quant.F32, []int64{-1}, data) }, `tensor "t": dim`},
		{"five dims", func(w *Writer) { w.AddTensor("t", quant.F32, []int64{1, 1, 1, 1, 32}, data) }, "found 5 dims"},
		{"short data", func(w *Writer) { w.AddTensor("t", quant.F32, []int64{33}, data) }, "found 128 bytes of data, expected 132"},
		{"long data", func(w *Writer) { w.AddTensor("t", quant.F32, []int64{31}, data) }, "found 128 bytes of data, expected 124"},
		{"failing source", func(w *Writer) {
			w.AddTensorFunc("t", quant.F32, []int64{1}, func(io.Writer) error { return io.ErrUnexpectedEOF })
		}, `tensor "t": unexpected EOF`},
	} {
		w := NewWriter()
		c.make(w)
		dir := t.TempDir()
		err := w.WriteFile(filepath.Join(dir, "f.gguf"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: left %v behind", c.name, left)
		}
	}
	if err := NewWriter().WriteFile(filepath.Join(t.TempDir(), "no", "folder.gguf")); err == nil {
		t.Error("wrote into a folder that is not there")
	}
}

// TestWriterCopies sets the values of one file in another, and overwrites one.
func TestWriterCopies(t *testing.T) {
	f := parseEveryKind(t)
	w := NewWriter()
	w.SetAll(f)
	w.SetUint32("u8", 5)
	g := reopen(t, w)
	if !slices.Equal(f.Keys(), g.Keys()) {
		t.Errorf("keys %q, want %q", g.Keys(), f.Keys())
	}
	for _, k := range f.Keys()[1:] {
		a, _ := f.Value(k)
		b, _ := g.Value(k)
		if a.TypeName() != b.TypeName() || !bytes.Equal(a.raw, b.raw) {
			t.Errorf("key %q is %s, want %s", k, b, a)
		}
	}
	if n, err := g.Uint("u8"); err != nil || n != 5 {
		t.Errorf("overwritten key is %d, %v", n, err)
	}
}
