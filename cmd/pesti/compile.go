package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/frontend/tokenizer"
)

func (a *app) compile() *cobra.Command {
	var out string
	var whole bool
	var flags *compileFlags
	cmd := a.verb("compile MODEL -o FILE.plan", "Compile a model to a plan",
		`  pesti compile model.gguf -o model.plan --ctx 4096
  pesti compile model.gguf -o model.plan --explain --dump passes`,
		arity{1, 1, "MODEL"}, a.interruptible(func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usagef("pesti compile: expected -o FILE.plan, the file to write")
			}
			return a.compileTo(cmd.Context(), out, args[0], whole, flags)
		}))
	cmd.Long = cmd.Short + `.

A plan for dump shows what comes out of each block: it needs --values 'blk.*.out'.
Of the lowering passes, which run for each program of the plan, --explain tells what they did for
the largest. Equal layers are one line, in which N stands for the layer.`
	cmd.Flags().StringVarP(&out, "output", "o", "", "the plan `FILE` to write; - is standard output")
	cmd.Flags().BoolVar(&whole, "hash", false, "read all weights of a file above 1 GiB for the plan's digest, not only samples")
	flags = addCompileFlags(cmd, "fast")
	return cmd
}

// wholeDigest is the size up to which compile reads all weights: about a second.
const wholeDigest = 1 << 30

// compileTo compiles the model called name and writes the plan to path, with a digest of all
// weights if whole.
func (a *app) compileTo(ctx context.Context, path, name string, whole bool, flags *compileFlags) error {
	o, err := flags.options(a)
	if err != nil {
		return err
	}
	f, err := a.openModel(name)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := frontend.Load(f)
	if err != nil {
		return err
	}
	a.warn(m.Warnings)
	if _, err := tokenizer.FromGGUF(f); err != nil { // the plan can still run on ids
		a.warn([]string{err.Error() + "; run and tokenize will refuse this model"})
	}
	if o.File, err = modelPath(path, name); err != nil {
		return err
	}

	// Reading all weights takes longer than compiling.
	type digest struct {
		text string
		err  error
	}
	data := make(chan digest, 1)
	go func() {
		text, err := digestWeights(f, whole || f.Size <= wholeDigest)
		data <- digest{text, err}
	}()
	res, err := flags.compile(a, m, o)
	a.progress("reading the weights of %s", name)
	d := <-data // before f is closed
	a.progress("")
	if err != nil {
		return err
	}
	if d.err != nil {
		return d.err
	}
	p := res.Plan
	p.Model.Data = d.text
	err = a.output(ctx, path, func(w io.Writer) error {
		_, err := w.Write(plan.Print(p))
		return err
	})
	if err != nil {
		return err
	}
	steps, memory := 0, p.Memory
	for _, g := range plan.Summarise(p).Programs {
		steps += g.Steps
	}
	fmt.Fprintf(a.stderr, "%s: %d programs, %d steps, arena %s (bound %s), state %s\n",
		path, len(p.Programs), steps, plan.HumanBytes(memory.Arena), plan.HumanBytes(memory.ArenaLowerBound), plan.HumanBytes(memory.State))
	return nil
}
