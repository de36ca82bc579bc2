package gguf

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"pesti/gguf/mapped"
	"pesti/gguf/quant"
)

// A Writer collects metadata and tensors and writes them as a GGUF file of
// version 3, in the order in which they were first set. Tensor data is aligned to
// the value of the key general.alignment, 32 bytes if unset.
//
// Invalid keys and tensors are reported by Write, which applies the checks of Open
// to its output.
type Writer struct {
	keys    []string
	values  map[string]Value
	tensors []source
}

// A source is a tensor to write.
type source struct {
	name  string
	typ   quant.Type
	dims  []int64
	write func(io.Writer) error
}

// NewWriter returns a Writer of an empty file.
func NewWriter() *Writer { return &Writer{values: map[string]Value{}} }

// Set sets key to a value of another file.
func (w *Writer) Set(key string, v Value) {
	if _, ok := w.values[key]; !ok {
		w.keys = append(w.keys, key)
	}
	w.values[key] = v
}

// SetAll sets the keys of f to their values there.
func (w *Writer) SetAll(f *File) {
	for _, key := range f.keys {
		w.Set(key, f.values[key])
	}
}

// Each of the following sets key to one value.

func (w *Writer) SetStr(key, v string)             { w.Set(key, scalarOf(String, appendString(nil, v))) }
func (w *Writer) SetBool(key string, v bool)       { w.Set(key, scalarOf(Bool, fixed(v))) }
func (w *Writer) SetUint8(key string, v uint8)     { w.Set(key, scalarOf(Uint8, fixed(v))) }
func (w *Writer) SetUint16(key string, v uint16)   { w.Set(key, scalarOf(Uint16, fixed(v))) }
func (w *Writer) SetUint32(key string, v uint32)   { w.Set(key, scalarOf(Uint32, fixed(v))) }
func (w *Writer) SetUint64(key string, v uint64)   { w.Set(key, scalarOf(Uint64, fixed(v))) }
func (w *Writer) SetInt32(key string, v int32)     { w.Set(key, scalarOf(Int32, fixed(v))) }
func (w *Writer) SetInt64(key string, v int64)     { w.Set(key, scalarOf(Int64, fixed(v))) }
func (w *Writer) SetFloat32(key string, v float32) { w.Set(key, scalarOf(Float32, fixed(v))) }
func (w *Writer) SetFloat64(key string, v float64) { w.Set(key, scalarOf(Float64, fixed(v))) }

// Each of the following sets key to an array.

func (w *Writer) SetBools(key string, v []bool)       { w.Set(key, arrayOf(Bool, len(v), fixed(v))) }
func (w *Writer) SetUint8s(key string, v []uint8)     { w.Set(key, arrayOf(Uint8, len(v), fixed(v))) }
func (w *Writer) SetUint32s(key string, v []uint32)   { w.Set(key, arrayOf(Uint32, len(v), fixed(v))) }
func (w *Writer) SetUint64s(key string, v []uint64)   { w.Set(key, arrayOf(Uint64, len(v), fixed(v))) }
func (w *Writer) SetInt32s(key string, v []int32)     { w.Set(key, arrayOf(Int32, len(v), fixed(v))) }
func (w *Writer) SetInt64s(key string, v []int64)     { w.Set(key, arrayOf(Int64, len(v), fixed(v))) }
func (w *Writer) SetFloat32s(key string, v []float32) { w.Set(key, arrayOf(Float32, len(v), fixed(v))) }
func (w *Writer) SetFloat64s(key string, v []float64) { w.Set(key, arrayOf(Float64, len(v), fixed(v))) }

// SetStrs sets key to an array of strings.
func (w *Writer) SetStrs(key string, v []string) {
	var raw []byte
	for _, s := range v {
		raw = appendString(raw, s)
	}
	w.Set(key, arrayOf(String, len(v), raw))
}

func scalarOf(k Kind, raw []byte) Value       { return Value{kind: k, elem: k, n: 1, raw: raw} }
func arrayOf(k Kind, n int, raw []byte) Value { return Value{kind: Array, elem: k, n: n, raw: raw} }

func appendString(b []byte, s string) []byte {
	return append(le.AppendUint64(b, uint64(len(s))), s...)
}

// fixed encodes a value or a slice of values whose type has a fixed size, as all
// setters pass.
func fixed(v any) []byte {
	b, _ := binary.Append(nil, le, v)
	return b
}

// AddTensor adds a tensor. Its data is not copied and must not change until Write.
// Dims are in GGUF order, contiguous first. len(data) must match type and dims.
func (w *Writer) AddTensor(name string, typ quant.Type, dims []int64, data []byte) {
	w.AddTensorFunc(name, typ, dims, func(out io.Writer) error {
		_, err := out.Write(data)
		return err
	})
}

