package gguf

import (
	"fmt"
	"io"
	"slices"

	"pesti/gguf/quant"
)

// AddConverted adds t, a tensor of f, converted to typ. The bytes stay the same if
// the tensor has that type already; otherwise its float32 values are rounded. The
// data is read by Write, so f must stay open until then.
func (w *Writer) AddConverted(f *File, t *Tensor, typ quant.Type) error {
	from, _ := quant.Lookup(t.Type)
	to, ok := quant.Lookup(typ)
	switch cols := t.cols(); {
	case t.Type == typ:
	case from.Dequantize == nil:
		return fmt.Errorf("%s: tensor %q: values of type %s cannot be decoded", f.Path, t.Name, t.Type)
	case !ok || to.Quantize == nil:
		return fmt.Errorf("%s: tensor %q: values cannot be stored as %s", f.Path, t.Name, typ)
	case cols%int64(to.BlockLen) != 0:
		return fmt.Errorf("%s: tensor %q: has rows of %d, expected a multiple of %d for %s", f.Path, t.Name, cols, to.BlockLen, typ)
	}
	w.AddTensorFunc(t.Name, typ, slices.Clone(t.Dims), func(out io.Writer) (err error) {
		if unread := f.read(t, func(data []byte) { err = convert(out, data, from, to) }); unread != nil {
			return unread
		}
		return err
	})
	return nil
}

// convertAtOnce is the number of values that are converted at a time, a multiple
// of every block length.
const convertAtOnce = 1 << 14

// copyAtOnce is the number of bytes that are copied at a time.
const copyAtOnce = 1 << 20

// convert writes the values in data as blocks of type to. The values must fill
// whole blocks of both types. It passes copies to out: a system call that reads a
// page which is gone reports a fault of the output, and only this process's own
// read is a fault of the file.
func convert(out io.Writer, data []byte, from, to *quant.Info) error {
	if from == to {
		piece := make([]byte, min(copyAtOnce, len(data)))
		for len(data) > 0 {
			n := copy(piece, data)
			if _, err := out.Write(piece[:n]); err != nil {
				return err
			}
			data = data[n:]
		}
		return nil
	}
	values := make([]float32, convertAtOnce)
	stored := make([]byte, convertAtOnce/to.BlockLen*to.BlockBytes)
	for len(data) > 0 {
		n := min(convertAtOnce, len(data)/from.BlockBytes*from.BlockLen)
		values, stored := values[:n], stored[:n/to.BlockLen*to.BlockBytes]
		from.Dequantize(values, data)
		to.Quantize(stored, values)
		if _, err := out.Write(stored); err != nil {
			return err
		}
		data = data[n/from.BlockLen*from.BlockBytes:]
	}
	return nil
}
