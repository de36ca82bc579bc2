package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	lib "pesti"
	"pesti/exec/plan"
)

// compileOptions are the flags of compile alone; other verbs that compile share compileFlags.
type compileOptions struct {
	out, dump             string
	hash, verify, explain bool
	flags                 *compileFlags
}

func (a *app) compile() *cobra.Command {
	o := &compileOptions{}
	cmd := a.verb("compile MODEL -o FILE.plan", "Compile a model to a plan",
		`  pesti compile model.gguf -o model.plan --ctx 4096
  pesti compile model.gguf -o model.plan --explain --dump passes`,
		arity{1, 1, "MODEL"}, a.interruptible(func(cmd *cobra.Command, args []string) error {
			if o.out == "" {
				return usagef("expected -o FILE.plan, the file to write")
			}
			return a.compileTo(cmd.Context(), args[0], o)
		}))
	cmd.Long = cmd.Short + `.

A plan for dump must return the residual stream after each block: compile it with --values 'blk.*.out'.

The lowering passes run for each program of the plan. --explain prints what they did for the largest one, in
one line for all layers that are equal; N in it stands for the layer.`
	f := cmd.Flags()
	f.StringVarP(&o.out, "output", "o", "", "the plan `FILE` to write; - is standard output")
	f.BoolVar(&o.hash, "hash", false, "compute the plan's digest from all weights; by default a file above 1 GiB is sampled")
	f.BoolVar(&o.verify, "verify", false, "verify the graph after every pass")
	f.BoolVar(&o.explain, "explain", false, "print on standard error where each pass applied, and where and why it declined")
	f.StringVar(&o.dump, "dump", "", "`DIR` to write the graph to as text after each pass that changed it, with a page index.html that shows them side by side")
	o.flags = addCompileFlags(cmd, "fast")
	o.flags.addValues(cmd, "`PATTERN` of values that the plan returns, for dump, such as 'blk.3.*'")
	return cmd
}

// wholeDigest is the size of a file up to which the digest reads all weights, in about a second.
const wholeDigest = 1 << 30

// compileTo compiles the model called name and writes the plan, with a digest of the weights.
func (a *app) compileTo(ctx context.Context, name string, o *compileOptions) error {
	lo := lib.Options{Weights: o.flags.weights}
	var err error
	if lo.Compile, err = o.flags.options(a); err != nil {
		return err
	}
	lo.Compile.Verify = o.verify
	s, err := a.openSource(name, lo)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Load(); err != nil {
		return err
	}
	if s.Options.Compile.File, err = modelPath(o.out, name); err != nil {
		return err
	}
	if s.Weights != nil {
		if s.Options.Compile.SidecarFile, err = pathFrom(o.out, s.Weights.Path); err != nil {
			return err
		}
	}

	// Reading all weights takes longer than compiling.
	type digest struct {
		text string
		err  error
	}
	data := make(chan digest, 1)
	go func() {
		text, err := s.File.WeightsDigest(!o.hash && s.File.Size > wholeDigest)
		data <- digest{text, err}
	}()
	s.LoadTokenizer()
	res, err := a.compileStages(ctx, s, o)
	a.progress("reading the weights of %s", name)
	d := <-data // wait for it before the file is closed
	_, unread := s.Tokenizer()
	a.progress("")
	if unread != nil { // the plan can still run on ids
		a.warn([]string{unread.Error() + "; run and tokenize will refuse this model"})
	}
	if err != nil {
		return err
	}
	if d.err != nil {
		return d.err
	}
	p := res.Plan
	p.Model.WeightsDigest = d.text
	if s.Weights != nil {
		if p.Sidecar.WeightsDigest, err = s.Weights.WeightsDigest(d.text); err != nil {
			return err
		}
	}
	err = a.output(ctx, o.out, func(w io.Writer) error {
		_, err := w.Write(plan.Print(p))
		return err
	})
	if err != nil {
		return err
	}
	steps, memory := 0, p.Memory
	for _, g := range plan.Summarize(p).Programs {
		steps += g.Steps
	}
	a.loaded()
	a.sayFallbacks(res)
	a.say("%s: %d programs, %d steps, arena %s (bound %s), KV cache %s",
		o.out, len(p.Programs), steps, plan.HumanBytes(memory.Arena), plan.HumanBytes(memory.ArenaLowerBound), plan.HumanBytes(memory.State))
	return nil
}

// compileStages compiles the model of s, with the reports that --dump and --explain ask for.
func (a *app) compileStages(ctx context.Context, s *lib.Source, o *compileOptions) (*lib.Compiled, error) {
	var d *stageDump
	if o.dump != "" {
		var err error
		if d, err = a.newStageDump(ctx, o.dump); err != nil {
			return nil, err
		}
		s.Options.Compile.Dump = d.stage
	}
	res, err := compileSource(s)
	if err != nil {
		return nil, err
	}
	if o.explain {
		explain(a.stderr, res)
	}
	if d != nil {
		err = d.page(res.Plan)
	}
	return res, err
}
