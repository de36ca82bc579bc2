package gguf

import (
	"context"
	"fmt"
	"math"
	"os"
)

// A SplitLimit limits the size of each shard of a split file. 0 means no limit.
type SplitLimit struct {
	Tensors int
	Bytes   int64 // of the file
}

// WriteSplit writes the file as the smallest number of shards that the limit
// allows while tensors stay in order, and returns their paths. Shards are called
// prefix-00001-of-0000N.gguf and so on. The first has all metadata (and no tensors
// if none fits); the others have only the keys split.* and general.alignment.
//
// The shards are renamed to their final names after all have been written. If
// renaming fails or ctx ends meanwhile, no shard is left, and files of the same
// names may have been lost.
func (w *Writer) WriteSplit(ctx context.Context, prefix string, limit SplitLimit) (paths []string, err error) {
	shards, err := w.Shards(limit)
	if err != nil {
		return nil, fmt.Errorf("%s: writing GGUF: %w", prefix, err)
	}
	var temps []string
	defer func() {
		if err != nil {
			for _, name := range temps {
				os.Remove(name) // which may have been renamed already
			}
		}
	}()
	for i, s := range shards {
		path := ShardPath(prefix, i, len(shards))
		temp, err := s.writeTemp(ctx, path)
		if err != nil {
			return nil, err
		}
		paths, temps = append(paths, path), append(temps, temp)
	}
	for i, path := range paths {
		if err := os.Rename(temps[i], path); err != nil {
			for _, done := range paths[:i] {
				os.Remove(done)
			}
			return nil, fmt.Errorf("%s: cannot be written: %w", path, cause(err))
		}
	}
	return paths, nil
}

// A part is a shard that is being assembled.
type part struct {
	*Writer
	head int64 // bytes of the header
	data int64 // bytes of tensors, padded
}

// add adds a tensor of size bytes if that keeps the shard within the limit.
func (p *part) add(t *source, size, align int64, limit SplitLimit) bool {
	head := p.head + int64(len(t.append(nil, 0)))
	data := p.data + roundUp(size, align)
	if limit.Tensors > 0 && len(p.tensors) >= limit.Tensors || limit.Bytes > 0 && roundUp(head, align)+data > limit.Bytes {
		return false
	}
	p.tensors, p.head, p.data = append(p.tensors, *t), head, data
	return true
}

// ShardPath returns the name of the shard at index i of n.
func ShardPath(prefix string, i, n int) string { return prefix + suffix(uint64(i), uint64(n)) }

// Shards distributes the tensors to one writer per shard, as WriteSplit does.
func (w *Writer) Shards(limit SplitLimit) ([]*Writer, error) {
	h, _, err := w.layout() // errors are found before any shard is written
	if err != nil {
		return nil, err
	}
	p, err := w.part(w.keys)
	if err != nil {
		return nil, err
	}
	if size := roundUp(p.head, h.align); limit.Bytes > 0 && size > limit.Bytes {
		return nil, fmt.Errorf("metadata takes %d bytes, expected up to %d, the limit of a shard; raise it", size, limit.Bytes)
	}
	shards := []*Writer{p.Writer}
	for i := range w.tensors {
		t, size := &w.tensors[i], h.tensors[i].Size
		if p.add(t, size, h.align, limit) {
			continue
		}
		if p, err = w.part([]string{alignmentKey}); err != nil {
			return nil, err
		}
		if !p.add(t, size, h.align, limit) {
			return nil, fmt.Errorf("tensor %q: takes %d bytes and a header, expected up to %d, the limit of a shard; raise it", t.name, size, limit.Bytes)
		}
		shards = append(shards, p.Writer)
	}
	if len(shards) > math.MaxUint16 {
		return nil, fmt.Errorf("found %d shards, expected up to %d; raise the limit of a shard", len(shards), math.MaxUint16)
	}
	for i, s := range shards {
		s.setSplit(i, len(shards), len(w.tensors))
	}
	return shards, nil
}

// part returns a shard with the given values of w and no tensors.
func (w *Writer) part(keys []string) (*part, error) {
	p := &part{Writer: NewWriter()}
	for _, k := range keys {
		if v, ok := w.values[k]; ok {
			p.Set(k, v)
		}
	}
	p.setSplit(0, 0, 0) // so that the header has its size
	_, head, err := p.layout()
	p.head = int64(len(head))
	return p, err
}

// setSplit sets the keys of a shard, with the types that llama.cpp uses.
func (w *Writer) setSplit(no, count, tensors int) {
	w.SetUint16(splitNoKey, uint16(no))
	w.SetUint16(splitCountKey, uint16(count))
	w.SetInt32(splitTensorsKey, int32(tensors))
}
