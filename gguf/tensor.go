package gguf

import (
	"fmt"

	"pesti/gguf/quant"
)

// A Tensor is an entry of the tensor directory.
type Tensor struct {
	Name   string
	Type   quant.Type
	Dims   []int64 // in GGUF order: elements along Dims[0] are contiguous
	Size   int64   // of the data in bytes
	Offset int64   // of the data in bytes from the start of its file
	Shard  int     // index of the file that holds it; 0 unless the model is split
}

// Elems returns the number of elements; a tensor without dims has one.
func (t *Tensor) Elems() int64 { return t.Rows() * t.cols() }

// Rows returns the number of rows of Dims[0] elements.
func (t *Tensor) Rows() int64 {
	n := int64(1)
	for i := 1; i < len(t.Dims); i++ {
		n *= t.Dims[i]
	}
	return n
}

// cols returns the number of elements of a row.
func (t *Tensor) cols() int64 {
	if len(t.Dims) == 0 {
		return 1
	}
	return t.Dims[0]
}

// Tensors returns the tensors in directory order. Callers must not change them.
func (f *File) Tensors() []Tensor { return f.tensors }

// Tensor returns the tensor called name, and whether there is one.
func (f *File) Tensor(name string) (*Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return nil, false
	}
	return &f.tensors[i], true
}

// Bytes returns the data of t, a tensor of f, without copying it: mapped memory
// that must not be written, and not be read after Close. It is nil after Close. If
// another process truncates the file, reading the slice is a memory fault, where
// Copy and Values return an error.
func (f *File) Bytes(t *Tensor) []byte {
	data := f.shards[t.Shard].data
	switch {
	case data == nil:
		return nil
	case t.Size == 0: // its offset may be in padding that is missing from the file
		return []byte{}
	}
	end := t.Offset + t.Size
	return data[t.Offset:end:end]
}

// Release tells the system that the rows first to end − 1 of t, a tensor of f,
// will not be needed for a while, so that it may free their pages. If they are
// needed, they are read from the file again.
func (f *File) Release(t *Tensor, first, end int64) {
	s := f.shards[t.Shard]
	if s.mapping == nil || s.data == nil { // in memory, or closed
		return
	}
	row := quant.RowBytes(t.Type, t.cols())
	s.mapping.Release(int(t.Offset+first*row), int(t.Offset+end*row))
}

// ReadAt copies len(p) bytes of the data of t, a tensor of f, from byte at on. Unlike a read of Bytes it
// maps no pages, so that the process does not hold more of the file than p.
func (f *File) ReadAt(t *Tensor, p []byte, at int64) error {
	s := f.shards[t.Shard]
	switch {
	case s.close == nil:
		return fmt.Errorf("%s: tensor %q: the file is closed, expected it to be open", s.path, t.Name)
	case at < 0 || at > t.Size-int64(len(p)):
		return fmt.Errorf("%s: tensor %q: has no bytes %d to %d, expected some of its %d", s.path, t.Name, at, at+int64(len(p))-1, t.Size)
	case s.mapping == nil:
		copy(p, f.Bytes(t)[at:])
		return nil
	}
	return s.mapping.ReadAt(p, t.Offset+at)
}

// Copy returns a copy of the data of t, a tensor of f.
func (f *File) Copy(t *Tensor) (data []byte, err error) {
	data = make([]byte, t.Size)
	if err := f.ReadAt(t, data, 0); err != nil {
		return nil, err
	}
	return data, nil
}

// Values returns the rows first to end − 1 of t, a tensor of f, as float32
// values in row-major order. A tensor of one dim or none has one row.
func (f *File) Values(t *Tensor, first, end int64) ([]float32, error) {
	in, _ := quant.Lookup(t.Type)
	if in.Dequantize == nil {
		return nil, fmt.Errorf("%s: tensor %q: values of type %s cannot be decoded", f.Path, t.Name, in.Name)
	}
	if first < 0 || first > end || end > t.Rows() {
		return nil, fmt.Errorf("%s: tensor %q: has no rows %d to %d, expected some of its %d", f.Path, t.Name, first, end-1, t.Rows())
	}
	cols := t.cols()
	row := quant.RowBytes(t.Type, cols)
	values := make([]float32, (end-first)*cols)
	err := f.read(t, func(data []byte) { in.Dequantize(values, data[first*row:end*row]) })
	if err != nil {
		return nil, err
	}
	return values, nil
}
