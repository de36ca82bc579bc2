package exec

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/tiny"
	"pesti/exec/plan"
	"pesti/gguf"
	"pesti/gguf/quant"
)

// partOf returns the weight of a plan for a shard of a tensor.
func partOf(t *testing.T, f *gguf.File, name string, axis int, from, to int64) *plan.Weight {
	t.Helper()
	tensor, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %s", name)
	}
	dims := slices.Clone(tensor.Dims)
	slices.Reverse(dims)
	w := &plan.Weight{Name: "part", Type: strings.ToLower(tensor.Type.String()), Dims: slices.Clone(dims),
		Part: plan.Part{Of: name, Dims: dims, Axis: axis, From: from}}
	w.Dims[axis] = to - from
	w.Size = tensor.Size * (to - from) / dims[axis]
	return w
}

// TestPart compares the elements of shards, of matrices of each type and of vectors, with the whole tensor.
func TestPart(t *testing.T) {
	for _, kind := range []quant.Type{quant.F32, quant.F16, quant.Q5_0, quant.Q4_K} {
		f := tiny.File(t, tiny.Config{Layers: 1, Embd: 256, Heads: 4, KVHeads: 1, HeadDim: 128, FF: 768, Vocab: 258, Types: []quant.Type{kind}})
		for _, c := range []struct {
			name     string
			axis     int
			from, to int64
		}{
			{"blk.0.ffn_gate.weight", 0, 0, 1}, {"blk.0.ffn_gate.weight", 0, 5, 768}, {"blk.0.ffn_down.weight", 1, 0, 256},
			{"blk.0.ffn_down.weight", 1, 256, 768}, {"blk.0.attn_output.weight", 1, 256, 512}, {"blk.0.attn_q.bias", 0, 3, 500},
		} {
			w := partOf(t, f, c.name, c.axis, c.from, c.to)
			if err := checkWeight(w, f); err != nil {
				t.Fatal(err)
			}
			tensor, _ := f.Tensor(c.name)
			info, _ := quant.Lookup(tensor.Type)
			got := part(w, f.Bytes(tensor))
			if int64(len(got)) != w.Size {
				t.Fatalf("%s of %s: %d bytes, expected %d", c.name, kind, len(got), w.Size)
			}
			all, err := f.Values(tensor, 0, tensor.Rows())
			if err != nil {
				t.Fatal(err)
			}
			width := int(w.Part.Dims[len(w.Dims)-1])
			var want []float32
			switch {
			case c.axis == 1:
				for at := 0; at < len(all); at += width {
					want = append(want, all[at+int(c.from):at+int(c.to)]...)
				}
			case len(w.Dims) == 1:
				want = all[c.from:c.to]
			default:
				want = all[int(c.from)*width : int(c.to)*width]
			}
			elems := make([]float32, len(want))
			info.Dequantize(elems, got)
			if !slices.Equal(elems, want) {
				t.Errorf("%s of %s from %d to %d along dim %d differs", c.name, kind, c.from, c.to, c.axis)
			}
		}
	}
}

// TestPartRefused checks that a plan cannot split inside a block, or refer to another tensor.
func TestPartRefused(t *testing.T) {
	f := tiny.File(t, tiny.Config{Embd: 256, Heads: 4, KVHeads: 2, FF: 512, Types: []quant.Type{quant.Q8_0}})
	const name = "blk.0.ffn_down.weight"
	for _, c := range []struct {
		want string
		harm func(w *plan.Weight)
	}{
		{"expected whole blocks of Q8_0", func(w *plan.Weight) { w.Part.From = 16 }},
		{"expected whole blocks of Q8_0", func(w *plan.Weight) { w.Dims[1] = 48 }},
		{"but the plan is for q8_0[256 768]", func(w *plan.Weight) { w.Part.Dims = []int64{256, 768} }},
		{"but the plan is for q4_0", func(w *plan.Weight) { w.Type = "q4_0" }},
		{"but the plan is for", func(w *plan.Weight) { w.Size++ }},
		{`has no tensor "other"`, func(w *plan.Weight) { w.Part.Of = "other" }},
	} {
		w := partOf(t, f, name, 1, 32, 96)
		c.harm(w)
		if err := checkWeight(w, f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, expected %s", err, c.want)
		}
	}
}

// TestPartOfNothing checks that a shard of a closed file is an error.
func TestPartOfNothing(t *testing.T) {
	w := &plan.Weight{Dims: []int64{2, 32}, Part: plan.Part{Of: "x", Dims: []int64{2, 64}, Axis: 1, From: 32}}
	if got := part(w, nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
	w.Part = plan.Part{}
	if got := part(w, []byte{1, 2}); !bytes.Equal(got, []byte{1, 2}) {
		t.Errorf("%v", got)
	}
}
