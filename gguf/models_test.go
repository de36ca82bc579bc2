package gguf

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pesti/conformance/testenv"
	"pesti/gguf/quant"
)

// described is the output of testdata/describe.py.
type described struct {
	Metadata []struct {
		Key   string
		Types []string
		Value any
	}
	Tensors []struct {
		Name, Type string
		Dims       []int64
		Offset     int64
		SHA256     string
	}
}

// pythonKinds are the names of kinds in the Python package.
var pythonKinds = map[Kind]string{
	Uint8: "UINT8", Int8: "INT8", Uint16: "UINT16", Int16: "INT16", Uint32: "UINT32", Int32: "INT32",
	Float32: "FLOAT32", Bool: "BOOL", String: "STRING", Array: "ARRAY", Uint64: "UINT64", Int64: "INT64", Float64: "FLOAT64",
}

// compareWithPython compares metadata, directory and data of f with the results of the Python
// package for the same file.
func compareWithPython(t *testing.T, f *File) {
	t.Helper()
	out, err := testenv.Python(t, "testdata/describe.py", f.Path).Output()
	if err != nil {
		t.Fatalf("describe.py: %v", err)
	}
	var want described
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	if len(f.Keys()) != len(want.Metadata) {
		t.Fatalf("%d keys, Python has %d", len(f.Keys()), len(want.Metadata))
	}
	for i, w := range want.Metadata {
		key := f.Keys()[i]
		v, _ := f.Value(key)
		types := []string{pythonKinds[v.Kind()]}
		if v.Kind() == Array {
			types = append(types, pythonKinds[v.Elem()])
		}
		if key != w.Key || !slices.Equal(types, w.Types) {
			t.Errorf("key %d is %q of %v, Python has %q of %v", i, key, types, w.Key, w.Types)
			continue
		}
		if got := canonical(v.Any()); !reflect.DeepEqual(got, w.Value) {
			t.Errorf("key %q is %.100v, Python has %.100v", key, got, w.Value)
		}
	}
	if len(f.Tensors()) != len(want.Tensors) {
		t.Fatalf("%d tensors, Python has %d", len(f.Tensors()), len(want.Tensors))
	}
	for i, w := range want.Tensors {
		x := &f.Tensors()[i]
		if x.Name != w.Name || x.Type.String() != w.Type || !slices.Equal(x.Dims, w.Dims) || x.Offset != w.Offset {
			t.Errorf("tensor %d is %+v, Python has %+v", i, *x, w)
			continue
		}
		if got := hashValues(f, x); got != w.SHA256 {
			t.Errorf("tensor %q of %s: values have SHA-256 %s, Python's %s", x.Name, x.Type, got, w.SHA256)
		}
	}
}

// canonical converts a result of Value.Any to the form of describe.py: strings in hex, arrays of
// strings as a digest. All numbers become float64, which represents the tests' numbers exactly.
func canonical(x any) any {
	switch x := x.(type) {
	case []any:
		if len(x) > 0 {
			if _, ok := x[0].(string); ok {
				h := sha256.New()
				for _, s := range x {
					h.Write([]byte(S(s.(string))))
				}
				return hex.EncodeToString(h.Sum(nil))
			}
		}
		all := make([]any, len(x))
		for i := range x {
			all[i] = canonical(x[i])
		}
		return all
	case string:
		return hex.EncodeToString([]byte(x))
	case uint64:
		return float64(x)
	case int64:
		return float64(x)
	}
	return x
}

// hashValues returns the SHA-256 of the dequantized values, with every NaN as
// 0x7fc00000, a few rows at a time.
func hashValues(f *File, x *Tensor) string {
	in, _ := quant.Lookup(x.Type)
	h := sha256.New()
	values := make([]float32, 1<<13)
	raw := make([]byte, 4*len(values))
	f32, _ := quant.Lookup(quant.F32)
	for left, src := x.Elems(), f.Bytes(x); left > 0; {
		n := min(left, int64(len(values)))
		in.Dequantize(values[:n], src)
		for i, v := range values[:n] {
			if v != v {
				values[i] = math.Float32frombits(0x7fc00000)
			}
		}
		f32.Quantize(raw[:4*n], values[:n])
		h.Write(raw[:4*n])
		src = src[quant.RowBytes(x.Type, n):]
		left -= n
	}
	return hex.EncodeToString(h.Sum(nil))
}

// TestModels compares metadata, directory and every weight of the real models
// with the Python package.
func TestModels(t *testing.T) {
	for _, name := range testenv.Models {
		t.Run(name, func(t *testing.T) {
			f, err := Open(testenv.Model(t, name))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if len(f.Warnings()) > 0 {
				t.Errorf("warnings %q", f.Warnings())
			}
			if found := f.Check(); len(found) > 0 {
				t.Errorf("found %v", found)
			}
			compareWithPython(t, f)
		})
	}
}

