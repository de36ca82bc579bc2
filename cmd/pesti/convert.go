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
	"pesti/gguf/convert"
)

func (a *app) convert() *cobra.Command {
	o := convertOptions{tensors: count{0, 1}}
	for _, typ := range convert.Types() {
		o.typ.allowed = append(o.typ.allowed, strings.ToLower(typ.String()))
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
	what, err := a.fill(w, f, o)
	if err != nil {
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

// fill adds the contents of f to w and returns a text that describes them. It warns of matrices that keep their
// type, once for all layers with the same reason.
func (a *app) fill(w *gguf.Writer, f *gguf.File, o *convertOptions) (what string, err error) {
	row := slices.Index(o.typ.allowed, o.typ.word)
	if row < 0 {
		return fmt.Sprintf("%d tensors", len(f.Tensors())), convert.Copy(w, f)
	}
	typ := convert.Types()[row]
	r, err := convert.To(w, f, typ)
	if err != nil {
		return "", err
	}
	for i := range r.Kept {
		k, layers := &r.Kept[i], ""
		if len(k.Layers) > 1 {
			layers = fmt.Sprintf(", %d layers,", len(k.Layers))
		}
		a.warn([]string{fmt.Sprintf("%s: tensor %s%s stays %s: %s", f.Path, k.Elem.Tensor, layers, k.Elem.Type, k.Elem.Why)})
	}
	return fmt.Sprintf("%d of %d matrices are %s now", r.Stored, r.Matrices, typ), nil
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
