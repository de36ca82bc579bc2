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
	"pesti/lower"
)

// storedTypes are the types that convert writes, with their values of the key general.file_type: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#general-metadata.
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

func (a *app) convert() *cobra.Command {
	o := convertOptions{tensors: count{0, 1}}
	for _, s := range storedTypes {
		o.typ.allowed = append(o.typ.allowed, strings.ToLower(s.typ.String()))
	}
	cmd := a.verb("convert MODEL [--type TYPE] -o FILE.gguf", "Store a model with weights of another type, or in several files",
		`  pesti convert model.gguf --type f32 -o model-f32.gguf
  pesti convert model.gguf --split-max-size 2G -o model.gguf`,
		arity{1, 1, "MODEL"}, func(cmd *cobra.Command, args []string) error {
			switch {
			case o.typ.word == "" && !o.split():
				return usagef("expected --type, one of %s, or a limit of --split-max-size or --split-max-tensors", strings.Join(o.typ.allowed, ", "))
			case o.out == "":
				return usagef("expected -o FILE.gguf, the file to write")
			case o.split() && o.out == standardStream:
				return usagef("-o %s is standard output, which takes no more than one file; expected -o FILE.gguf", standardStream)
			}
			if err := a.binaryTo(o.out); err != nil {
				return err
			}
			f, err := a.openModel(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			return a.convertTo(cmd.Context(), f, &o)
		})
	cmd.Long = cmd.Short + `.

With --type, matrices get that type, and vectors such as norms and biases become F32. Tensors of integers
keep their type, and so does a matrix whose row length is no multiple of the type's block. All metadata is
copied, except the keys that state the types of weights. Quantizing weights that are quantized already adds
a second error; --type f32 keeps their values exactly. Without --type all tensors keep their types.

With --split-max-size or --split-max-tensors the model is split: -o FILE.gguf writes
FILE-00001-of-0000N.gguf and so on, and each of them opens as the whole model. Without a limit, a split
model becomes one file.`
	cmd.Flags().Var(&o.typ, "type", "type of the weights")
	cmd.Flags().Var(&o.size, "split-max-size", "maximum size of a file, in millions or billions of bytes, such as 500M or 2G")
	cmd.Flags().Var(&o.tensors, "split-max-tensors", "maximum number of tensors in a file")
	for _, name := range []string{"split-max-size", "split-max-tensors"} {
		cmd.Flags().Lookup(name).DefValue = "" // help must not show the default 0, which means no limit
	}
	cmd.Flags().StringVarP(&o.out, "output", "o", "", "the model `FILE` to write; - is standard output")
	return cmd
}

// convertOptions are the flags of convert.
type convertOptions struct {
	typ     choice
	out     string
	size    byteCount
	tensors count
}

// split reports whether the options split the model.
func (o *convertOptions) split() bool { return o.size.n > 0 || o.tensors.n > 0 }

// convertTo writes f with the options o.
func (a *app) convertTo(ctx context.Context, f *gguf.File, o *convertOptions) error {
	w := gguf.NewWriter()
	for _, key := range f.Keys() {
		if !strings.HasPrefix(key, "split.") {
			v, _ := f.Value(key)
			w.Set(key, v)
		}
	}
	as := func(t *gguf.Tensor) (quant.Type, string) { return t.Type, "" }
	what := fmt.Sprintf("%d tensors", len(f.Tensors()))
	if row := slices.Index(o.typ.allowed, o.typ.word); row >= 0 {
		w.SetUint32("general.file_type", storedTypes[row].fileType)
		w.SetUint32("general.quantization_version", quantizationVersion)
		as = func(t *gguf.Tensor) (quant.Type, string) { return storedAs(t, storedTypes[row].typ) }
		what = countStored(f.Tensors(), storedTypes[row].typ)
	}
	if err := a.addTensors(w, f, as); err != nil {
		return err
	}
	paths, err := a.writeModel(ctx, w, o, f.Paths())
	if err != nil {
		return err
	}
	files := ""
	if len(paths) > 1 {
		files = fmt.Sprintf(" and %d more files", len(paths)-1)
	}
	var size int64
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
	}
	a.loaded()
	if size > 0 { // the size of a pipe is 0
		what += ", " + plan.HumanBytes(size)
	}
	a.say("%s%s: %s, from %s", paths[0], files, what, plan.HumanBytes(f.Size))
	return nil
}

// countStored returns a text with the number of matrices and the number that typ can store.
func countStored(tensors []gguf.Tensor, typ quant.Type) string {
	matrices, stored := 0, 0
	for i := range tensors {
		t := &tensors[i]
		if len(t.Dims) < 2 || t.Type.Integer() {
			continue
		}
		matrices++
		if as, _ := storedAs(t, typ); as == typ {
			stored++
		}
	}
	return fmt.Sprintf("%d of %d matrices are %s now", stored, matrices, typ)
}

// addTensors adds the tensors of f to w, each with the type that as returns. It warns if as returns
// a reason, once for all layers with the same reason.
func (a *app) addTensors(w *gguf.Writer, f *gguf.File, as func(*gguf.Tensor) (quant.Type, string)) error {
	var kept []lower.Note
	tensors := f.Tensors()
	for i := range tensors {
		t := &tensors[i]
		typ, why := as(t)
		if why != "" {
			kept = append(kept, lower.Note{Place: t.Name, Why: fmt.Sprintf("stays %s: %s", typ, why)})
		}
		if err := w.AddConverted(f, t, typ); err != nil {
			return err
		}
	}
	for _, l := range alikeNotes(kept, "") {
		layers := ""
		if len(l.layers) > 1 {
			layers = fmt.Sprintf(", %d layers,", len(l.layers))
		}
		a.warn([]string{fmt.Sprintf("%s: tensor %s%s %s", f.Path, l.Place, layers, l.Why)})
	}
	return nil
}

// writeModel writes w to the file that o names, or to several files, and returns their paths. No
// file of the model may be overwritten.
func (a *app) writeModel(ctx context.Context, w *gguf.Writer, o *convertOptions, model []string) (paths []string, err error) {
	paths = []string{o.out}
	limit := gguf.SplitLimit{Tensors: int(o.tensors.n), Bytes: o.size.n}
	prefix := strings.TrimSuffix(o.out, ".gguf")
	if o.split() {
		shards, err := w.Shards(limit)
		if err != nil {
			return nil, about(o.out, err)
		}
		paths = nil
		for i := range shards {
			paths = append(paths, gguf.ShardPath(prefix, i, len(shards)))
		}
	}
	for _, path := range paths {
		if slices.ContainsFunc(model, func(shard string) bool { return sameFile(shard, path) }) {
			return nil, usagef("-o %s: %s is the model itself, expected another file", o.out, path)
		}
	}
	if o.split() {
		return w.WriteSplit(ctx, prefix, limit)
	}
	return paths, a.output(ctx, o.out, w.Write)
}

// storedAs returns the type that t gets if typ is requested, and if a weight keeps its own type,
// why.
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