// TestWriterAgainstPython reads Writer's output with the Python package.
func TestWriterAgainstPython(t *testing.T) {
	for _, align := range []uint32{8, 32, 4096} {
		w := NewWriter()
		w.SetUint32("general.alignment", align)
		w.SetStr("general.architecture", "llama")
		w.SetStr("string.empty", "")
		w.SetBool("bool", true)
		w.SetUint8("u8", 255)
		w.SetUint16("u16", 65535)
		w.SetUint32("u32", math.MaxUint32)
		w.SetUint64("u64", 1<<53)
		w.SetInt32("i32", math.MinInt32)
		w.SetInt64("i64", -1<<53)
		w.SetFloat32("f32", 0.1)
		w.SetFloat64("f64", math.Pi)
		w.SetBools("bools", []bool{true, false})
		w.SetUint8s("u8s", []uint8{1, 2})
		w.SetUint32s("u32s", []uint32{1, 2, math.MaxUint32})
		w.SetUint64s("u64s", []uint64{1, 2})
		w.SetInt32s("i32s", []int32{-1, 2})
		w.SetInt64s("i64s", []int64{-1, 2})
		w.SetFloat32s("f32s", []float32{0.1, -2})
		w.SetFloat64s("f64s", []float64{0.1, -2})
		w.SetStrs("strs", []string{"a", "", "é\n"})
		for _, typ := range []quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q4_0, quant.Q4_1, quant.Q5_0, quant.Q5_1, quant.Q8_0, quant.Q4_K, quant.Q5_K, quant.Q6_K} {
			in, _ := quant.Lookup(typ)
			x := make([]float32, 768*3)
			for i := range x {
				x[i] = float32(math.Sin(float64(i * i)))
			}
			data := make([]byte, quant.RowBytes(typ, int64(len(x))))
			in.Quantize(data, x)
			w.AddTensor("t."+in.Name, typ, []int64{768, 3}, data)
			w.AddTensorFunc("f."+in.Name, typ, []int64{768, 1, 3}, func(out io.Writer) error {
				_, err := out.Write(data)
				return err
			})
		}
		compareWithPython(t, reopen(t, w))
	}
}

// TestOpenIsFast opens the model with the largest vocabulary, 262,144 strings.
func TestOpenIsFast(t *testing.T) {
	path := testenv.Model(t, "gemma-3-270m-q4_k_m.gguf")
	best := time.Hour
	for range 5 {
		start := time.Now()
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		tokens, err := f.Strs("tokenizer.ggml.tokens")
		if err != nil || len(tokens) != 262144 {
			t.Fatalf("%d tokens, %v", len(tokens), err)
		}
		best = min(best, time.Since(start))
		f.Close()
	}
	t.Logf("opened, with all tokens as strings, in %v", best)
	if best > 150*time.Millisecond {
		t.Errorf("opened in %v, want 150ms at most", best)
	}
}

// TestFlippedBytes flips bits of each of the first 4096 bytes of a real model:
// any of it may be refused or read, but nothing may panic, take a second, or
// reach beyond the file.
func TestFlippedBytes(t *testing.T) {
	data, err := os.ReadFile(testenv.Model(t, testenv.SmolLM2))
	if err != nil {
		t.Fatal(err)
	}
	step := 1
	if testing.Short() {
		step = 7
	}
	for _, mask := range []byte{0xff, 0x80, 0x01} {
		refused := 0
		for i := 0; i < 4096; i += step {
			data[i] ^= mask
			start := testenv.ProcessorTime()
			f, err := Parse("flipped.gguf", data)
			if err == nil {
				for _, k := range f.Keys() {
					v, _ := f.Value(k)
					_ = v.String()
				}
				for j := range f.Tensors() {
					f.Bytes(&f.Tensors()[j])
				}
			} else {
				refused++
				if s := err.Error(); !strings.HasPrefix(s, "flipped.gguf: ") || !printable(s) {
					t.Errorf("byte %d ^ %#x: error %q, want one printable line that begins with the file", i, mask, s)
				}
			}
			if took := testenv.ProcessorTime() - start; took > time.Second {
				t.Errorf("byte %d ^ %#x: took %v", i, mask, took)
			}
			data[i] ^= mask
		}
		if refused == 0 {
			t.Errorf("mask %#x: no flipped byte was refused", mask)
		}
		t.Logf("mask %#x: %d of %d refused", mask, refused, (4096+step-1)/step)
	}
}

// TestCutModel cuts a real model: by a byte, at half, inside its metadata.
func TestCutModel(t *testing.T) {
	data, err := os.ReadFile(testenv.Model(t, testenv.Models[0]))
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]string{
		len(data) - 1: "it may be truncated",
		len(data) / 2: "it may be truncated",
		1 << 20:       "truncated",
		1000:          "truncated",
	} {
		if _, err := Parse("cut.gguf", data[:n:n]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("first %d bytes: error %v, want %q", n, err, want)
		}
	}
}

// TestVocabularies opens the files that hold a vocabulary and no tensors.
func TestVocabularies(t *testing.T) {
	for _, p := range testenv.Vocabularies(t) {
		f, err := Open(p)
		if err != nil {
			t.Error(err)
			continue
		}
		if n, ok := f.Len("tokenizer.ggml.tokens"); !ok || n < 1000 || len(f.Tensors()) != 0 {
			t.Errorf("%s: %d tokens, %d tensors", p, n, len(f.Tensors()))
		}
		f.Close()
	}
}

func BenchmarkOpen(b *testing.B) {
	path := testenv.Model(b, "gemma-3-270m-q4_k_m.gguf")
	for b.Loop() {
		f, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}
