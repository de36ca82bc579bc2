package main

import (
	"context"
	"io"
	"os"
	"runtime/debug"
	"runtime/metrics"

	"github.com/spf13/cobra"

	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/frontend/tokenizer"
	"pesti/lower"
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
	defer collectLess()()
	options, err := o.flags.options(a)
	if err != nil {
		return err
	}
	options.Verify = o.verify
	m, err := a.loadModel(name)
	if err != nil {
		return err
	}
	f := m.File
	defer f.Close()
	if options.File, err = modelPath(o.out, name); err != nil {
		return err
	}
	if options.Sidecar, err = o.flags.sidecar(a, f); err != nil {
		return err
	}
	if options.Sidecar != nil {
		defer options.Sidecar.Close()
		if options.SidecarFile, err = pathFrom(o.out, o.flags.weights); err != nil {
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
		text, err := digestWeights(f, o.hash || f.Size <= wholeDigest)
		data <- digest{text, err}
	}()
	noTokenizer := make(chan error, 1)
	go func() {
		_, err := tokenizer.FromGGUF(f)
		noTokenizer <- err
	}()
	res, err := a.compileStages(ctx, m, options, o)
	a.progress("reading the weights of %s", name)
	d, unread := <-data, <-noTokenizer // wait for both before f is closed
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
	if s := options.Sidecar; s != nil {
		if p.Sidecar.WeightsDigest, err = digestSidecar(s, d.text); err != nil {
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

// collectLess makes garbage collections rarer until restore is called. Compiling 126 layers allocates 80 MB
// in a fraction of a second, and collecting it took a third of the processor time. It changes nothing if GOGC
// is set or the percentage is not Go's default.
func collectLess() (restore func()) {
	const usual, percent = 100, 400
	if os.Getenv("GOGC") != "" || gcPercent() != usual {
		return func() {}
	}
	before := debug.SetGCPercent(percent)
	return func() { debug.SetGCPercent(before) }
}

// gcPercent returns the percentage of debug.SetGCPercent without changing it.
func gcPercent() uint64 {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// compileStages compiles m, with the reports that --dump and --explain ask for.
func (a *app) compileStages(ctx context.Context, m *frontend.Model, options lower.Options, o *compileOptions) (*lower.Result, error) {
	var d *stageDump
	if o.dump != "" {
		var err error
		if d, err = a.newStageDump(ctx, o.dump); err != nil {
			return nil, err
		}
		options.Dump = d.stage
	}
	res, err := lower.Compile(m, options)
	if err != nil {
		return nil, about(m.File.Path, err)
	}
	if o.explain {
		explain(a.stderr, res, options.Passes)
	}
	if d != nil {
		err = d.page(res.Plan)
	}
	return res, err
}
