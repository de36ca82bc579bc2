// Package gguf reads and writes GGUF files: metadata, tensor directory and tensor
// data. Files are mapped read-only. Everything in the header is checked against
// the file before it is used, so that no file can make the reader allocate much
// memory, read beyond the file, or panic.
//
// The format is described at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md;
// versions 2 and 3, little-endian, are read, and version 3 is written.
//
// The package handles the container and does not interpret keys. It imports gguf/quant and gguf/mapped and nothing else of this module.
package gguf

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"pesti/gguf/mapped"
)

// A File is an open GGUF file, or all shards of a split file. Its methods except
// Close may be called from several goroutines.
type File struct {
	Path    string // as given to Open or Parse
	Version uint32 // of the format
	Size    int64  // in bytes, of all shards together

	header            // of the first shard, with the tensors of all shards
	shards   []*shard // in order
	byName   map[string]int
	warnings []string
	digest   func() [32]byte
}

// A shard is one mapped file.
type shard struct {
	path  string
	data  []byte
	head  []byte // a copy of the header, metadata and directory
	close func() error

	mapping *mapped.File // nil for a file in memory
}

// Open opens the file at path. If it is one shard of a split file, all shards are
// opened, which must be in the same folder. The header is checked in full; tensor
// data is not read.
func Open(path string) (*File, error) {
	first, h, err := openShard(path)
	if err != nil {
		return nil, err
	}
	s, err := h.split(path)
	if err != nil {
		first.close()
		return nil, err
	}
	if s.count <= 1 {
		return newFile(path, []*shard{first}, []*header{h})
	}
	first.close()
	return openSplit(path, s)
}

// Parse reads a GGUF file from memory, with the checks of Open. Errors begin with
// name. The data must not change while the File is used.
func Parse(name string, data []byte) (*File, error) {
	s, h, err := newShard(name, data, func() error { return nil })
	if err != nil {
		return nil, err
	}
	sp, err := h.split(name)
	if err != nil {
		return nil, err
	}
	if sp.count > 1 {
		return nil, fmt.Errorf("%s: is shard %d of %d, expected a whole file; open split files by their path", name, sp.no+1, sp.count)
	}
	return newFile(name, []*shard{s}, []*header{h})
}

// openShard maps one file and parses its header.
func openShard(path string) (*shard, *header, error) {
	f, err := mapped.Open(path, "a GGUF file")
	if err != nil {
		return nil, nil, err
	}
	s, h, err := newShard(path, f.Data, f.Close)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	s.mapping = f
	return s, h, nil
}

// cause removes the operation and the path that package os puts before an error:
// our errors have them already.
func cause(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err
	}
	return err
}

