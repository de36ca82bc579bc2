package gguf

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"pesti/gguf/quant"
)

// Magic is the beginning of a GGUF file.
const Magic = "GGUF"

// Limits of the format.
const (
	maxDims      = 4
	maxName      = 63 // bytes of a tensor name
	maxKey       = 1<<16 - 1
	maxAlignment = 1 << 20

	defaultAlignment = 32
	alignmentKey     = "general.alignment"

	// Minimum sizes of entries, against which counts are checked.
	minKeyValue = 8 + 0 + 4 + 1     // empty key (refused later, with a better error) and one byte
	minTensor   = 8 + 0 + 4 + 4 + 8 // empty name, no dims

	// Memory is allocated for at most this many entries at first: a wrong count in a
	// large file may be consistent with its size and still require gigabytes.
	firstEntries = 1 << 10
)

// A header holds everything that precedes the tensor data.
type header struct {
	version  uint32
	keys     []string // in file order
	values   map[string]Value
	align    int64
	tensors  []Tensor
	end      int // of the tensor directory
	trailing int64
}

// rebase makes all values refer to head, a copy of the parsed bytes.
func (h *header) rebase(head []byte) {
	for k, v := range h.values {
		v.raw = head[v.pos : v.pos+len(v.raw)]
		h.values[k] = v
	}
}

