package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

const (
	lengthBytes = 8
	// maxHeader is the maximum length of the header by the format's definition.
	maxHeader = 100_000_000
	// metadataKey is the only key of the header that is not the name of a tensor.
	metadataKey = "__metadata__"
)

// cutHeader returns the bytes before the data: the length and the header.
func cutHeader(data []byte) ([]byte, error) {
	if len(data) < lengthBytes {
		return nil, fmt.Errorf("truncated: has %d bytes, expected a safetensors file, which begins with %d", len(data), lengthBytes)
	}
	n := binary.LittleEndian.Uint64(data)
	switch rest := data[lengthBytes:]; {
	case n > maxHeader:
		return nil, fmt.Errorf("its header has %d bytes, expected a safetensors file, where it has %d at most", n, maxHeader)
	case n > uint64(len(rest)):
		return nil, fmt.Errorf("truncated: its header has %d bytes, but the file has %d", n, len(data))
	case n == 0 || rest[0] != '{':
		return nil, errors.New("expected a safetensors file, whose header begins with {")
	}
	return data[:lengthBytes+n], nil
}

// An entry is the JSON description of a tensor.
type entry struct {
	DType   string  `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"`
}

// parse reads the header and checks it against the data.
func (f *File) parse() error {
	header := f.head[lengthBytes:]
	if !utf8.Valid(header) {
		return errors.New("its header is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(header))
	f.byName = map[string]int{}
	if err := members(d, func(name string) error {
		if name == metadataKey {
			return f.metadata(d)
		}
		return f.tensor(d, name)
	}); err != nil {
		return fmt.Errorf("its header: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("its header continues after its last }, expected only blanks")
	}
	return f.cover()
}

// members reads an object, whose keys must be different, and calls read for the value of each.
func members(d *json.Decoder, read func(key string) error) error {
	switch t, err := d.Token(); {
	case err != nil:
		return fmt.Errorf("is not JSON: %w", err)
	case t == nil:
		return errors.New("is null, expected an object")
	case t != json.Delim('{'):
		return fmt.Errorf("is %v, expected an object", t)
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return fmt.Errorf("is not JSON: %w", err)
		}
		key := t.(string) // every other token of an object is a string
		if seen[key] {
			return fmt.Errorf("%q is there twice, expected once", key)
		}
		seen[key] = true
		if err := read(key); err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
	}
	if _, err := d.Token(); err != nil { // }
		return fmt.Errorf("is not JSON: %w", err)
	}
	return nil
}

// metadata reads the object __metadata__.
func (f *File) metadata(d *json.Decoder) error {
	f.Metadata = map[string]string{}
	return members(d, func(key string) error {
		var value *string
		if err := d.Decode(&value); err != nil {
			return err
		}
		if value == nil {
			return errors.New("is null, expected a string")
		}
		f.Metadata[key] = *value
		return nil
	})
}

// tensor reads a tensor's entry.
func (f *File) tensor(d *json.Decoder, name string) error {
	var e entry
	if err := members(d, func(key string) error {
		switch key {
		case "dtype":
			return d.Decode(&e.DType)
		case "shape":
			return d.Decode(&e.Shape)
		case "data_offsets":
			return d.Decode(&e.Offsets)
		}
		return errors.New("is not known, expected dtype, shape and data_offsets")
	}); err != nil {
		return err
	}
	bytes, ok := size(e.DType, e.Shape)
	switch {
	case bits[e.DType] == 0:
		return fmt.Errorf("dtype is %q, which is not known", e.DType)
	case e.Shape == nil || !ok:
		return fmt.Errorf("shape is %v, expected a list of dims from 0 up", e.Shape)
	case len(e.Offsets) != 2 || e.Offsets[0] < 0 || e.Offsets[1] < e.Offsets[0]:
		return fmt.Errorf("data_offsets are %v, expected the offsets of the begin and the end", e.Offsets)
	case e.Offsets[1]-e.Offsets[0] != bytes:
		return fmt.Errorf("data_offsets are %v, %d bytes, expected %d for %s%v", e.Offsets, e.Offsets[1]-e.Offsets[0], bytes, e.DType, e.Shape)
	}
	f.byName[name] = len(f.tensors)
	f.tensors = append(f.tensors, Tensor{name, e.DType, e.Shape, e.Offsets[0], e.Offsets[1]})
	return nil
}

// cover sorts the tensors by offset and checks that they cover the data without gaps or overlaps.
func (f *File) cover() error {
	slices.SortStableFunc(f.tensors, func(a, b Tensor) int {
		if a.Begin != b.Begin {
			return int(min(max(a.Begin-b.Begin, -1), 1))
		}
		return int(min(max(a.End-b.End, -1), 1))
	})
	at := int64(0)
	for i := range f.tensors {
		t := &f.tensors[i]
		f.byName[t.Name] = i
		if t.Begin != at {
			return fmt.Errorf("tensor %q begins at byte %d of the data, expected %d, where the one before it ends", t.Name, t.Begin, at)
		}
		at = t.End
	}
	switch have := int64(len(f.data)); {
	case have < at:
		return fmt.Errorf("truncated: has %d bytes of data, expected %d", have, at)
	case have > at:
		return fmt.Errorf("has %d bytes after its last tensor, expected none", have-at)
	}
	return nil
}
