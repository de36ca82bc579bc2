// Package convert copies models, with weights of the same types or of another.
//
// It contains the types that a model can be stored with, and the rule which tensors get the requested type. It
// imports gguf, gguf/layers and gguf/quant.
package convert

import (
	"fmt"
	"strings"

	"pesti/gguf"
	"pesti/gguf/layers"
	"pesti/gguf/quant"
)

// storedTypes are the types that To writes, with their values of the key general.file_type: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#general-metadata.
var storedTypes = []struct {
	typ      quant.Type
	fileType uint32
}{
	{quant.F32, 0}, {quant.F16, 1}, {quant.BF16, 32},
	{quant.Q4_0, 2}, {quant.Q4_1, 3}, {quant.Q5_0, 8}, {quant.Q5_1, 9}, {quant.Q8_0, 7},
	{quant.Q4_K, 14}, {quant.Q5_K, 16}, {quant.Q6_K, 18},
}

// quantizationVersion is the value of general.quantization_version for these types.
const quantizationVersion = 2

// Types returns the types that To writes, those without blocks first.
func Types() []quant.Type {
	types := make([]quant.Type, len(storedTypes))
	for i := range storedTypes {
		types[i] = storedTypes[i].typ
	}
	return types
}

// A Report says which weights To has stored with the requested type.
type Report struct {
	Matrices int                   // weights with rows
	Stored   int                   // matrices that have the requested type now
	Kept     []layers.Merged[Kept] // matrices that keep their type, equal ones of several layers merged
}

// A Kept is a matrix that keeps its type.
type Kept struct {
	Tensor string
	Type   quant.Type // its own
	Why    string     // "its rows of 48 are no multiple of a block of Q4_K"
}

// Copy adds the metadata and tensors of f to w, unchanged. It leaves out the keys split.*, which describe the
// files of f. The data is read by w's Write, so f must stay open until then.
func Copy(w *gguf.Writer, f *gguf.File) error {
	addKeys(w, f)
	return addTensors(w, f, func(t *gguf.Tensor) quant.Type { return t.Type })
}

// To is Copy with weights of another type, one of Types: matrices get that type, and vectors such as norms
// become F32. Tensors of integers keep their type, and so does a matrix whose row length is no multiple of the
// type's block. To also sets the keys that state the types of weights.
func To(w *gguf.Writer, f *gguf.File, typ quant.Type) (*Report, error) {
	row := -1
	for i := range storedTypes {
		if storedTypes[i].typ == typ {
			row = i
		}
	}
	if row < 0 {
		return nil, fmt.Errorf("%s: cannot be stored as %s, expected one of %v", f.Path, typ, Types())
	}
	addKeys(w, f)
	w.SetUint32("general.file_type", storedTypes[row].fileType)
	w.SetUint32("general.quantization_version", quantizationVersion)
	r := &Report{}
	var kept []Kept
	err := addTensors(w, f, func(t *gguf.Tensor) quant.Type {
		as, why := storedAs(t, typ)
		if len(t.Dims) >= 2 && !t.Type.Integer() {
			r.Matrices++
			if as == typ {
				r.Stored++
			}
		}
		if why != "" {
			kept = append(kept, Kept{t.Name, as, why})
		}
		return as
	})
	if err != nil {
		return nil, err
	}
	r.Kept = layers.Merge(kept, func(k *Kept) []*string { return []*string{&k.Tensor} })
	return r, nil
}

// addKeys adds the metadata of f to w, without the keys of a split file.
func addKeys(w *gguf.Writer, f *gguf.File) {
	for _, key := range f.Keys() {
		if !strings.HasPrefix(key, "split.") {
			v, _ := f.Value(key)
			w.Set(key, v)
		}
	}
}

// addTensors adds the tensors of f to w, each with the type that as returns.
func addTensors(w *gguf.Writer, f *gguf.File, as func(*gguf.Tensor) quant.Type) error {
	tensors := f.Tensors()
	for i := range tensors {
		if err := w.AddConverted(f, &tensors[i], as(&tensors[i])); err != nil {
			return err
		}
	}
	return nil
}

// storedAs returns the type that t gets if typ is requested, and if a matrix keeps its own type, why.
func storedAs(t *gguf.Tensor, typ quant.Type) (as quant.Type, why string) {
	block, _ := quant.Lookup(typ)
	switch {
	case t.Type.Integer():
		return t.Type, ""
	case len(t.Dims) < 2:
		return quant.F32, ""
	case t.Dims[0]%int64(block.BlockLen) != 0:
		return t.Type, fmt.Sprintf("its rows of %d are no multiple of a block of %s", t.Dims[0], typ)
	}
	return typ, ""
}