// AddTensorFunc adds a tensor whose data is produced by write, which Write calls.
func (w *Writer) AddTensorFunc(name string, typ quant.Type, dims []int64, write func(io.Writer) error) {
	w.tensors = append(w.tensors, source{name, typ, dims, write})
}

// Write writes the file.
func (w *Writer) Write(out io.Writer) error {
	h, head, err := w.layout()
	if err != nil {
		return fmt.Errorf("writing GGUF: %w", err)
	}
	c := &counter{out: out}
	if _, err := c.Write(head); err != nil {
		return err
	}
	for i, s := range w.tensors {
		t := &h.tensors[i]
		if err := c.padTo(t.Offset); err != nil {
			return err
		}
		if err := s.write(c); gone(err) {
			return err
		} else if err != nil {
			return fmt.Errorf("writing GGUF: tensor %q: %w", s.name, err)
		}
		if got := c.n - t.Offset; got != t.Size {
			return fmt.Errorf("writing GGUF: tensor %q: found %d bytes of data, expected %d for %s %v", s.name, got, t.Size, s.typ, s.dims)
		}
	}
	return c.padTo(roundUp(c.n, h.align))
}

// gone reports whether a file that a tensor's data is read from became shorter.
// Such an error names that file, and says nothing about the output.
func gone(err error) bool {
	var e *mapped.ShrunkError
	return errors.As(err, &e)
}

// WriteFile writes the file to path. An existing file is replaced only after all
// has been written.
func (w *Writer) WriteFile(path string) error {
	temp, err := w.writeTemp(context.Background(), path)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		os.Remove(temp)
		return fmt.Errorf("%s: cannot be written: %w", path, cause(err))
	}
	return nil
}

// writeTemp writes the file under a temporary name in the folder of path and
// returns that name. It fails if ctx ends.
func (w *Writer) writeTemp(ctx context.Context, path string) (temp string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return "", fmt.Errorf("%s: cannot be written: %w", path, cause(err))
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	buf := bufio.NewWriterSize(interrupted{ctx, f}, 1<<20)
	if err := w.Write(buf); gone(err) {
		return "", err
	} else if err != nil {
		return "", fmt.Errorf("%s: %w", path, cause(err))
	}
	if err := buf.Flush(); err != nil {
		return "", fmt.Errorf("%s: cannot be written: %w", path, cause(err))
	}
	// Temporary files are private to the user; models are not.
	if err := f.Chmod(0o644); err != nil {
		return "", fmt.Errorf("%s: cannot be written: %w", path, cause(err))
	}
	if err := f.Close(); err != nil {
		return "", fmt.Errorf("%s: cannot be written: %w", path, cause(err))
	}
	return f.Name(), nil
}

// An interrupted writer fails once its context is done.
type interrupted struct {
	ctx context.Context
	out io.Writer
}

func (w interrupted) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.out.Write(b)
}

// layout returns the bytes before the tensor data, and the header that a reader
// parses from them.
func (w *Writer) layout() (*header, []byte, error) {
	b := []byte(Magic)
	b = le.AppendUint32(b, 3)
	b = le.AppendUint64(b, uint64(len(w.tensors)))
	b = le.AppendUint64(b, uint64(len(w.keys)))
	for _, k := range w.keys {
		v := w.values[k]
		b = appendString(b, k)
		b = le.AppendUint32(b, uint32(v.kind))
		if v.kind == Array {
			b = le.AppendUint32(b, uint32(v.elem))
			b = le.AppendUint64(b, uint64(v.n))
		}
		b = append(b, v.raw...)
	}
	align, err := alignment(w.values)
	if err != nil {
		return nil, nil, err
	}
	var end int64
	for _, t := range w.tensors {
		size, err := tensorBytes(t.typ, t.dims)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", t.name, err)
		}
		offset := roundUp(end, align)
		b = t.append(b, offset)
		end = offset + size
	}
	h := &header{}
	if err := h.parse(&cursor{data: b}, roundUp(int64(len(b)), align)+end); err != nil {
		return nil, nil, err
	}
	return h, b, nil
}

// append appends the tensor's entry in the directory.
func (t *source) append(b []byte, offset int64) []byte {
	b = appendString(b, t.name)
	b = le.AppendUint32(b, uint32(len(t.dims)))
	for _, d := range t.dims {
		b = le.AppendUint64(b, uint64(d))
	}
	b = le.AppendUint32(b, uint32(t.typ))
	return le.AppendUint64(b, uint64(offset))
}

// A counter counts the bytes that it passes on.
type counter struct {
	out io.Writer
	n   int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.out.Write(b)
	c.n += int64(n)
	return n, err
}

// padTo writes zeros up to offset, fewer than maxAlignment.
func (c *counter) padTo(offset int64) error {
	_, err := c.Write(make([]byte, offset-c.n))
	return err
}
