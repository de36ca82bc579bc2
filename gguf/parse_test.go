package gguf

import (
	"strings"
	"testing"
	"unicode"
)

// useAll calls every method that reads f. For any file, none may panic, and no data may be outside
// the file.
func useAll(t testing.TB, f *File) {
	t.Helper()
	for _, k := range f.Keys() {
		v, ok := f.Value(k)
		if !ok || !f.Has(k) {
			t.Fatalf("key %q is listed, not found", k)
		}
		_ = v.String() + v.TypeName()
		if v.Len() < 100 {
			if _, err := v.MarshalJSON(); err != nil {
				t.Errorf("key %q as JSON: %v", k, err)
			}
		}
		if n, ok := f.Len(k); ok != (v.Kind() == Array) || ok && n != v.Len() {
			t.Errorf("key %q: Len is %d, %v for %s", k, n, ok, v.TypeName())
		}
		f.Str(k)
		f.Bool(k)
		f.Uint(k)
		f.Float(k)
		f.Ints(k)
		f.Floats(k)
		f.Strs(k)
	}
	for i := range f.Tensors() {
		x := &f.Tensors()[i]
		if got := int64(len(f.Bytes(x))); got != x.Size {
			t.Errorf("tensor %q: %d bytes, size %d", x.Name, got, x.Size)
		}
		if y, ok := f.Tensor(x.Name); !ok || y != x {
			t.Errorf("tensor %q is listed, not found", x.Name)
		}
		if x.Rows() < 0 || x.Elems() < 0 {
			t.Errorf("tensor %q: %d rows, %d elements", x.Name, x.Rows(), x.Elems())
		}
		if x.Elems() < 1<<16 {
			f.Values(x, 0, x.Rows())
		}
	}
	for _, s := range f.Warnings() {
		if !strings.HasPrefix(s, f.Path+": ") {
			t.Errorf("warning %q does not begin with the file", s)
		}
	}
	for _, d := range f.Check() {
		_ = d.String()
	}
	f.Digest()
	if _, err := f.HashData(); err != nil {
		t.Error(err)
	}
}

func TestTrailingBytes(t *testing.T) {
	whole := pad(H(3, 1, 0)+T("t", []uint64{1}, 0, 0), 32) + pad("abcd", 32)
	for _, c := range []struct {
		name, data string
		warn       bool
	}{
		{"none", whole, false},
		{"no padding", whole[:len(whole)-28], false},
		{"one", whole + "x", true},
		{"no tensors, padded", pad(H(3, 0, 0), 32), false},
		{"no tensors, more", pad(H(3, 0, 0), 32) + "x", true},
	} {
		f, err := Parse("f", []byte(c.data))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if warned := len(f.Warnings()) > 0; warned != c.warn {
			t.Errorf("%s: warnings %q", c.name, f.Warnings())
		}
	}
}

// printable reports whether a terminal displays all characters of s, and interprets none as a command.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// FuzzParse searches for a file that panics or that useAll rejects. Its seeds are the cases;
// earlier findings are in testdata/fuzz/FuzzParse.
func FuzzParse(f *testing.F) {
	for _, c := range fileCases() {
		if len(c.data) < 8<<10 {
			f.Add([]byte(c.data))
		}
	}
	f.Add([]byte(H(3, 0, 2) + KV("a", Array, A(String, 2, S("x")+S("y"))) + KV("b", Float64, num(uint64(1)))))
	f.Add([]byte(pad(H(3, 2, 1)+KV("general.alignment", Uint32, num(uint32(64)))+T("a", []uint64{256, 1}, 12, 0)+T("b", []uint64{32}, 6, 192), 64) + strings.Repeat("x", 214)))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Parse("f", data)
		if err == nil {
			useAll(t, got)
		} else if s := err.Error(); !strings.HasPrefix(s, "f: ") || !printable(s) {
			t.Errorf("error %q, want one printable line that begins with the file", s)
		}
	})
}
