package gorgoniaref

import (
	"fmt"

	"pesti/gguf"
	"pesti/gguf/sidecar"
	"pesti/graph"
)

// Weights returns the dequantized elements of the rows first to end − 1 of a weight, row-major. A
// vector has one row.
type Weights func(w *graph.Value, first, end int) ([]float32, error)

// WithSidecar returns the weights of a model. Weights that the sidecar has are read from the
// sidecar.
func WithSidecar(f *gguf.File, s *sidecar.File) Weights {
	inFile := FromFile(f)
	return func(w *graph.Value, first, end int) ([]float32, error) {
		if b, ok := s.Weight(w.Name); ok {
			return s.Values(b, int64(first), int64(end))
		}
		return inFile(w, first, end)
	}
}

// FromFile returns the weights of a model.
func FromFile(f *gguf.File) Weights {
	return func(w *graph.Value, first, end int) ([]float32, error) {
		t, ok := f.Tensor(w.Name)
		if !ok {
			return nil, fmt.Errorf("%s: has no tensor %q", f.Path, w.Name)
		}
		if rows, cols := extents(w.Type); t.Rows() != int64(rows) || t.Elems() != int64(rows)*int64(cols) {
			return nil, fmt.Errorf("%s: tensor %q: has dims %v, but the graph reads %d rows of %d", f.Path, w.Name, t.Dims, rows, cols)
		}
		return f.Values(t, int64(first), int64(end))
	}
}
