package compare

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pesti/gguf/dense"
)

// Names of the files in a folder of values.
const (
	TokensFile  = "tokens.npy"
	LogitsFile  = "logits.npy"
	layerPrefix = "layer_"
)

// LayerFile returns the name of the file with the residual stream after a block.
func LayerFile(block int) string { return fmt.Sprintf(layerPrefix+"%02d.npy", block) }

// A FolderOperand is a folder of values that the verb dump, or the oracle, has written. It reads
// rows only when they are compared.
type FolderOperand struct {
	is     Description
	ids    []int32
	layers []*dense.Npy
	logits *dense.Npy
	files  []*dense.Npy // all open files
}

// OpenFolder opens tokens.npy, logits.npy and the files layer_NN.npy; either all layers or none
// must be present. Each file has a row for each token. The folder's path is the Name of the
// description.
func OpenFolder(is Description) (*FolderOperand, error) {
	f := &FolderOperand{is: is}
	err := f.open()
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *FolderOperand) open() error {
	tokens, err := f.file(TokensFile)
	if err != nil {
		return err
	}
	ids, err := dense.Ints(tokens, 0, tokens.Len())
	if err != nil {
		return err
	}
	for i, id := range ids {
		if id < 0 || id > math.MaxInt32 {
			return fmt.Errorf("%s: element %d is %d, expected a token id", tokens.Path, i, id)
		}
		f.ids = append(f.ids, int32(id))
	}
	if f.logits, err = f.rows(LogitsFile); err != nil {
		return err
	}
	names, err := NpyFiles(f.is.Name)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, layerPrefix) })
	for n := range names {
		name := LayerFile(n)
		if !slices.Contains(names, name) {
			return fmt.Errorf("%s: is missing, and %s is present; dump all layers, or remove the others", filepath.Join(f.is.Name, name), names[len(names)-1])
		}
		layer, err := f.rows(name)
		if err != nil {
			return err
		}
		f.layers = append(f.layers, layer)
	}
	return nil
}

// NpyFiles returns the names of the files in dir that end in .npy, sorted.
func NpyFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if of := (*fs.PathError)(nil); errors.As(err, &of) {
			err = of.Err
		}
		return nil, fmt.Errorf("%s: cannot be read: %w", dir, err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".npy") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// file opens a file of the folder.
func (f *FolderOperand) file(name string) (*dense.Npy, error) {
	a, err := dense.OpenNpy(filepath.Join(f.is.Name, name))
	if err == nil {
		f.files = append(f.files, a)
	}
	return a, err
}

// rows opens a file with a row for each token.
func (f *FolderOperand) rows(name string) (*dense.Npy, error) {
	a, err := f.file(name)
	if err == nil && (len(a.Shape) != 2 || a.Shape[0] != len(f.ids)) {
		err = fmt.Errorf("%s: shape %v, expected a row for each of the %d tokens of %s", a.Path, a.Shape, len(f.ids), TokensFile)
	}
	return a, err
}

// Describe returns the description of the operand.
func (f *FolderOperand) Describe() *Description { return &f.is }

// Vocabulary returns the number of logits for a position.
func (f *FolderOperand) Vocabulary() int { return f.logits.Shape[1] }

// IDs returns the tokens that the folder has values for.
func (f *FolderOperand) IDs() []int32 { return slices.Clone(f.ids) }

// Close closes the files.
func (f *FolderOperand) Close() {
	for _, a := range f.files {
		a.Close()
	}
}

// checkIDs returns an error for tokens other than the folder's.
func (f *FolderOperand) checkIDs(ids []int32) error {
	if !slices.Equal(ids, f.ids) {
		return &OperandError{f.is.String(), fmt.Errorf("its token ids are %s, expected %s", AbbreviateIDs(f.ids), AbbreviateIDs(ids))}
	}
	return nil
}

// AbbreviateIDs prints ids, or only their number and the first ones if there are many.
func AbbreviateIDs(ids []int32) string {
	const most = 8
	if len(ids) <= most {
		return fmt.Sprint(ids)
	}
	return fmt.Sprintf("%d, beginning with %v", len(ids), ids[:most])
}

// values reads the rows of these tokens.
func (f *FolderOperand) values(_ context.Context, ids []int32, from, to int) (*values, error) {
	part := func(a *dense.Npy) ([]float32, error) {
		return dense.Floats[float32](a, from*a.Shape[1], (to-from)*a.Shape[1])
	}
	v := &values{}
	var err error
	if v.logits, err = part(f.logits); err != nil {
		return nil, err
	}
	for _, a := range f.layers {
		layer, err := part(a)
		if err != nil {
			return nil, err
		}
		v.layers = append(v.layers, layer)
	}
	return v, nil
}
