package gguf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Keys of split files. Every shard has the first two; the first shard also has all
// other metadata.
const (
	splitNoKey      = "split.no"            // from 0
	splitCountKey   = "split.count"         // shards
	splitTensorsKey = "split.tensors.count" // in all shards
)

// A split holds a shard's split.* keys. The zero value stands for a whole file.
type split struct {
	no, count, tensors uint64
}

// split reads the split.* keys.
func (h *header) split(path string) (s split, err error) {
	f := &File{Path: path, header: *h}
	if !f.Has(splitCountKey) {
		return split{}, nil
	}
	if s.count, err = f.Uint(splitCountKey); err != nil || s.count <= 1 {
		return s, err
	}
	if s.no, err = f.Uint(splitNoKey); err != nil {
		return s, err
	}
	if s.no >= s.count || s.count > 99999 {
		return s, fmt.Errorf("%s: key %q: found %d of %d shards, expected one of at most 99999", path, splitNoKey, s.no, s.count)
	}
	s.tensors, err = f.Uint(splitTensorsKey)
	return s, err
}

// suffix is the end of the file name of shard no of count.
func suffix(no, count uint64) string { return fmt.Sprintf("-%05d-of-%05d.gguf", no+1, count) }

// openSplit opens all shards of a split file. One of them is at path and has the keys s.
func openSplit(path string, s split) (*File, error) {
	prefix, ok := strings.CutSuffix(path, suffix(s.no, s.count))
	if !ok {
		return nil, fmt.Errorf("%s: is shard %d of %d, expected a name that ends in %s, since the other shards are found by it", path, s.no+1, s.count, suffix(s.no, s.count))
	}
	var missing []string
	for i := range s.count {
		if _, err := os.Stat(prefix + suffix(i, s.count)); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, prefix+suffix(i, s.count))
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s: %d of %d shards are missing: %s", path, len(missing), s.count, list(missing, 4))
	}
	var shards []*shard
	var headers []*header
	fail := func(err error) (*File, error) {
		for _, sh := range shards {
			sh.close()
		}
		return nil, err
	}
	var tensors uint64
	for i := range s.count {
		name := prefix + suffix(i, s.count)
		sh, h, err := openShard(name)
		if err != nil {
			return fail(err)
		}
		shards, headers = append(shards, sh), append(headers, h)
		got, err := h.split(name)
		if err != nil {
			return fail(err)
		}
		if want := (split{i, s.count, s.tensors}); got != want {
			return fail(fmt.Errorf("%s: says shard %d of %d with %d tensors in all, expected shard %d of %d with %d, as %s says", name, got.no+1, got.count, got.tensors, want.no+1, want.count, want.tensors, path))
		}
		tensors += uint64(len(h.tensors))
	}
	if tensors != s.tensors {
		return fail(fmt.Errorf("%s: shards hold %d tensors, expected %d as key %q says", path, tensors, s.tensors, splitTensorsKey))
	}
	return newFile(path, shards, headers)
}

// list joins the first few names.
func list(names []string, most int) string {
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
