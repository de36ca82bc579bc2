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

// fp8Type is the value of --type.
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
			m, err := a.loadModel(args[0]) // the file is useless for a model that cannot be compiled
			if err != nil {
				return err
			}
			defer m.File.Close()
			return a.quantizeTo(cmd.Context(), m.File, out)
		})
	cmd.Long = cmd.Short + `.

GGUF has no FP8 type, so the FP8 matrices are in a second file, which --weights of compile and run takes in
addition to the model. The second file has a tensor F8_E4M3 for each matrix of a product, under its name,
and a tensor F32 with the scales of its rows, under that name and .scale. Other tensors, such as norms, are
read from the model. The second file has digests of the model and works with no other.

Quantizing weights that are quantized already adds a second error.`
	cmd.Flags().Var(&typ, "type", "type of the matrices")
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