func newShard(path string, data []byte, unmap func() error) (*shard, *header, error) {
	s := &shard{path: path, data: data, close: unmap}
	var h *header
	err := mapped.Guard(path, func() (err error) {
		if h, err = parseHeader(path, data); err != nil {
			return err
		}
		// Metadata is kept in a copy, so that it stays valid after Close and if
		// the file changes.
		s.head = bytes.Clone(data[:h.end])
		h.rebase(s.head)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return s, h, nil
}

// newFile joins parsed shards. It closes them if it fails.
func newFile(path string, shards []*shard, headers []*header) (*File, error) {
	f := &File{Path: path, Version: headers[0].version, header: *headers[0], shards: shards}
	f.tensors = nil
	for i, h := range headers {
		f.Size += int64(len(shards[i].data))
		for _, t := range h.tensors {
			t.Shard = i
			f.tensors = append(f.tensors, t)
		}
		if h.trailing > 0 {
			f.warnings = append(f.warnings, fmt.Sprintf("%s: %d bytes after the last tensor are not used", shards[i].path, h.trailing))
		}
	}
	f.byName = make(map[string]int, len(f.tensors))
	for i, t := range f.tensors {
		if j, twice := f.byName[t.Name]; twice {
			f.Close()
			return nil, fmt.Errorf("%s: tensor %q: is in shards %d and %d, expected it once", path, t.Name, f.tensors[j].Shard+1, t.Shard+1)
		}
		f.byName[t.Name] = i
	}
	f.digest = sync.OnceValue(func() (sum [32]byte) {
		hash := sha256.New()
		for _, s := range f.shards {
			hash.Write(s.head)
		}
		hash.Sum(sum[:0])
		return sum
	})
	return f, nil
}

// Close unmaps the file. Slices that Bytes returned must not be used afterwards.
// Metadata can still be read.
func (f *File) Close() error {
	var errs []error
	for _, s := range f.shards {
		s.data = nil
		if s.close != nil {
			errs = append(errs, s.close())
			s.close = nil
		}
	}
	return errors.Join(errs...)
}

// Warnings returns one line for each unusual property that is allowed, such as
// bytes after the last tensor.
func (f *File) Warnings() []string { return f.warnings }

// Paths returns the paths of all shards, in order. A file that is not split has one.
func (f *File) Paths() []string {
	var paths []string
	for _, s := range f.shards {
		paths = append(paths, s.path)
	}
	return paths
}

// Digest returns the SHA-256 of the header, metadata and tensor directory of all
// shards, in order. It identifies a model without reading its weights.
func (f *File) Digest() [32]byte { return f.digest() }

// HashData returns the SHA-256 of the bytes of all tensors in directory order.
// It reads the whole file.
func (f *File) HashData() (sum [32]byte, err error) {
	hash := sha256.New()
	for i := range f.tensors {
		if err := f.read(&f.tensors[i], func(data []byte) { hash.Write(data) }); err != nil {
			return sum, err
		}
	}
	hash.Sum(sum[:0])
	return sum, nil
}

// SampleData is HashData over 64 pieces of 4 KiB at equal distances. With 64 reads it distinguishes
// models of the same shapes, such as fine-tunes of one model, but it does not detect every changed
// byte.
func (f *File) SampleData() (sum [32]byte, err error) {
	const pieces, length = 64, 4096
	var total int64
	for i := range f.tensors {
		total += f.tensors[i].Size
	}
	hash, piece := sha256.New(), make([]byte, length)
	var before int64 // bytes of all previous tensors
	next := int64(0) // piece
	for i := range f.tensors {
		t := &f.tensors[i]
		for ; next < pieces && next*(total/pieces) < before+t.Size; next++ {
			at := next*(total/pieces) - before
			data := piece[:min(length, t.Size-at)]
			if err := f.ReadAt(t, data, at); err != nil {
				return sum, err
			}
			hash.Write(data)
		}
		before += t.Size
	}
	hash.Sum(sum[:0])
	return sum, nil
}

// sampled is the prefix of a digest of samples of the weights.
const sampled = "samples-"

// WeightsDigest returns the digest of the weights as plans store it: "sha256:" and the sum of HashData in
// hexadecimal, or with sample "samples-sha256:" and that of SampleData.
func (f *File) WeightsDigest(sample bool) (string, error) {
	if sample {
		sum, err := f.SampleData()
		return fmt.Sprintf(sampled+"sha256:%x", sum), err
	}
	sum, err := f.HashData()
	return fmt.Sprintf("sha256:%x", sum), err
}

// SampledDigest reports whether a digest that WeightsDigest has returned is of samples.
func SampledDigest(digest string) bool { return strings.HasPrefix(digest, sampled) }

// read calls use with the data of t. use may read all of it.
func (f *File) read(t *Tensor, use func(data []byte)) error {
	s := f.shards[t.Shard]
	if s.close == nil {
		return fmt.Errorf("%s: tensor %q: the file is closed", s.path, t.Name)
	}
	err := mapped.Guard(s.path, func() error {
		use(f.Bytes(t))
		return nil
	})
	if err == nil && s.mapping != nil {
		err = s.mapping.CheckSize()
	}
	return err
}
