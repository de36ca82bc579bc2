package safetensors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// dataAlign is the alignment of the data in the file. Tensors with elements of up to as many bytes are
// aligned if no tensor with smaller elements comes before them.
const dataAlign = 64

// A Writer collects tensors and writes them as a file.
type Writer struct {
	metadata map[string]string
	tensors  []Tensor
	data     []func(io.Writer) error
	err      error // the first error of Add
}

// NewWriter returns a writer of a file with the given __metadata__.
func NewWriter(metadata map[string]string) *Writer { return &Writer{metadata: metadata} }

// Add adds a tensor whose data is produced by write, which Write calls. Errors are returned by Write.
func (w *Writer) Add(name, dtype string, shape []int64, write func(io.Writer) error) {
	n, ok := size(dtype, shape)
	begin := int64(0)
	if len(w.tensors) > 0 {
		begin = w.tensors[len(w.tensors)-1].End
	}
	if w.err == nil && (!ok || begin > maxData-n) {
		w.err = fmt.Errorf("tensor %q cannot be written: %s%v", name, dtype, shape)
	}
	w.tensors = append(w.tensors, Tensor{name, dtype, shape, begin, begin + n})
	w.data = append(w.data, write)
}

// maxData is above the size of any file.
const maxData = 1 << 62

// Size returns the size of the file in bytes.
func (w *Writer) Size() (int64, error) {
	head, err := w.head()
	if err != nil {
		return 0, err
	}
	return int64(len(head)) + w.end(), nil
}

func (w *Writer) end() int64 {
	if len(w.tensors) == 0 {
		return 0
	}
	return w.tensors[len(w.tensors)-1].End
}

// head returns the bytes before the data.
func (w *Writer) head() ([]byte, error) {
	if w.err != nil {
		return nil, w.err
	}
	header := map[string]any{} // marshaled in the order of its keys, so that the file is always the same
	if len(w.metadata) > 0 {
		header[metadataKey] = w.metadata
	}
	for _, t := range w.tensors {
		if _, twice := header[t.Name]; twice {
			return nil, fmt.Errorf("tensor %q cannot be written twice", t.Name)
		}
		shape := t.Shape
		if shape == nil {
			shape = []int64{}
		}
		header[t.Name] = entry{t.DType, shape, []int64{t.Begin, t.End}}
	}
	text, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	for (lengthBytes+len(text))%dataAlign != 0 {
		text = append(text, ' ')
	}
	if len(text) > maxHeader {
		return nil, fmt.Errorf("the header has %d bytes, expected %d at most", len(text), maxHeader)
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}

// Write writes the file.
func (w *Writer) Write(out io.Writer) error {
	head, err := w.head()
	if err != nil {
		return err
	}
	if _, err := out.Write(head); err != nil {
		return err
	}
	for i, write := range w.data {
		c := counter{to: out}
		if err := write(&c); err != nil {
			return err
		}
		if t := &w.tensors[i]; c.n != t.End-t.Begin {
			return fmt.Errorf("tensor %q: found %d bytes of data, expected %d", t.Name, c.n, t.End-t.Begin)
		}
	}
	return nil
}

// A counter counts the bytes that it passes on.
type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.to.Write(b)
	c.n += int64(n)
	return n, err
}
