package gguf

import (
	"context"
	"fmt"
	"math"
	"os"
)

// SplitLimit bounds each shard of a split file; 0 means no bound.
type SplitLimit struct {
	Tensors int
	Bytes   int64 // of the file
}

// WriteSplit writes the file in as few shards as the limit allows with tensors
// kept in order, called prefix-00001-of-0000N.gguf and so on, and returns their
// paths. The first shard has all metadata, and no tensor where the first one does
// not fit beside it; the others have the keys split.* and general.alignment alone.
//
// The shards get their names only when all have been written; where that fails
// half-way, or ctx ends, none is left. Files that were there before are then lost.
func (w *Writer) WriteSplit(ctx context.Context, prefix string, limit SplitLimit) (paths []string, err error) {
	shards, err := w.Shards(limit)
	if err != nil {
		return nil, fmt.Errorf("%s: writing GGUF: %w", prefix, err)
	}
	var temps []string
	defer func() {
		if err != nil {
			for _, name := range temps {
				os.Remove(name) // which may have another name by now
			}
		}
	}()
	for i, s := range shards {
		path := ShardPath(prefix, i, len(shards))
		temp, err := s.writeBeside(ctx, path)
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

// A part is a shard in the making.
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

// Shards deals the tensors out to a writer for each shard, as WriteSplit does.
func (w *Writer) Shards(limit SplitLimit) ([]*Writer, error) {
	h, _, err := w.layout() // what is wrong with the whole is found before a part is written
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

// part returns a shard with those of w's values and no tensors.
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

// setSplit sets the keys of a shard, with the types that llama.cpp gives them.
func (w *Writer) setSplit(no, count, tensors int) {
	w.SetUint16(splitNoKey, uint16(no))
	w.SetUint16(splitCountKey, uint16(count))
	w.SetInt32(splitTensorsKey, int32(tensors))
}
