package exec

import (
	"fmt"
	"slices"
	"strings"

	"pesti/exec/plan"
	"pesti/gguf"
	"pesti/gguf/quant"
	"pesti/gguf/sidecar"
)

// checkWeight checks a weight of the plan against its tensor in the file. The weight may be a shard of the tensor.
func checkWeight(w *plan.Weight, f *gguf.File) error {
	t, ok := f.Tensor(w.Tensor())
	if !ok {
		return fmt.Errorf("%s: has no tensor %q, which the plan reads", f.Path, w.Tensor())
	}
	dims := slices.Clone(t.Dims)
	slices.Reverse(dims)
	size, kind := t.Size, strings.ToLower(t.Type.String())
	if w.Part.Of != "" && slices.Equal(dims, w.Part.Dims) {
		if size = share(t, w); size < 0 {
			return fmt.Errorf("%s: tensor %q: the plan takes %d from %d along dim %d of %v, expected whole blocks of %s", f.Path, t.Name, w.Dims[w.Part.Axis], w.Part.From, w.Part.Axis, dims, t.Type)
		}
	}
	if kind != w.Type || !slices.Equal(dims, w.TensorDims()) || size != w.Size {
		return fmt.Errorf("%s: tensor %q: is %s%v of %d bytes, but the plan is for %s%v of %d", f.Path, t.Name, kind, dims, size, w.Type, w.TensorDims(), w.Size)
	}
	return nil
}

// share returns the size of a shard in bytes, or −1 if it begins or ends inside a block.
func share(t *gguf.Tensor, w *plan.Weight) int64 {
	axis := w.Part.Axis
	n, all := w.Dims[axis], w.Part.Dims[axis]
	block := int64(1)
	if axis == len(w.Dims)-1 { // rows are whole blocks in any case
		info, ok := quant.Lookup(t.Type)
		if !ok {
			return -1
		}
		block = int64(info.BlockLen)
	}
	if n%block != 0 || w.Part.From%block != 0 || all%block != 0 {
		return -1
	}
	return t.Size / (all / block) * (n / block)
}

// checkSidecarWeight checks a weight of the plan against the weight of the sidecar file.
func checkSidecarWeight(w *plan.Weight, f *sidecar.File) error {
	b, ok := f.Weight(w.Tensor())
	if !ok {
		return fmt.Errorf("%s: has no tensor %q, which the plan reads", f.Path, w.Tensor())
	}
	size := b.Size()
	if w.Part.Of != "" && len(w.Dims) == 2 {
		size = (&sidecar.Weight{Rows: w.Dims[0], Cols: w.Dims[1]}).Size()
	}
	if dims := []int64{b.Rows, b.Cols}; !slices.Equal(dims, w.TensorDims()) || size != w.Size {
		return fmt.Errorf("%s: tensor %q: is %v of %d bytes, but the plan is for %v of %d", f.Path, w.Tensor(), dims, size, w.TensorDims(), w.Size)
	}
	return nil
}

// part returns the bytes of a shard. A shard of rows is a view of the tensor, a shard of columns a copy.
func part(w *plan.Weight, tensor []byte) []byte {
	p := &w.Part
	if p.Of == "" {
		return tensor
	}
	rows, all, n := 1, int(p.Dims[p.Axis]), int(w.Dims[p.Axis])
	for _, d := range p.Dims[:p.Axis] {
		rows *= int(d)
	}
	row := len(tensor) / rows // bytes along the split axis, in whole blocks
	from, to := row*int(p.From)/all, row*(int(p.From)+n)/all
	if rows == 1 {
		return tensor[from:to:to]
	}
	bytes := make([]byte, 0, rows*(to-from))
	for at := 0; at < len(tensor); at += row {
		bytes = append(bytes, tensor[at+from:at+to]...)
	}
	return bytes
}

// scalesOf returns the row scales of a shard.
func scalesOf(w *plan.Weight, scales []float32) []float32 {
	if w.Part.Of == "" || w.Part.Axis != 0 {
		return scales
	}
	return scales[w.Part.From:][:w.Dims[0]]
}
