package tape

import (
	"fmt"

	"pesti/gguf"
	"pesti/gguf/quant"
	"pesti/graph"
)

// Weights gives the dequantised elements of the rows first to end − 1 of a weight, row-major. A
// vector has one row.
type Weights func(w *graph.Value, first, end int) ([]float32, error)

// FromFile returns the weights of a model.
func FromFile(f *gguf.File) Weights {
	return func(w *graph.Value, first, end int) ([]float32, error) {
		t, ok := f.Tensor(w.Name)
		if !ok {
			return nil, fmt.Errorf("%s: has no tensor %q", f.Path, w.Name)
		}
		info, ok := quant.Lookup(t.Type)
		if !ok || info.Dequantize == nil {
			return nil, fmt.Errorf("%s: tensor %q: values of type %s cannot be decoded yet", f.Path, w.Name, t.Type)
		}
		rows, cols := extents(w.Type)
		row, data := int(quant.RowBytes(t.Type, int64(cols))), f.Bytes(t)
		if first < 0 || first > end || end > rows || end*row > len(data) {
			return nil, fmt.Errorf("%s: tensor %q has no rows %d to %d", f.Path, w.Name, first, end-1)
		}
		values := make([]float32, (end-first)*cols)
		info.Dequantize(values, data[first*row:end*row])
		return values, nil
	}
}
