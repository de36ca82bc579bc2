// Package inspect describes and checks model files.
//
// It contains the description of what a file holds, and the check of everything that can be found without a
// prompt: values of tensors, hyper-parameters, shapes, and the tokenizer. It imports frontend,
// frontend/tokenizer, gguf and gguf/quant.
package inspect

import (
	"cmp"
	"slices"

	"pesti/frontend"
	"pesti/gguf"
	"pesti/gguf/quant"
)

// A Description says what a model file holds.
type Description struct {
	File         string   `json:"file"`
	Size         int64    `json:"size"` // bytes, of all shards
	Version      uint32   `json:"version"`
	Architecture string   `json:"architecture"` // "" where the file does not say
	Supported    bool     `json:"supported"`    // the architecture has a front end
	Name         string   `json:"name"`
	Parameters   int64    `json:"parameters"` // elements of all tensors
	KeyCount     int      `json:"key_count"`
	TensorCount  int      `json:"tensor_count"`
	Types        []Type   `json:"types"` // most bytes first
	Metadata     []Key    `json:"metadata"`
	Tensors      []Tensor `json:"tensors,omitempty"` // in directory order
}

// A Type counts the tensors of a type.
type Type struct {
	Type    string `json:"type"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// A Key is one key of the metadata. Its value is nil for arrays with more than longArray elements, such as a
// vocabulary.
type Key struct {
	Key   string      `json:"key"`
	Type  string      `json:"type"`
	Value *gguf.Value `json:"value,omitempty"`
	Text  string      `json:"-"` // gguf.Value's String, which abbreviates long arrays
}

const longArray = 256

// A Tensor is one tensor of the file.
type Tensor struct {
	Name   string  `json:"name"`
	Type   string  `json:"type"`
	Dims   []int64 `json:"dims"` // in the file's order, contiguous first
	Bytes  int64   `json:"bytes"`
	Offset int64   `json:"offset"` // from the start of its file
	Shard  int     `json:"shard"`
}

// Describe describes a file. It requires no key, so that it works for files that do not load.
func Describe(f *gguf.File) *Description {
	d := &Description{
		File: f.Path, Size: f.Size, Version: f.Version,
		KeyCount: len(f.Keys()), TensorCount: len(f.Tensors()),
		Types: []Type{}, Metadata: []Key{},
	}
	d.Architecture, _ = f.Str("general.architecture")
	d.Name, _ = f.Str("general.name")
	d.Supported = supported(d.Architecture)
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		k := Key{Key: key, Type: v.TypeName(), Text: v.String()}
		if v.Len() <= longArray {
			k.Value = &v
		}
		d.Metadata = append(d.Metadata, k)
	}
	all := f.Tensors()
	byType := map[quant.Type]*Type{}
	for i := range all {
		t := &all[i]
		c := byType[t.Type]
		if c == nil {
			c = &Type{Type: t.Type.String()}
			byType[t.Type] = c
		}
		c.Tensors++
		c.Bytes += t.Size
		d.Parameters += t.Elems()
		d.Tensors = append(d.Tensors, Tensor{t.Name, t.Type.String(), append([]int64{}, t.Dims...), t.Size, t.Offset, t.Shard})
	}
	for _, c := range byType {
		d.Types = append(d.Types, *c)
	}
	slices.SortFunc(d.Types, func(x, y Type) int {
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.Type, y.Type))
	})
	return d
}

// supported reports whether an architecture has a front end.
func supported(arch string) bool { return slices.Contains(frontend.Architectures(), arch) }
