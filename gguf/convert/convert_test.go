package convert

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pesti/gguf"
	"pesti/gguf/layers"
	"pesti/gguf/quant"
)

// fileTypes are the values of general.file_type by the table in the description of GGUF.
var fileTypes = map[quant.Type]uint64{
	quant.F32: 0, quant.F16: 1, quant.Q4_0: 2, quant.Q4_1: 3, quant.Q8_0: 7, quant.Q5_0: 8, quant.Q5_1: 9,
	quant.Q4_K: 14, quant.Q5_K: 16, quant.Q6_K: 18, quant.BF16: 32,
}

// parsed returns the file that a writer writes.
func parsed(t *testing.T, w *gguf.Writer) *gguf.File {
	t.Helper()
	var b bytes.Buffer
	if err := w.Write(&b); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse("f.gguf", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// integers are the types of tensors that are no weights.
var integers = []quant.Type{quant.I8, quant.I16, quant.I32, quant.I64}

// model returns a file with keys, with weights whose rows fill all blocks, some or none, and with integers.
func model(t *testing.T) *gguf.File {
	t.Helper()
	w := gguf.NewWriter()
	w.SetStr("general.name", "a model")
	w.SetUint32("general.file_type", 99)
	w.SetUint16("split.no", 0)
	w.SetUint16("split.count", 1)
	w.SetInt32("split.tensors.count", 1)
	add := func(name string, dims ...int64) {
		elems := int64(1)
		for _, d := range dims {
			elems *= d
		}
		data := make([]byte, 2*elems)
		for i := range elems { // 1, 1.25, 1.5 or 1.75
			data[2*i+1] = byte(0x3c + i%4)
		}
		w.AddTensor(name, quant.F16, dims, data)
	}
	for n := range 3 {
		add(fmt.Sprintf("blk.%d.all", n), 256, 2)
		add(fmt.Sprintf("blk.%d.some", n), 32, 2)
		add(fmt.Sprintf("blk.%d.none", n), 5, 1)
		add(fmt.Sprintf("blk.%d.norm", n), 256)
	}
	add("blk.1.odd", 33, 2)
	add("output", 33, 2)
	add("one")
	add("empty", 0, 4)
	add("experts", 256, 2, 2)
	for i, typ := range integers { // matrices and vectors
		for _, dims := range [][]int64{{32}, {32, 2}} {
			data := make([]byte, 32*len(dims)<<i)
			for j := range data {
				data[j] = byte(j * 7)
			}
			w.AddTensor(fmt.Sprint(typ, len(dims)), typ, dims, data)
		}
	}
	return parsed(t, w)
}

// TestTypes checks that Types lists exactly the types that can be written.
func TestTypes(t *testing.T) {
	if len(Types()) != len(fileTypes) {
		t.Errorf("%d types, want %d", len(Types()), len(fileTypes))
	}
	for typ := quant.Type(0); ; typ++ {
		in, known := quant.Lookup(typ)
		if !known {
			break
		}
		if offered := slices.Contains(Types(), typ); offered != (in.Quantize != nil) {
			t.Errorf("%s: offered is %v, can be written is %v", in.Name, offered, in.Quantize != nil)
		}
	}
}

func TestTo(t *testing.T) {
	from := model(t)
	for _, typ := range Types() {
		w := gguf.NewWriter()
		r, err := To(w, from, typ)
		if err != nil {
			t.Fatal(err)
		}
		f := parsed(t, w)
		if n, err := f.Uint("general.file_type"); err != nil || n != fileTypes[typ] {
			t.Errorf("%s: general.file_type is %d, %v, want %d", typ, n, err, fileTypes[typ])
		}
		if n, err := f.Uint("general.quantization_version"); err != nil || n != 2 {
			t.Errorf("%s: general.quantization_version is %d, %v, want 2", typ, n, err)
		}
		if name, err := f.Str("general.name"); err != nil || name != "a model" || f.Has("split.no") || f.Has("split.count") || f.Has("split.tensors.count") {
			t.Errorf("%s: the keys are %q", typ, f.Keys())
		}
		if len(f.Tensors()) != len(from.Tensors()) {
			t.Fatalf("%s: %d tensors, want %d", typ, len(f.Tensors()), len(from.Tensors()))
		}
		matrices, stored, kept := 0, 0, 0
		for i, x := range from.Tensors() {
			y := f.Tensors()[i]
			in, _ := quant.Lookup(typ)
			want, matrix := typ, true
			switch {
			case slices.Contains(integers, x.Type):
				want, matrix = x.Type, false
				if !bytes.Equal(from.Bytes(&x), f.Bytes(&y)) {
					t.Errorf("%s: %s has other bytes than before", typ, x.Name)
				}
			case len(x.Dims) < 2:
				want, matrix = quant.F32, false
			case x.Dims[0]%int64(in.BlockLen) != 0:
				want = quant.F16
				kept++
			default:
				stored++
			}
			if matrix {
				matrices++
			}
			if y.Name != x.Name || y.Type != want || !slices.Equal(y.Dims, x.Dims) {
				t.Errorf("%s: tensor %d is %s %s %v, want %s %s %v", typ, i, y.Name, y.Type, y.Dims, x.Name, want, x.Dims)
			}
		}
		for _, k := range r.Kept {
			kept -= max(1, len(k.Layers))
		}
		if r.Matrices != matrices || r.Stored != stored || kept != 0 {
			t.Errorf("%s: the report has %d of %d matrices, want %d of %d; %d kept ones are not in it", typ, r.Stored, r.Matrices, stored, matrices, kept)
		}
	}
}

// TestKept compares the matrices that keep their type with a list written by hand.
func TestKept(t *testing.T) {
	r, err := To(gguf.NewWriter(), model(t), quant.Q4_K)
	if err != nil {
		t.Fatal(err)
	}
	why := func(n int) string { return fmt.Sprintf("its rows of %d are no multiple of a block of Q4_K", n) }
	want := []layers.Merged[Kept]{
		{Elem: Kept{"blk.N.some", quant.F16, why(32)}, Layers: []int{0, 1, 2}},
		{Elem: Kept{"blk.N.none", quant.F16, why(5)}, Layers: []int{0, 1, 2}},
		{Elem: Kept{"blk.1.odd", quant.F16, why(33)}, Layers: []int{1}},
		{Elem: Kept{"output", quant.F16, why(33)}},
	}
	if !slices.EqualFunc(r.Kept, want, func(a, b layers.Merged[Kept]) bool { return a.Elem == b.Elem && slices.Equal(a.Layers, b.Layers) }) {
		t.Errorf("kept are %+v, want %+v", r.Kept, want)
	}
	if r.Matrices != 13 || r.Stored != 5 {
		t.Errorf("%d of %d matrices, want 5 of 13", r.Stored, r.Matrices)
	}
}

// TestCopy checks that Copy keeps all bytes, and drops only the keys of a split file.
func TestCopy(t *testing.T) {
	from, w := model(t), gguf.NewWriter()
	if err := Copy(w, from); err != nil {
		t.Fatal(err)
	}
	f := parsed(t, w)
	if want := []string{"general.name", "general.file_type"}; !slices.Equal(f.Keys(), want) {
		t.Errorf("keys are %q, want %q", f.Keys(), want)
	}
	if n, err := f.Uint("general.file_type"); err != nil || n != 99 {
		t.Errorf("general.file_type is %d, %v, want 99", n, err)
	}
	a, err1 := from.HashData()
	b, err2 := f.HashData()
	if err1 != nil || err2 != nil || a != b || len(f.Tensors()) != len(from.Tensors()) {
		t.Errorf("the tensors differ: %v, %v", err1, err2)
	}
	for i, x := range from.Tensors() {
		if y := f.Tensors()[i]; y.Name != x.Name || y.Type != x.Type || !slices.Equal(y.Dims, x.Dims) {
			t.Errorf("tensor %d is %+v, want %+v", i, y, x)
		}
	}
}

func TestToRefuses(t *testing.T) {
	for _, typ := range []quant.Type{quant.I8, quant.Q2_K, 1 << 20} {
		w := gguf.NewWriter()
		if r, err := To(w, model(t), typ); err == nil || r != nil || !strings.HasPrefix(err.Error(), "f.gguf: cannot be stored as "+typ.String()+", expected one of [F32 F16 ") {
			t.Errorf("%s: %+v, %v", typ, r, err)
		}
		if n := len(parsed(t, w).Keys()); n != 0 {
			t.Errorf("%s: the writer has %d keys", typ, n)
		}
	}
}
