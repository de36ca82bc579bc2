package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"pesti/conformance/compare"
)

func (a *app) dump() *cobra.Command {
	var dir, model string
	var prompt *promptFlags
	var flags *compileFlags
	cmd := a.verb("dump MODEL|PLAN -p TEXT -o DIR", "Write the values inside each layer for a prompt",
		`  pesti dump model.gguf -p "The quick brown fox" -o values`,
		arity{1, 1, "MODEL or PLAN"}, func(cmd *cobra.Command, args []string) error {
			if dir == "" {
				return usagef("expected -o DIR, the folder to write")
			}
			s, err := a.open(args[0], model, flags)
			if err != nil {
				return err
			}
			defer s.Close()
			ids, err := prompt.tokens(cmd.Context(), s)
			if err != nil {
				return err
			}
			return a.dumpValues(cmd.Context(), s, ids, dir)
		})
	cmd.Long = cmd.Short + `.

dump writes to DIR: tokens.npy, logits.npy, the residual stream after each block as layer_00.npy and so on,
and the values that --values names. If one file cannot be written, none is. Files of an earlier dump are
replaced. A DIR with other .npy files is refused, because they would look like values of the same tokens.`
	prompt = addPromptFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&dir, "output", "o", "", "`DIR` to write .npy files to")
	f.StringVar(&model, "model", "", "`MODEL` that a PLAN was compiled from, if it is not where the plan says")
	flags = addCompileFlags(cmd, "exact")
	flags.addDevice(cmd)
	flags.addValues(cmd, "`PATTERN` of more values to write, such as 'blk.3.*'")
	return cmd
}

// dumpValues evaluates ids and writes the values that the plan returns to the folder dir.
func (a *app) dumpValues(ctx context.Context, s *source, ids []int32, dir string) error {
	s.Options.Compile.Outputs = append(s.Options.Compile.Outputs, "blk.*.out")
	s.Options.Compile.Rows = int64(len(ids)) // the logits of all tokens
	if _, err := s.compile(); err != nil {
		return err
	}
	if err := s.checkLength(len(ids)); err != nil {
		return err
	}
	d, err := compare.NewDump(s.Plan)
	if missing := (*compare.OutputError)(nil); errors.As(err, &missing) {
		return fmt.Errorf("%s: %w; compile it with --values 'blk.*.out', or dump the model", s.name, missing)
	}
	if err != nil {
		return err
	}
	err = d.CheckFolder(dir)
	if other := (*compare.OtherFileError)(nil); errors.As(err, &other) {
		return usage{other}
	}
	if err != nil {
		return err
	}
	engine, err := s.startEngine()
	if err != nil {
		return err
	}
	defer engine.Close()
	a.loaded()
	if err := d.Evaluate(ctx, engine, ids, a.progressOf); err != nil {
		return about(s.name, err)
	}
	a.progress("")
	if err := a.writeFolder(ctx, dir, d.Files()); err != nil {
		return err
	}
	return printDump(a.stdout, d)
}

// printDump prints the last position: norm and first values of the residual stream after each
// block, and the most likely tokens.
func printDump(w io.Writer, d *compare.Dump) error {
	const shown = 8
	var b strings.Builder
	s := d.Summary(shown)
	for n, layer := range s.Layers {
		fmt.Fprintf(&b, "layer %02d norm %.4f first%d", n, layer.Norm, shown)
		for _, x := range layer.First {
			fmt.Fprintf(&b, " %.4f", x)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "top%d", shown)
	for _, t := range s.Top {
		fmt.Fprintf(&b, " %d:%.4f", t.ID, t.Logit)
	}
	fmt.Fprintf(&b, "\nargmax %d\n", s.Top[0].ID)
	_, err := io.WriteString(w, b.String())
	return err
}