// parseHeader reads and checks everything before the tensor data, and checks that
// the tensor data is where the directory says.
func parseHeader(path string, data []byte) (*header, error) {
	h := &header{}
	if err := h.parse(&cursor{data: data}, int64(len(data))); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// parse reads the header at c of a file of size bytes.
func (h *header) parse(c *cursor, size int64) error {
	if err := checkMagic(c.data); err != nil {
		return err
	}
	c.take(4)
	h.version = c.u32()
	if c.err != nil {
		return c.err
	}
	if err := checkVersion(h.version); err != nil {
		return err
	}
	tensors, pairs := c.u64(), c.u64()
	if c.err != nil {
		return c.err
	}
	// Counts are checked against the remaining bytes before anything is allocated.
	if most := uint64(c.left()) / minKeyValue; pairs > most {
		return fmt.Errorf("truncated: header counts %d key-value pairs, the rest of the file holds at most %d", pairs, most)
	}
	if most := (uint64(c.left()) - pairs*minKeyValue) / minTensor; tensors > most {
		return fmt.Errorf("truncated: header counts %d tensors, the rest of the file holds at most %d", tensors, most)
	}
	if err := h.parseMetadata(c, int(pairs)); err != nil {
		return err
	}
	var err error
	if h.align, err = alignment(h.values); err != nil {
		return err
	}
	if most := uint64(c.left()) / minTensor; tensors > most {
		return fmt.Errorf("truncated: header counts %d tensors, the rest of the file holds at most %d", tensors, most)
	}
	if err := h.parseDirectory(c, int(tensors)); err != nil {
		return err
	}
	h.end = c.pos
	return h.placeTensors(size)
}

// checkMagic checks the first bytes. Other well-known kinds of files are named in
// the error.
func checkMagic(data []byte) error {
	start := data[:min(len(data), 256)]
	if bytes.HasPrefix(start, []byte(Magic)) {
		return nil
	}
	if len(data) < len(Magic) && bytes.HasPrefix([]byte(Magic), data) {
		return fmt.Errorf("truncated: the file has %d bytes, a GGUF header has 24", len(data))
	}
	for _, known := range [...]struct{ prefix, what string }{
		{"<", "a web page or XML"},
		{"version https://git-lfs", "a Git LFS pointer, not the file it points to"},
		{"FUGG", "a GGUF file of the other byte order"},
		{"lmgg", "a GGML file, older than GGUF"},
		{"tjgg", "a GGJT file, older than GGUF"},
		{"fmgg", "a GGMF file, older than GGUF"},
		{"PK\x03\x04", "a zip archive or PyTorch checkpoint"},
	} {
		if bytes.HasPrefix(bytes.TrimLeft(start, " \t\r\n\ufeff"), []byte(known.prefix)) {
			return fmt.Errorf("is %s, expected a GGUF file; download the model again or convert it", known.what)
		}
	}
	return fmt.Errorf("is not a GGUF file: starts with %q, expected %q", start[:min(4, len(start))], Magic)
}

func checkVersion(v uint32) error {
	switch {
	case v == 2 || v == 3:
		return nil
	case v == 1:
		return fmt.Errorf("GGUF version 1 is not supported, expected 2 or 3; convert the model again")
	case v&0xffff == 0 && v != 0:
		return fmt.Errorf("GGUF version %d in the other byte order, expected a little-endian file", bits.ReverseBytes32(v))
	}
	return fmt.Errorf("GGUF version %d is not known, expected 2 or 3", v)
}

func (h *header) parseMetadata(c *cursor, pairs int) error {
	h.keys = make([]string, 0, min(pairs, firstEntries))
	h.values = make(map[string]Value, min(pairs, firstEntries))
	for i := range pairs {
		raw := c.str()
		switch {
		case c.err != nil:
			return fmt.Errorf("key %d of %d: %w", i+1, pairs, c.err)
		case len(raw) == 0:
			return fmt.Errorf("key %d of %d: empty key, expected a name", i+1, pairs)
		case len(raw) > maxKey:
			return fmt.Errorf("key %d of %d: key of %d bytes, expected at most %d", i+1, pairs, len(raw), maxKey)
		}
		key := string(raw)
		if _, twice := h.values[key]; twice {
			return fmt.Errorf("key %.100q: duplicate key, expected each once", key)
		}
		v, err := parseValue(c)
		if err != nil {
			return fmt.Errorf("key %.100q: %w", key, err)
		}
		h.keys = append(h.keys, key)
		h.values[key] = v
	}
	return nil
}

// alignment returns general.alignment or its default.
func alignment(values map[string]Value) (int64, error) {
	v, ok := values[alignmentKey]
	if !ok {
		return defaultAlignment, nil
	}
	if v.kind != Uint32 {
		return 0, fmt.Errorf("key %q: found %s, expected %s", alignmentKey, v.TypeName(), Uint32)
	}
	a := le.Uint32(v.raw)
	if bits.OnesCount32(a) != 1 || a > maxAlignment {
		return 0, fmt.Errorf("key %q: found %d, expected a power of two up to %d", alignmentKey, a, maxAlignment)
	}
	return int64(a), nil
}

// parseDirectory reads the tensor directory. Offsets stay relative to the
// tensor data until placeTensors.
func (h *header) parseDirectory(c *cursor, count int) error {
	h.tensors = make([]Tensor, 0, min(count, firstEntries))
	seen := make(map[string]bool, min(count, firstEntries))
	for i := range count {
		raw := c.str()
		switch {
		case c.err != nil:
			return fmt.Errorf("tensor %d of %d: %w", i+1, count, c.err)
		case len(raw) > maxName:
			return fmt.Errorf("tensor %d of %d: name %.20q… of %d bytes, expected at most %d", i+1, count, raw, len(raw), maxName)
		}
		name := string(raw)
		if seen[name] {
			return fmt.Errorf("tensor %q: duplicate name, expected each once", name)
		}
		seen[name] = true
		t, err := parseTensor(c, name)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		h.tensors = append(h.tensors, t)
	}
	return nil
}

func parseTensor(c *cursor, name string) (Tensor, error) {
	t := Tensor{Name: name}
	dims := c.u32()
	if c.err == nil && dims > maxDims {
		return t, fmt.Errorf("found %d dims, expected at most %d", dims, maxDims)
	}
	t.Dims = make([]int64, dims)
	for i := range t.Dims {
		d := c.u64()
		if d > math.MaxInt64 {
			return t, fmt.Errorf("dim %d is %d, expected less than 2^63", i, d)
		}
		t.Dims[i] = int64(d)
	}
	t.Type = quant.Type(c.u32())
	offset := c.u64()
	if c.err != nil {
		return t, c.err
	}
	if offset > math.MaxInt64 {
		return t, fmt.Errorf("offset %d is beyond the end of the file", offset)
	}
	t.Offset = int64(offset)
	var err error
	t.Size, err = tensorBytes(t.Type, t.Dims)
	return t, err
}

// tensorBytes returns the size of a tensor's data, after checking type and dims.
func tensorBytes(typ quant.Type, dims []int64) (int64, error) {
	in, ok := quant.Lookup(typ)
	switch {
	case !ok:
		return 0, fmt.Errorf("type %d is not known", uint32(typ))
	case in.Removed:
		return 0, fmt.Errorf("type %d (%s) was removed from the format; convert the model again", uint32(typ), in.Name)
	}
	row := int64(1)
	if len(dims) > 0 {
		row = dims[0]
	}
	if row%int64(in.BlockLen) != 0 {
		return 0, fmt.Errorf("first dim is %d, expected a multiple of %d for %s", row, in.BlockLen, in.Name)
	}
	elems, empty := int64(1), false
	for _, d := range dims {
		if d == 0 {
			empty = true
			continue
		}
		if elems > math.MaxInt64/d {
			return 0, fmt.Errorf("dims %v hold more than 2^63 elements", dims)
		}
		elems *= d
	}
	if empty {
		return 0, nil
	}
	blocks := elems / int64(in.BlockLen)
	if blocks > math.MaxInt64/int64(in.BlockBytes) {
		return 0, fmt.Errorf("dims %v of %s take more than 2^63 bytes", dims, in.Name)
	}
	return blocks * int64(in.BlockBytes), nil
}

// placeTensors makes offsets absolute and checks that every tensor is within the
// file and overlaps no other.
func (h *header) placeTensors(size int64) error {
	align := h.align
	start := roundUp(int64(h.end), align)
	// A file may lack the padding before its data or after it, where an empty tensor
	// may be.
	room := max(0, size-start)
	padded := roundUp(room, align)
	order := make([]int, len(h.tensors))
	for i := range h.tensors {
		order[i] = i
		t := &h.tensors[i]
		switch {
		case t.Offset%align != 0:
			return fmt.Errorf("tensor %q: offset %d, expected a multiple of the alignment %d", t.Name, t.Offset, align)
		case t.Offset > padded || t.Size > 0 && t.Size > room-t.Offset:
			return fmt.Errorf("tensor %q: needs %d bytes at offset %d, the file holds %d bytes of tensor data; it may be truncated", t.Name, t.Size, t.Offset, room)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &h.tensors[a], &h.tensors[b]
		return cmp.Or(cmp.Compare(x.Offset, y.Offset), cmp.Compare(x.Size, y.Size))
	})
	var used int64
	var last string
	for _, i := range order {
		t := &h.tensors[i]
		if t.Size > 0 && t.Offset < used {
			return fmt.Errorf("tensor %q: starts at offset %d, overlapping %q, which ends at %d", t.Name, t.Offset, last, used)
		}
		if t.Size > 0 {
			used, last = t.Offset+t.Size, t.Name
		}
		t.Offset += start
	}
	h.trailing = max(0, room-roundUp(used, align))
	return nil
}

// roundUp returns the least multiple of align, a power of two, that is ≥ n.
func roundUp(n, align int64) int64 { return (n + align - 1) &^ (align - 1) }
