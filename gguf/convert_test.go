package gguf

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pesti/gguf/quant"
)

// ramp returns n values that coarse types cannot represent exactly.
func ramp(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Sin(float64(i))) * float32(1+i%7)
	}
	return x
}

// asBytes returns x as typ stores it.
func asBytes(typ quant.Type, x []float32) []byte {
	in, _ := quant.Lookup(typ)
	b := make([]byte, len(x)/in.BlockLen*in.BlockBytes)
	in.Quantize(b, x)
	return b
}

func TestAddConverted(t *testing.T) {
	// One row more than is converted at once, so that the last piece is smaller.
	dims := []int64{256, convertAtOnce/256 + 1}
	x := ramp(int(dims[0] * dims[1]))
	source := NewWriter()
	source.AddTensor("m", quant.Q5_1, dims, asBytes(quant.Q5_1, x))
	source.AddTensor("v", quant.F32, []int64{3}, asBytes(quant.F32, x[:3]))
	source.AddTensor("none", quant.F32, []int64{0, 4}, nil)
	source.AddTensor("one", quant.F32, nil, asBytes(quant.F32, x[:1]))
	f := reopen(t, source)
	m := valuesOf(t, f, "m")
	for _, typ := range []quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q4_0, quant.Q5_1, quant.Q8_0, quant.Q4_K, quant.Q6_K} {
		w := NewWriter()
		w.SetStr("k", "kept")
		all := f.Tensors()
		for i, as := range []quant.Type{typ, quant.F16, typ, quant.F32} {
			if err := w.AddConverted(f, &all[i], as); err != nil {
				t.Fatal(err)
			}
		}
		g := reopen(t, w)
		got, _ := g.Tensor("m")
		want := asBytes(typ, m)
		if typ == quant.Q5_1 {
			want = f.Bytes(&all[0])
		}
		if got.Type != typ || !slices.Equal(got.Dims, dims) || !bytes.Equal(g.Bytes(got), want) {
			t.Errorf("%s: m is stored as %s %v, or has not the bytes of one conversion", typ, got.Type, got.Dims)
		}
		v, _ := g.Tensor("v")
		if v.Type != quant.F16 || !bytes.Equal(g.Bytes(v), asBytes(quant.F16, x[:3])) {
			t.Errorf("%s: v is %v in %s", typ, g.Bytes(v), v.Type)
		}
		if one := valuesOf(t, g, "one"); !slices.Equal(one, x[:1]) {
			t.Errorf("%s: a tensor without dims is %v, want %v", typ, one, x[:1])
		}
	}
}

func TestAddConvertedRefuses(t *testing.T) {
	source := NewWriter()
	source.AddTensor("m", quant.F32, []int64{48, 2}, asBytes(quant.F32, ramp(96)))
	f := reopen(t, source)
	m, _ := f.Tensor("m")
	for typ, word := range map[quant.Type]string{
		quant.Q8_0: "rows of 48, expected a multiple of 32 for Q8_0",
		quant.I32:  "cannot be stored as I32",
		999:        "cannot be stored as type 999",
	} {
		err := NewWriter().AddConverted(f, m, typ)
		if err == nil || !strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), `tensor "m"`) {
			t.Errorf("%s: error %v, want %q", typ, err, word)
		}
	}
	// Write returns later errors.
	w := NewWriter()
	if err := w.AddConverted(f, m, quant.F16); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := w.Write(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("writing from a closed file: error %v", err)
	}
}

// If a model becomes shorter while a writer reads it, the error names the model and no file is left.
func TestWriteShrunk(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what a shortened mapping does is known for Linux")
	}
	for _, left := range []int64{4096, 4<<16 - 1} { // first whole pages are missing, then a part of the last page, which reads as zeros
		for _, typ := range []quant.Type{quant.F32, quant.F16} {
			w := NewWriter()
			w.AddTensor("t", quant.F32, []int64{1 << 16}, make([]byte, 4<<16))
			f := reopen(t, w)
			to := NewWriter()
			x, _ := f.Tensor("t")
			if err := to.AddConverted(f, x, typ); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(f.Path, left); err != nil {
				t.Fatal(err)
			}
			want := f.Path + ": became shorter while it was read; open it again"
			dir := t.TempDir()
			if err := to.WriteFile(filepath.Join(dir, "out.gguf")); err == nil || err.Error() != want {
				t.Errorf("%d bytes, %s: error %v, want %s", left, typ, err, want)
			}
			if _, err := to.WriteSplit(t.Context(), filepath.Join(dir, "out"), SplitLimit{Tensors: 1}); err == nil || err.Error() != want {
				t.Errorf("%d bytes, %s, split: error %v, want %s", left, typ, err, want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("files are left: %v, %v", left, err)
			}
		}
	}
}
