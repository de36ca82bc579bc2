package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"pesti/exec/plan"
	"pesti/gguf"
	"pesti/gguf/quant"
)

// storedTypes are the types that convert writes, with the value of the key general.file_type
// that says so: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#general-metadata.
var storedTypes = []struct {
	typ      quant.Type
	fileType uint32
}{
	{quant.F32, 0}, {quant.F16, 1}, {quant.BF16, 32},
	{quant.Q4_0, 2}, {quant.Q4_1, 3}, {quant.Q5_0, 8}, {quant.Q5_1, 9}, {quant.Q8_0, 7},
	{quant.Q4_K, 14}, {quant.Q5_K, 16}, {quant.Q6_K, 18},
}

// quantizationVersion is the value of general.quantization_version that goes with these types.
const quantizationVersion = 2

func (a *app) convert() *cobra.Command {
	var typ choice
	var out string
	for _, s := range storedTypes {
		typ.allowed = append(typ.allowed, strings.ToLower(s.typ.String()))
	}
	cmd := a.verb("convert MODEL --type TYPE -o FILE.gguf", "Store a model with weights of another type",
		`  pesti convert model.gguf --type f32 -o model-f32.gguf`,
		arity{1, 1, "MODEL"}, a.interruptible(func(cmd *cobra.Command, args []string) error {
			switch {
			case typ.word == "":
				return usagef("expected --type, one of %s", strings.Join(typ.allowed, ", "))
			case out == "":
				return usagef("expected -o FILE.gguf, the file to write")
			}
			f, err := a.openModel(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			return a.convertTo(cmd.Context(), out, f, slices.Index(typ.allowed, typ.word))
		}))
	cmd.Long = cmd.Short + `.

Matrices get the type, vectors such as norms and biases F32. A matrix whose rows are no multiple of
the type's block keeps its own. All metadata stays, but for what says how weights are stored, and a
split model becomes one file. Weights that are quantised already lose once more, except to f32,
which holds their values as they are.`
	cmd.Flags().Var(&typ, "type", "how to store the weights")
	cmd.Flags().StringVarP(&out, "output", "o", "", "the model `FILE` to write; - is standard output")
	return cmd
}

// convertTo writes f to path, its weights in the type of that row of storedTypes.
func (a *app) convertTo(ctx context.Context, path string, f *gguf.File, row int) error {
	for _, shard := range f.Paths() {
		if sameFile(shard, path) {
			return usagef("-o %s is the model itself, expected another file", path)
		}
	}
	typ := storedTypes[row].typ
	w := gguf.NewWriter()
	for _, key := range f.Keys() {
		if !strings.HasPrefix(key, "split.") {
			v, _ := f.Value(key)
			w.Set(key, v)
		}
	}
	w.SetUint32("general.file_type", storedTypes[row].fileType)
	w.SetUint32("general.quantization_version", quantizationVersion)

	var size int64
	var kept []string
	tensors := f.Tensors()
	for i := range tensors {
		t := &tensors[i]
		as := storedAs(t, typ)
		if as == t.Type && as != typ && len(t.Dims) > 1 {
			kept = append(kept, fmt.Sprintf("%s: tensor %s stays %s: its rows of %d are no multiple of a block of %s", f.Path, t.Name, as, t.Dims[0], typ))
		}
		if err := w.AddConverted(f, t, as); err != nil {
			return err
		}
		size += quant.RowBytes(as, t.Elems())
	}
	a.warn(kept)
	if err := a.output(ctx, path, w.Write); err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "%s: %s of weights in %d tensors, from %s\n", path, plan.HumanBytes(size), len(tensors), plan.HumanBytes(f.Size))
	return nil
}

// storedAs returns the type that t gets where typ is asked for.
func storedAs(t *gguf.Tensor, typ quant.Type) quant.Type {
	if len(t.Dims) < 2 {
		return quant.F32
	}
	if in, _ := quant.Lookup(typ); t.Dims[0]%int64(in.BlockLen) != 0 {
		return t.Type
	}
	return typ
}

// sameFile tells whether both paths are of one file that exists.
func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
