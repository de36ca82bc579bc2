// Package safetensors reads and writes files of the safetensors format
// (https://huggingface.co/docs/safetensors/index): a length of eight bytes, a header in JSON that
// describes tensors, and their data. Files are mapped read-only, and the header is checked against the
// file before it is used.
//
// The package handles the container and knows no model. It imports gguf/mapped and nothing else of this
// module.
package safetensors

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"

	"pesti/gguf/mapped"
)

// A Tensor is an entry of the header.
type Tensor struct {
	Name  string
	DType string  // in the format's words, such as "F32" or "F8_E4M3"
	Shape []int64 // row-major; none for a scalar
	Begin int64   // offset in the data; End is the offset behind it
	End   int64
}

// A File is an open safetensors file. Its methods except Close may be called from several goroutines.
type File struct {
	Path     string            // as given to Open or Parse
	Size     int64             // in bytes
	Metadata map[string]string // the header's __metadata__

	tensors []Tensor // by offset
	byName  map[string]int
	head    []byte // everything before the data
	data    []byte // nil once it is closed
	mapping *mapped.File
}

// Open opens the file at path and checks its header. Tensor data is not read.
func Open(path string) (*File, error) {
	m, err := mapped.Open(path, "a safetensors file")
	if err != nil {
		return nil, err
	}
	f, err := Parse(path, m.Data)
	if err != nil {
		m.Close()
		return nil, err
	}
	f.mapping = m
	return f, nil
}

// Parse reads a safetensors file from memory, with the checks of Open. Errors begin with name. The data
// must not change while the File is used.
func Parse(name string, data []byte) (*File, error) {
	f := &File{Path: name, Size: int64(len(data))}
	err := mapped.Guard(name, func() (err error) {
		f.head, err = cutHeader(data)
		if err == nil {
			f.head = bytes.Clone(f.head) // stays valid after Close and if the file changes
			f.data = data[len(f.head):]
			err = f.parse()
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Close unmaps the file. Slices that Bytes returned must not be used afterwards.
func (f *File) Close() error {
	f.data = nil
	if f.mapping == nil {
		return nil
	}
	return f.mapping.Close()
}

// Tensors returns the tensors by offset. Callers must not change them.
func (f *File) Tensors() []Tensor { return f.tensors }

// Tensor returns the tensor called name, and whether there is one.
func (f *File) Tensor(name string) (*Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return nil, false
	}
	return &f.tensors[i], true
}

// Bytes returns the data of t, a tensor of f, without copying it: mapped memory that must not be
// written, and not be read after Close. It is nil after Close. If another process truncates the file,
// reading the slice is a memory fault, where Read returns an error.
func (f *File) Bytes(t *Tensor) []byte {
	if f.data == nil {
		return nil
	}
	return f.data[t.Begin:t.End:t.End]
}

// Read calls use with the data of t, a tensor of f.
func (f *File) Read(t *Tensor, use func(data []byte)) error {
	if f.data == nil {
		return fmt.Errorf("%s: tensor %q: the file is closed", f.Path, t.Name)
	}
	err := mapped.Guard(f.Path, func() error {
		use(f.Bytes(t))
		return nil
	})
	if err == nil && f.mapping != nil {
		err = f.mapping.CheckSize()
	}
	return err
}

// ReadAt copies len(p) bytes of t, a tensor of f, from byte at on. Unlike a read of Bytes it maps no
// pages, so that the process does not hold more of the file than p.
func (f *File) ReadAt(t *Tensor, p []byte, at int64) error {
	switch {
	case f.data == nil:
		return fmt.Errorf("%s: tensor %q: the file is closed", f.Path, t.Name)
	case at < 0 || at > t.End-t.Begin-int64(len(p)):
		return fmt.Errorf("%s: tensor %q: has no bytes %d to %d, expected some of its %d", f.Path, t.Name, at, at+int64(len(p))-1, t.End-t.Begin)
	case f.mapping == nil:
		copy(p, f.Bytes(t)[at:])
		return nil
	}
	return f.mapping.ReadAt(p, int64(len(f.head))+t.Begin+at)
}

// Digest returns the SHA-256 of everything before the data. It identifies the tensors of a file without
// their values.
func (f *File) Digest() [32]byte { return sha256.Sum256(f.head) }

// HashData returns the SHA-256 of the data of all tensors, by offset. It reads the whole file.
func (f *File) HashData() (sum [32]byte, err error) {
	hash := sha256.New()
	for i := range f.tensors {
		if err := f.Read(&f.tensors[i], func(data []byte) { hash.Write(data) }); err != nil {
			return sum, err
		}
	}
	hash.Sum(sum[:0])
	return sum, nil
}

// bits holds the size of an element, by the name of its type.
var bits = map[string]int64{
	"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
	"I16": 16, "U16": 16, "F16": 16, "BF16": 16,
	"I32": 32, "U32": 32, "F32": 32,
	"I64": 64, "U64": 64, "F64": 64, "C64": 64,
}

// size returns the size of a tensor in bytes, and whether its type is known, its dims are valid and the
// size fits an int64.
func size(dtype string, shape []int64) (int64, bool) {
	n, ok := bits[dtype]
	n /= 8
	if !ok {
		return 0, false
	}
	if slices.Contains(shape, 0) {
		return 0, !slices.ContainsFunc(shape, func(d int64) bool { return d < 0 })
	}
	for _, d := range shape {
		if d < 0 || n > (1<<62)/d {
			return 0, false
		}
		n *= d
	}
	return n, true
}
