package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/frontend/tokenizer"
	"pesti/gguf"
	"pesti/gguf/dense"
	"pesti/gguf/quant"
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
			case asJSON:
				return a.printJSON(describe(f, tensors))
			}
			return printFile(a.stdout, describe(f, tensors))
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

// A fileReport is the result of inspect, as --json prints it.
type fileReport struct {
	File         string         `json:"file"`
	Size         int64          `json:"size"` // bytes, of all shards
	Version      uint32         `json:"version"`
	Architecture string         `json:"architecture"` // "" where the file does not say
	Supported    bool           `json:"supported"`    // the architecture has a front end
	Name         string         `json:"name"`
	Parameters   int64          `json:"parameters"` // elements of all tensors
	KeyCount     int            `json:"key_count"`
	TensorCount  int            `json:"tensor_count"`
	Types        []typeReport   `json:"types"` // most bytes first
	Metadata     []keyReport    `json:"metadata"`
	Tensors      []tensorReport `json:"tensors,omitempty"`
}

type typeReport struct {
	Type    string `json:"type"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// A keyReport is one key of the metadata. JSON has only the type of arrays with more than longArray
// elements, such as a vocabulary.
type keyReport struct {
	Key   string      `json:"key"`
	Type  string      `json:"type"`
	Value *gguf.Value `json:"value,omitempty"`
	text  string
}

const longArray = 256

type tensorReport struct {
	Name   string  `json:"name"`
	Type   string  `json:"type"`
	Dims   []int64 `json:"dims"` // in the file's order, contiguous first
	Bytes  int64   `json:"bytes"`
	Offset int64   `json:"offset"` // from the start of its file
	Shard  int     `json:"shard"`
}

// describe collects the report. It requires no key, so that it works for files that do not load.
func describe(f *gguf.File, tensors bool) *fileReport {
	r := &fileReport{
		File: f.Path, Size: f.Size, Version: f.Version,
		KeyCount: len(f.Keys()), TensorCount: len(f.Tensors()),
		Types: []typeReport{}, Metadata: []keyReport{},
	}
	r.Architecture, _ = f.Str("general.architecture")
	r.Name, _ = f.Str("general.name")
	r.Supported = slices.Contains(frontend.Architectures(), r.Architecture)
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		k := keyReport{Key: key, Type: v.TypeName(), text: v.String()}
		if v.Len() <= longArray {
			k.Value = &v
		}
		r.Metadata = append(r.Metadata, k)
	}
	all := f.Tensors()
	byType := map[quant.Type]*typeReport{}
	for i := range all {
		t := &all[i]
		c := byType[t.Type]
		if c == nil {
			c = &typeReport{Type: t.Type.String()}
			byType[t.Type] = c
		}
		c.Tensors++
		c.Bytes += t.Size
		r.Parameters += t.Elems()
		if tensors {
			r.Tensors = append(r.Tensors, tensorReport{t.Name, t.Type.String(), append([]int64{}, t.Dims...), t.Size, t.Offset, t.Shard})
		}
	}
	for _, c := range byType {
		r.Types = append(r.Types, *c)
	}
	slices.SortFunc(r.Types, func(x, y typeReport) int {
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.Type, y.Type))
	})
	return r
}

// printFile prints a report as text.
func printFile(w io.Writer, r *fileReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	arch := cmp.Or(oneLine(r.Architecture), "unknown")
	if !r.Supported {
		arch += " (not supported)"
	}
	fmt.Fprintf(t, "file\t%s, GGUF version %d, %s\n", oneLine(r.File), r.Version, plan.HumanBytes(r.Size))
	fmt.Fprintf(t, "architecture\t%s\n", arch)
	fmt.Fprintf(t, "name\t%s\n", cmp.Or(oneLine(r.Name), "none"))
	fmt.Fprintf(t, "keys\t%d\n", r.KeyCount)
	fmt.Fprintf(t, "tensors\t%d with %.1f million parameters\n", r.TensorCount, float64(r.Parameters)/1e6)
	for _, c := range r.Types {
		fmt.Fprintf(t, "\t%d %s, %s\n", c.Tensors, c.Type, plan.HumanBytes(c.Bytes))
	}
	t.Flush()
	if r.Tensors != nil {
		fmt.Fprintf(t, "\ntensor\ttype\tdims\tbytes\n")
		for _, x := range r.Tensors {
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\n", oneLine(x.Name), x.Type, dimsText(x.Dims), x.Bytes)
		}
		return t.Flush()
	}
	fmt.Fprintf(t, "\nkey\ttype\tvalue\n")
	for _, k := range r.Metadata {
		fmt.Fprintf(t, "%s\t%s\t%s\n", oneLine(k.Key), k.Type, oneLine(k.text))
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
	var found []string
	for _, d := range f.Check() {
		found = append(found, f.Path+": "+d.String())
	}
	a.progress("")
	// A vocabulary without tensors, or an unsupported architecture, is no fault.
	arch, err := f.Str("general.architecture")
	switch {
	case err != nil:
		found = append(found, err.Error())
	case !slices.Contains(frontend.Architectures(), arch):
		a.warn([]string{fmt.Sprintf("%s: architecture %q is not supported, so that hyper-parameters and shapes are not checked", f.Path, arch)})
	case len(f.Tensors()) > 0:
		if _, err := frontend.Load(f); err != nil {
			found = append(found, err.Error())
		}
	}
	if f.Has("tokenizer.ggml.model") {
		if _, err := tokenizer.FromGGUF(f); err != nil {
			found = append(found, err.Error())
		}
	}
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
