package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// file returns a file with the given header and data.
func file(header, data string) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

// given returns a function that writes b.
func given(b []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}
}

// sample returns a writer of tensors of several types, including an empty one and a scalar, and their bytes.
func sample() (*Writer, map[string][]byte) {
	rng := rand.New(rand.NewPCG(5, 6))
	w, all := NewWriter(map[string]string{"made": "by \"hand\" – ü", "empty": ""}), map[string][]byte{}
	for _, t := range []struct {
		name, dtype string
		shape       []int64
		bytes       int
	}{
		{"a.scale", "F32", []int64{3}, 12},
		{"scalar", "F64", nil, 8},
		{"nothing", "F32", []int64{5, 0}, 0},
		{"a <b>", "F8_E4M3", []int64{3, 7}, 21},
		{"last", "BF16", []int64{1, 1, 2}, 4},
	} {
		b := make([]byte, t.bytes)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		all[t.name] = b
		w.Add(t.name, t.dtype, t.shape, given(b))
	}
	return w, all
}

func TestRoundTrip(t *testing.T) {
	w, want := sample()
	var b bytes.Buffer
	if err := w.Write(&b); err != nil {
		t.Fatal(err)
	}
	if n, err := w.Size(); err != nil || n != int64(b.Len()) {
		t.Errorf("size is %d, %v, but %d bytes were written", n, err, b.Len())
	}
	path := filepath.Join(t.TempDir(), "f.safetensors")
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	parsed, err := Parse("memory", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	opened, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*File{parsed, opened} {
		if f.Metadata["made"] != "by \"hand\" – ü" || len(f.Metadata) != 2 || len(f.Tensors()) != len(want) {
			t.Errorf("%s: metadata %q, %d tensors", f.Path, f.Metadata, len(f.Tensors()))
		}
		for name, data := range want {
			e, ok := f.Tensor(name)
			if !ok || !bytes.Equal(f.Bytes(e), data) {
				t.Errorf("%s: tensor %q is not what was written", f.Path, name)
				continue
			}
			if err := f.Read(e, func(got []byte) {
				if !bytes.Equal(got, data) {
					t.Errorf("%s: tensor %q is not what was written", f.Path, name)
				}
			}); err != nil {
				t.Error(err)
			}
			for from := range len(data) + 1 {
				got := make([]byte, len(data)-from)
				if err := f.ReadAt(e, got, int64(from)); err != nil || !bytes.Equal(got, data[from:]) {
					t.Errorf("%s: tensor %q from byte %d is % x, %v", f.Path, name, from, got, err)
				}
			}
			for _, at := range []int64{-1, 1, math.MinInt64, math.MaxInt64} {
				if err := f.ReadAt(e, make([]byte, len(data)), at); err == nil || !strings.Contains(err.Error(), "has no bytes") {
					t.Errorf("%s: tensor %q: reading from %d: error %v", f.Path, name, at, err)
				}
			}
		}
		if e, _ := f.Tensor("a <b>"); e.DType != "F8_E4M3" || !slices.Equal(e.Shape, []int64{3, 7}) {
			t.Errorf("%s: found %+v", f.Path, e)
		}
		if _, ok := f.Tensor("b"); ok {
			t.Errorf("%s: has a tensor that nobody wrote", f.Path)
		}
	}
	if parsed.Digest() != opened.Digest() {
		t.Error("the same file has two digests")
	}
	before, err := opened.HashData()
	if err != nil {
		t.Fatal(err)
	}
	changed := slices.Clone(b.Bytes())
	changed[len(changed)-1] ^= 1
	if other, err := Parse("changed", changed); err != nil || other.Digest() != parsed.Digest() {
		t.Errorf("a changed number changed the digest of the header, or %v", err)
	} else if sum, err := other.HashData(); err != nil || sum == before {
		t.Errorf("a changed number left the digest of the data as it was, or %v", err)
	}
	e, _ := opened.Tensor("last")
	for range 2 {
		if err := opened.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if opened.Bytes(e) != nil || opened.Read(e, func([]byte) {}) == nil || opened.ReadAt(e, make([]byte, 1), 0) == nil {
		t.Error("a closed file has bytes")
	}
}

// TestAligned checks that the data after the header is aligned for float32 and more.
func TestAligned(t *testing.T) {
	for n := range 130 {
		w := NewWriter(map[string]string{"x": strings.Repeat("x", n)})
		w.Add("a", "U8", []int64{1}, given([]byte{7}))
		var b bytes.Buffer
		if err := w.Write(&b); err != nil {
			t.Fatal(err)
		}
		if at := b.Len() - 1; at%dataAlign != 0 {
			t.Fatalf("the data begins at byte %d, expected a multiple of %d", at, dataAlign)
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		add  func(w *Writer)
		want string
	}{
		{"unknown type", func(w *Writer) { w.Add("a", "Q4_0", []int64{1}, given(nil)) }, `tensor "a" cannot be written: Q4_0[1]`},
		{"negative dim", func(w *Writer) { w.Add("a", "F32", []int64{-1}, given(nil)) }, `tensor "a"`},
		{"huge", func(w *Writer) { w.Add("a", "F32", []int64{1 << 40, 1 << 40}, given(nil)) }, `tensor "a"`},
		{"twice", func(w *Writer) {
			w.Add("a", "U8", []int64{1}, given([]byte{1}))
			w.Add("a", "U8", []int64{1}, given([]byte{1}))
		}, `tensor "a" cannot be written twice`},
		{"too few bytes", func(w *Writer) { w.Add("a", "U8", []int64{2}, given([]byte{1})) }, "found 1 bytes of data, expected 2"},
		{"the key of metadata", func(w *Writer) {
			w.metadata = map[string]string{"a": "b"}
			w.Add(metadataKey, "U8", []int64{1}, given([]byte{1}))
		}, "twice"},
	} {
		w := NewWriter(nil)
		c.add(w)
		if err := w.Write(io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, expected one that says %q", c.name, err, c.want)
		}
	}
}

// Each row damages a valid file in one way.
func TestRefuses(t *testing.T) {
	tensor := func(rest string) string { return `{"a":{` + rest + `}}` }
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"nothing", nil, "truncated: has 0 bytes"},
		{"half a length", make([]byte, 7), "truncated: has 7 bytes"},
		{"no header", make([]byte, 8), "begins with {"},
		{"another format", []byte("GGUF\x03\x00\x00\x00 and more"), "expected a safetensors file"},
		{"a huge length", append(bytes.Repeat([]byte{255}, 8), '{'), "expected a safetensors file"},
		{"a length beyond the file", file(`{}`, "")[:9], "truncated: its header has 2 bytes, but the file has 9"},
		{"no object", file(`[1]`, ""), "begins with {"},
		{"half an object", file(`{"a"`, ""), `its header: "a": is not JSON`},
		{"more behind it", file(`{} {}`, ""), "continues after its last }"},
		{"no UTF-8", file("{\"\xff\":1}", ""), "UTF-8"},
		{"a number", file(`{"a":1}`, ""), `"a"`},
		{"null", file(`{"a":null}`, ""), `"a": is null, expected an object`},
		{"no type", file(tensor(`"shape":[],"data_offsets":[0,1]`), "x"), `dtype is ""`},
		{"unknown type", file(tensor(`"dtype":"F7","shape":[],"data_offsets":[0,1]`), "x"), `dtype is "F7"`},
		{"no shape", file(tensor(`"dtype":"U8","data_offsets":[0,1]`), "x"), "shape is []"},
		{"negative dim", file(tensor(`"dtype":"U8","shape":[-1,-1],"data_offsets":[0,1]`), "x"), "shape is [-1 -1]"},
		{"negative dim next to 0", file(tensor(`"dtype":"U8","shape":[0,-1],"data_offsets":[0,0]`), ""), "shape is [0 -1]"},
		{"a dim that is none", file(tensor(`"dtype":"U8","shape":[1.5],"data_offsets":[0,1]`), "x"), `"a"`},
		{"too many elements", file(tensor(`"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,8]`), "12345678"), "shape is"},
		{"no offsets", file(tensor(`"dtype":"U8","shape":[]`), "x"), "data_offsets are []"},
		{"one offset", file(tensor(`"dtype":"U8","shape":[],"data_offsets":[1]`), "x"), "data_offsets are [1]"},
		{"negative offset", file(tensor(`"dtype":"U8","shape":[],"data_offsets":[-1,0]`), "x"), "data_offsets are [-1 0]"},
		{"backwards", file(tensor(`"dtype":"U8","shape":[0],"data_offsets":[1,0]`), "x"), "data_offsets are [1 0]"},
		{"another size", file(tensor(`"dtype":"F16","shape":[2],"data_offsets":[0,2]`), "xy"), "2 bytes, expected 4 for F16[2]"},
		{"unknown field", file(tensor(`"dtype":"U8","shape":[],"data_offsets":[0,1],"x":1`), "x"), `"a": "x": is not known`},
		{"a field in capitals", file(tensor(`"DTYPE":"U8","shape":[],"data_offsets":[0,1]`), "x"), `"DTYPE": is not known`},
		{"a field twice", file(tensor(`"dtype":"I32","dtype":"F32","shape":[],"data_offsets":[0,4]`), "wxyz"), `"a": "dtype" is there twice`},
		{"truncated data", file(tensor(`"dtype":"U8","shape":[3],"data_offsets":[0,3]`), "xy"), "truncated: has 2 bytes of data, expected 3"},
		{"more data", file(tensor(`"dtype":"U8","shape":[1],"data_offsets":[0,1]`), "xy"), "1 bytes after its last tensor"},
		{"a hole before it", file(tensor(`"dtype":"U8","shape":[1],"data_offsets":[1,2]`), "xy"), "begins at byte 1 of the data, expected 0"},
		{"overlap", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, "xyz"), `"b" begins at byte 1`},
		{"one name twice", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, "xy"), "is there twice"},
		{"metadata that is no text", file(`{"__metadata__":{"a":1}}`, ""), "__metadata__"},
		{"metadata twice", file(`{"__metadata__":{"a":"1"},"__metadata__":{}}`, ""), "twice"},
		{"metadata twice, once null", file(`{"__metadata__":null,"__metadata__":{"a":"1"}}`, ""), "is null, expected an object"},
		{"one of the metadata twice", file(`{"__metadata__":{"a":"1","a":"2"}}`, ""), `"a" is there twice`},
		{"one of the metadata null", file(`{"__metadata__":{"a":null}}`, ""), "is null, expected a string"},
	} {
		_, err := Parse("f", c.data)
		if err == nil || !strings.HasPrefix(err.Error(), "f: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, expected one that says %q", c.name, err, c.want)
		}
	}
	for name, data := range map[string][]byte{
		"no tensors":       file(`{}`, ""),
		"blanks":           file(`{}   `, ""),
		"out of order":     file(`{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}`, "xy"),
		"empty in between": file(`{"z":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"e":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, "xy"),
	} {
		if _, err := Parse("f", data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                        "is a directory, expected a safetensors file",
		empty:                      "truncated: the file is empty",
		filepath.Join(dir, "none"): "cannot be opened",
	} {
		if _, err := Open(path); err == nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected one that says %q of %s", err, want, path)
		}
	}
}

// FuzzParse checks that for any bytes Parse returns an error, or consecutive tensors that a writer
// can write again.
func FuzzParse(f *testing.F) {
	w, _ := sample()
	var b bytes.Buffer
	if err := w.Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(file(`{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}`, "xy"))
	f.Fuzz(func(t *testing.T, data []byte) {
		st, err := Parse("f", data)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of several lines: %q", err)
			}
			return
		}
		again, at := NewWriter(st.Metadata), int64(0)
		for i := range st.Tensors() {
			e := &st.Tensors()[i]
			if e.Begin != at || int64(len(st.Bytes(e))) != e.End-e.Begin {
				t.Fatalf("tensor %q lies at %d to %d", e.Name, e.Begin, e.End)
			}
			at = e.End
			again.Add(e.Name, e.DType, e.Shape, given(st.Bytes(e)))
		}
		var out bytes.Buffer
		if err := again.Write(&out); err != nil {
			t.Fatal(err)
		}
		back, err := Parse("again", out.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for i := range st.Tensors() {
			e := &st.Tensors()[i]
			if got, ok := back.Tensor(e.Name); !ok || fmt.Sprint(*got) != fmt.Sprint(*e) {
				t.Errorf("tensor %+v came back as %+v", e, got)
			}
		}
	})
}
