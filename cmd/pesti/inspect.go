package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"pesti/exec/plan"
	"pesti/frontend/inspect"
	"pesti/gguf"
	"pesti/gguf/dense"
)

func (a *app) inspect() *cobra.Command {
	var tensors, check, memory, asJSON bool
	var extract, out string
	flags := newCompileFlags("")
	cmd := a.verb("inspect MODEL", "List what a model file holds, check it, extract a tensor, or show the memory that it needs",
		`  pesti inspect model.gguf --tensors
  pesti inspect model.gguf --check
  pesti inspect model.gguf --memory --ctx 2048`,
		arity{1, 1, "MODEL"}, a.interruptible(func(cmd *cobra.Command, args []string) error {
			switch {
			case (extract == "") != (out == ""):
				return usagef("expected --extract TENSOR and -o FILE.npy together")
			case extract != "" && (tensors || check || asJSON), check && (tensors || asJSON),
				memory && (extract != "" || check || tensors):
				return usagef("found more than one of --extract, --check, --memory and a listing (--tensors, --json), expected one")
			case memory:
				return a.inspectMemory(args[0], flags, asJSON)
			}
			if name := flags.changed(memoryFlags); name != "" {
				return usagef("found --%s without --memory, expected both", name)
			}
			if err := a.binaryTo(out); err != nil {
				return err
			}
			f, err := a.openModel(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			switch {
			case extract != "":
				a.progress("writing %s", out)
				return a.extractTensor(cmd.Context(), f, extract, out)
			case check:
				return a.checkFile(f)
			}
			d := inspect.Describe(f)
			if !tensors {
				d.Tensors = nil
			}
			if asJSON {
				return a.printJSON(d)
			}
			return printFile(a.stdout, d)
		}))
	cmd.Flags().BoolVar(&tensors, "tensors", false, "list all tensors")
	cmd.Flags().BoolVar(&check, "check", false, "read all tensors and report values that cannot be right, such as NaN")
	cmd.Flags().StringVar(&extract, "extract", "", "name of the `TENSOR` to write to -o as float32")
	cmd.Flags().StringVarP(&out, "output", "o", "", "the .npy `FILE` to write; - is standard output")
	cmd.Flags().BoolVar(&memory, "memory", false, "print the memory that the model needs for each context length")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	for _, name := range memoryFlags {
		cmd.Flags().AddFlag(flags.set.Lookup(name))
	}
	cmd.Long = cmd.Short + ".\n\n" + memoryHelp
	return cmd
}

func (a *app) extractTensor(ctx context.Context, f *gguf.File, name, path string) error {
	t, err := dense.Read(f, name)
	if err != nil {
		return err
	}
	return a.output(ctx, path, t.WriteNpy)
}

// printFile prints a description as text: the tensors if it has them, otherwise the metadata.
func printFile(w io.Writer, d *inspect.Description) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	arch := cmp.Or(oneLine(d.Architecture), "unknown")
	if !d.Supported {
		arch += " (not supported)"
	}
	fmt.Fprintf(t, "file\t%s, GGUF version %d, %s\n", oneLine(d.File), d.Version, plan.HumanBytes(d.Size))
	fmt.Fprintf(t, "architecture\t%s\n", arch)
	fmt.Fprintf(t, "name\t%s\n", cmp.Or(oneLine(d.Name), "none"))
	fmt.Fprintf(t, "keys\t%d\n", d.KeyCount)
	fmt.Fprintf(t, "tensors\t%d with %.1f million parameters\n", d.TensorCount, float64(d.Parameters)/1e6)
	for _, c := range d.Types {
		fmt.Fprintf(t, "\t%d %s, %s\n", c.Tensors, c.Type, plan.HumanBytes(c.Bytes))
	}
	t.Flush()
	if d.Tensors != nil {
		fmt.Fprintf(t, "\ntensor\ttype\tdims\tbytes\n")
		for _, x := range d.Tensors {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\n", oneLine(x.Name), x.Type, dimsText(x.Dims), x.Bytes)
		}
		return t.Flush()
	}
	fmt.Fprintf(t, "\nkey\ttype\tvalue\n")
	for _, k := range d.Metadata {
		fmt.Fprintf(t, "%s\t%s\t%s\n", oneLine(k.Key), k.Type, oneLine(k.Text))
	}
	return t.Flush()
}

// dimsText returns "[896, 151936]".
func dimsText(dims []int64) string {
	return strings.ReplaceAll(fmt.Sprint(dims), " ", ", ")
}

// checkFile prints a line for each fault of a file, and returns an error if there is one.
func (a *app) checkFile(f *gguf.File) error {
	a.progress("reading the weights of %s", f.Path)
	found, warnings := inspect.Check(f)
	a.progress("")
	a.warn(warnings)
	a.loaded()
	lines := found
	if len(found) == 0 {
		lines = []string{f.Path + ": ok"}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(a.stdout, oneLine(line)); err != nil {
			return err
		}
	}
	switch len(found) {
	case 0:
		return nil
	case 1:
		return errors.New(f.Path + ": 1 finding")
	}
	return fmt.Errorf("%s: %d findings", f.Path, len(found))
}
