package sidecar

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

	"pesti/conformance/tiny"
	"pesti/gguf"
	"pesti/gguf/quant"
	"pesti/gguf/safetensors"
)

func model(t testing.TB, c tiny.Config) *gguf.File {
	t.Helper()
	data, err := tiny.GGUF(c)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse("tiny.gguf", data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func written(t testing.TB, m *gguf.File) []byte {
	t.Helper()
	w, err := Writer(m)
	if err != nil {
		t.Fatal(err)
	}
	var b, again bytes.Buffer
	if err := w.Write(&b); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(&again); err != nil || !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Fatalf("written again it is another file, %v", err)
	}
	return b.Bytes()
}

// TestRoundTrip checks that each element returns within half a step of E4M3, also in rows of zeros and of subnormal
// numbers, and that the largest element of each row is exact.
func TestRoundTrip(t *testing.T) {
	for _, c := range []tiny.Config{
		{Tied: true, Types: []quant.Type{quant.F32}, Edit: func(m *tiny.Model) {
			w := m.Tensor("blk.0.ffn_up.weight")
			cols := int(w.Dims[0])
			clear(w.Data[:cols])
			for i := range cols {
				w.Data[cols+i] = float32(i) * 1e-44
				w.Data[2*cols+i] = float32(i-40) * 1e36
			}
		}},
		{Arch: "gemma3", Types: []quant.Type{quant.Q4_0, quant.Q8_0, quant.F16}},
	} {
		m := model(t, c)
		path := filepath.Join(t.TempDir(), "w.safetensors")
		if err := os.WriteFile(path, written(t, m), 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path, m)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Weights()) != len(Matrices(m)) || len(f.Weights()) < 14 {
			t.Errorf("has %d matrices, the model %d", len(f.Weights()), len(Matrices(m)))
		}
		if _, ok := f.Weight("token_embd.weight"); ok != c.Tied {
			t.Errorf("has the table of embeddings: %v, expected it where it is the output's too", ok)
		}
		for i := range f.Weights() {
			w := &f.Weights()[i]
			tensor, _ := m.Tensor(w.Name)
			want, err := m.Values(tensor, 0, w.Rows)
			if err != nil {
				t.Fatal(err)
			}
			got, err := f.Values(w, 0, w.Rows)
			if err != nil {
				t.Fatal(err)
			}
			if int64(len(f.Codes(w))) != w.Rows*w.Cols || int64(len(got)) != w.Rows*w.Cols || w.Size() != w.Rows*(w.Cols+4) {
				t.Fatalf("%s: %d codes, %d values", w.Name, len(f.Codes(w)), len(got))
			}
			if part, err := f.Values(w, 2, 3); err != nil || !slices.Equal(part, got[2*w.Cols:3*w.Cols]) {
				t.Errorf("%s: row 2 alone is another, %v", w.Name, err)
			}
			for r := range w.Rows {
				row, back := want[r*w.Cols:(r+1)*w.Cols], got[r*w.Cols:(r+1)*w.Cols]
				top := 0.0
				for _, x := range row {
					top = max(top, math.Abs(float64(x)))
				}
				for j, x := range row {
					// Half a step: half of 2^-3 of a normal number, and half of 2^-9 of the scale for subnormal ones.
					off, most := math.Abs(float64(back[j])-float64(x)), max(math.Abs(float64(x))/16, top/448*0x1p-10)*1.00001
					if top < 1e-35 {
						most = top
					}
					if !(off <= most) {
						t.Fatalf("%s: row %d, element %d is %v, was %v in a row up to %v", w.Name, r, j, back[j], x, top)
					}
					if math.Abs(float64(x)) == top && top > 1e-35 && off > top*1e-6 {
						t.Fatalf("%s: row %d: its largest element is %v, was %v", w.Name, r, back[j], x)
					}
				}
			}
		}
		want, err := f.HashData()
		if err != nil {
			t.Fatal(err)
		}
		for _, sample := range []bool{false, true} {
			of, err := m.WeightsDigest(sample)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := f.WeightsDigest(of); err != nil || got != fmt.Sprintf("sha256:%x", want) {
				t.Errorf("digest %s with the model's, error %v, expected sha256:%x", got, err, want)
			}
			if _, err := f.WeightsDigest(of[:len(of)-1]); err == nil || !strings.Contains(err.Error(), "made from other weights") {
				t.Errorf("another digest: error %v", err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOpenRefuses opens files that are not the sidecar of the model.
func TestOpenRefuses(t *testing.T) {
	m := model(t, tiny.Config{Tied: true})
	good := written(t, m)
	edit := func(change func(meta map[string]string, tensors []safetensors.Tensor) []safetensors.Tensor) []byte {
		st, err := safetensors.Parse("good", good)
		if err != nil {
			t.Fatal(err)
		}
		meta := map[string]string{}
		for k, v := range st.Metadata {
			meta[k] = v
		}
		w := safetensors.NewWriter(meta)
		for _, e := range change(meta, slices.Clone(st.Tensors())) {
			n := int64(1)
			for _, d := range e.Shape {
				n *= d
			}
			size := map[string]int64{"F32": 4, "F8_E4M3": 1, "F16": 2}[e.DType] * n
			w.Add(e.Name, e.DType, e.Shape, func(out io.Writer) error {
				_, err := out.Write(make([]byte, size))
				return err
			})
		}
		var b bytes.Buffer
		if err := w.Write(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	index := func(tensors []safetensors.Tensor, name string) int {
		return slices.IndexFunc(tensors, func(e safetensors.Tensor) bool { return e.Name == name })
	}
	type tensors = []safetensors.Tensor
	const name = "blk.1.attn_k.weight"
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"truncated", good[:len(good)-1], "truncated"},
		{"another format", edit(func(meta map[string]string, ts tensors) tensors { meta["format"] = "pt"; return ts }), `the format in its metadata is "pt", expected "pesti.fp8_e4m3.row"`},
		{"no metadata", edit(func(meta map[string]string, ts tensors) tensors { clear(meta); return ts }), `the format in its metadata is ""`},
		{"another model", written(t, model(t, tiny.Config{Tied: true, Layers: 1})), "is for another model than tiny.gguf: model.size"},
		{"a model of the same size", edit(func(meta map[string]string, ts tensors) tensors { meta["model.directory"] = "sha256:0"; return ts }), `model.directory is "sha256:0"`},
		{"no codes", edit(func(_ map[string]string, ts tensors) tensors {
			i := index(ts, name)
			return slices.Delete(ts, i, i+1)
		}), `has no tensor "blk.1.attn_k.weight", expected F8_E4M3[32 64]`},
		{"no scales", edit(func(_ map[string]string, ts tensors) tensors {
			i := index(ts, name+".scale")
			return slices.Delete(ts, i, i+1)
		}), `has no tensor "blk.1.attn_k.weight.scale", expected F32[32]`},
		{"another shape", edit(func(_ map[string]string, ts tensors) tensors {
			ts[index(ts, name)].Shape = []int64{64, 32}
			return ts
		}), `"blk.1.attn_k.weight" is F8_E4M3[64 32], expected F8_E4M3[32 64]`},
		{"another type", edit(func(_ map[string]string, ts tensors) tensors {
			ts[index(ts, name+".scale")].DType = "F16"
			return ts
		}), `is F16[32], expected F32[32]`},
		{"one more", edit(func(_ map[string]string, ts tensors) tensors {
			return append(ts, safetensors.Tensor{Name: "more", DType: "F32"})
		}), "has 31 tensors, expected the 30"},
	} {
		_, err := Parse("w.safetensors", c.data, m)
		if err == nil || !strings.HasPrefix(err.Error(), "w.safetensors: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, expected one that says %q", c.name, err, c.want)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), m); err == nil {
		t.Error("a file that is not there was opened")
	}
}

// TestWriterRefuses checks that weights with NaN are refused.
func TestWriterRefuses(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		m := model(t, tiny.Config{Edit: func(m *tiny.Model) {
			w := m.Tensor("blk.0.attn_q.weight")
			w.Data[3*w.Dims[0]+5] = float32(x)
		}})
		w, err := Writer(m)
		if err == nil {
			err = w.Write(io.Discard)
		}
		if err == nil || !strings.Contains(err.Error(), `tensor "blk.0.attn_q.weight", row 3: has an element`) {
			t.Errorf("%v: error %v", x, err)
		}
	}
}
