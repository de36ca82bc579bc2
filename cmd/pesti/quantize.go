package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"pesti/exec/plan"
	"pesti/gguf"
	"pesti/gguf/sidecar"
)

// fp8Type is what --type names.
const fp8Type = "fp8_e4m3"

func (a *app) quantize() *cobra.Command {
	var out string
	typ := choice{"", []string{fp8Type}}
	cmd := a.verb("quantize MODEL --type fp8_e4m3 -o FILE.safetensors", "Store a model's matrices in FP8, in a separate file",
		`  pesti quantize model.gguf --type fp8_e4m3 -o model.safetensors
  pesti compile model.gguf --weights model.safetensors -o model.plan`,
		arity{1, 1, "MODEL"}, func(cmd *cobra.Command, args []string) error {
			switch {
			case typ.word == "":
				return usagef("expected --type %s", fp8Type)
			case out == "":
				return usagef("expected -o FILE.safetensors, the file to write")
			}
			if err := a.binaryTo(out); err != nil {
				return err
			}
			m, err := a.loadModel(args[0]) // what cannot be compiled needs no such file
			if err != nil {
				return err
			}
			defer m.File.Close()
			return a.quantizeTo(cmd.Context(), m.File, out)
		})
	cmd.Long = cmd.Short + `.

GGUF files cannot hold FP8, so that what needs it takes the model and the file: --weights of compile,
and of the verbs that compile. The file has each matrix that products read as a tensor F8_E4M3 under
its name, and the scales of its rows as a tensor F32 under that name and .scale; it is for this one
model, whose digests it keeps. All else, such as norms, is read from the model.

Weights that are quantized already lose once more.`
	cmd.Flags().Var(&typ, "type", "how to store the matrices")
	cmd.Flags().StringVarP(&out, "output", "o", "", "the `FILE` to write; - is standard output")
	return cmd
}

// quantizeTo writes the matrices of f to the file called out.
func (a *app) quantizeTo(ctx context.Context, f *gguf.File, out string) error {
	a.progress("reading the weights of %s", f.Path)
	w, err := sidecar.Writer(f)
	a.progress("")
	if err != nil {
		return err
	}
	if err := a.output(ctx, out, func(to io.Writer) error { return w.Write(to) }); err != nil {
		return err
	}
	size, err := w.Size()
	if err != nil {
		return about(out, err)
	}
	a.loaded()
	a.say("%s: %d matrices in %s, %s, from %s", out, len(sidecar.Matrices(f)), strings.ToUpper(fp8Type), plan.HumanBytes(size), plan.HumanBytes(f.Size))
	return nil
}
