// Package dense connects GGUF tensors with gorgonia.org/tensor and with numpy's file format .npy.
//
// [Read] returns a tensor of a GGUF file as a *tensor.Dense, whose methods compute with it, print it
// or write it as .npy (WriteNpy). [New] makes one from a slice. [OpenNpy] opens an .npy file, of
// which [Floats] and [Ints] read ranges.
//
// This is the only package below gguf that imports gorgonia.org/tensor: a program that does not
// import it has none of gorgonia's dependencies. It imports gguf and nothing else of this module.
package dense

import (
	"fmt"
	"slices"

	"gorgonia.org/tensor"

	"pesti/gguf"
)

// Read returns the tensor called name as float32 values in row-major order. Its shape is the file's
// dims reversed, as numpy shows it, and () for a tensor without dims.
func Read(f *gguf.File, name string) (*tensor.Dense, error) {
	t, ok := f.Tensor(name)
	if !ok {
		return nil, fmt.Errorf("%s: has no tensor %q", f.Path, name)
	}
	values, err := f.Values(t, 0, t.Rows())
	if err != nil {
		return nil, err
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("%s: tensor %q: dims %v hold no elements, expected at least one", f.Path, name, t.Dims)
	}
	shape := make([]int, len(t.Dims))
	for i, d := range slices.Backward(t.Dims) {
		shape[len(shape)-1-i] = int(d)
	}
	return New(values, shape...), nil
}

// New returns a tensor of the given shape, or a scalar where there is none, that shares data. It
// panics if the shape does not have len(data) elements. WriteNpy takes all these element types but int.
func New[T int | int32 | int64 | float32 | float64](data []T, shape ...int) *tensor.Dense {
	if len(shape) == 0 {
		return tensor.New(tensor.FromScalar(data[0]))
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
}
