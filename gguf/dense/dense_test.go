package dense

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/tensor"

	"pesti/gguf"
	"pesti/gguf/quant"
)

// reopen writes w to a file and opens it.
func reopen(t *testing.T, w *gguf.Writer) *gguf.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.gguf")
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestRead(t *testing.T) {
	w := gguf.NewWriter()
	w.AddTensor("a", quant.F32, []int64{3, 2}, floatBytes(1, 2, 3, 4, 5, 6))
	q8 := append([]byte{0, 0x3c}, make([]byte, 32)...) // the scale 1
	for i := range 32 {
		q8[2+i] = byte(i % 2) // 0, 1, 0, 1, …
	}
	w.AddTensor("b", quant.Q8_0, []int64{32, 2}, slices.Concat(q8, q8))
	w.AddTensor("scalar", quant.F32, nil, floatBytes(7))
	w.AddTensor("none", quant.F32, []int64{4, 0}, nil)
	w.AddTensor("undecoded", quant.Q1_0, []int64{128}, make([]byte, 18))
	w.AddTensor("cube", quant.I8, []int64{2, 1, 3}, []byte{1, 2, 3, 4, 5, 6})
	f := reopen(t, w)
	for _, c := range []struct {
		name  string
		shape []int
		want  []float32
	}{
		{"a", []int{2, 3}, []float32{1, 2, 3, 4, 5, 6}},
		{"b", []int{2, 32}, slices.Repeat([]float32{0, 1}, 32)},
		{"scalar", nil, []float32{7}},
		{"cube", []int{3, 1, 2}, []float32{1, 2, 3, 4, 5, 6}},
	} {
		d, err := Read(f, c.name)
		if err != nil {
			t.Error(err)
			continue
		}
		if !slices.Equal([]int(d.Shape()), c.shape) {
			t.Errorf("%s: shape %v, want %v", c.name, d.Shape(), c.shape)
		}
		got, ok := d.Data().([]float32)
		if !ok { // gorgonia returns the data of a scalar as a number
			got = []float32{d.Data().(float32)}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	for name, want := range map[string]string{
		"absent":    `has no tensor "absent"`,
		"none":      `tensor "none": dims [4 0] hold no elements`,
		"undecoded": `tensor "undecoded": values of type Q1_0`,
	} {
		if _, err := Read(f, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Read(%q): error %v, want %q", name, err, want)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(f, "a"); err == nil {
		t.Error("a closed file has values")
	}
}

func TestReadTruncated(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what a shortened mapping does is known for Linux")
	}
	w := gguf.NewWriter()
	w.AddTensor("t", quant.F32, []int64{1 << 16}, make([]byte, 4<<16))
	f := reopen(t, w)
	if err := os.Truncate(f.Path, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(f, "t"); err == nil || !strings.Contains(err.Error(), "became shorter") {
		t.Errorf("error %v", err)
	}
}

// TestWriteNpy reads back WriteNpy's files for each element type and several shapes.
func TestWriteNpy(t *testing.T) {
	six := []float32{1, 2, 3, 4, 5, 6}
	for _, c := range []struct {
		tensor *tensor.Dense
		kind   string
		want   []float32
	}{
		{New([]float32{7}), "<f4", []float32{7}},
		{New(six, 6), "<f4", six},
		{New(six, 2, 3), "<f4", six},
		{New(six, 3, 1, 2), "<f4", six},
		{New([]float64{1, 2, 3, 4, 5, 6}, 3, 2), "<f8", six},
		{New([]int32{1, 2, 3, 4, 5, 6}, 6), "<i4", six},
		{New([]int64{1, 2, 3, 4, 5, 6}, 2, 3), "<i8", six},
	} {
		var b bytes.Buffer
		if err := c.tensor.WriteNpy(&b); err != nil {
			t.Fatal(err)
		}
		f, err := parseBytes(b.Bytes())
		if err != nil {
			t.Errorf("%v of shape %v: %v", c.tensor.Dtype(), c.tensor.Shape(), err)
			continue
		}
		var got []float32
		if c.kind[1] == 'f' {
			got, err = Floats[float32](f, 0, f.Len())
		} else {
			var ints []int64
			ints, err = Ints(f, 0, f.Len())
			for _, n := range ints {
				got = append(got, float32(n))
			}
		}
		if err != nil || f.Kind != c.kind || !slices.Equal(f.Shape, []int(c.tensor.Shape())) || !slices.Equal(got, c.want) {
			t.Errorf("%v of shape %v: read as %v of %s, shape %v, %v", c.tensor.Dtype(), c.tensor.Shape(), got, f.Kind, f.Shape, err)
		}
	}
}
