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
	"github.com/spf13/pflag"

	"pesti/exec"
	"pesti/exec/bench"
	"pesti/exec/load"
	"pesti/exec/plan"
)

// benchOptions are the flags of bench, without those of compile.
type benchOptions struct {
	prompts, gens, depths []int
	repeat                count
	model, text           string
	json                  bool
	roofline              bool
	profile               *profileFlags
	drafts                *drafting
	tune                  *tuning
}

func (a *app) bench() *cobra.Command {
	o := &benchOptions{repeat: count{5, 1}}
	var flags *compileFlags
	cmd := a.verb("bench MODEL|PLAN", "Measure how fast prompts are evaluated and tokens are generated",
		`  pesti bench model.gguf -p 128,512 -n 32 -r 3
  pesti bench model.gguf -p 0 -n 32 -d 0,1024,2048
  pesti bench model.gguf -p 0 -n 32 --sequences 8 --speculate 7
  pesti bench model.gguf -p 0 -n 160 --speculate 3 --file prompt.txt
  pesti bench model.gguf -p 0 -n 32 -r 3 --roofline --profile bench.json
  pesti bench model.gguf --device virtual --profile --gpu a100`,
		arity{1, 1, "MODEL or PLAN"}, func(cmd *cobra.Command, args []string) error {
			counted := o.profile.profile.asked && flags.on.word == "virtual"
			if counted { // every run has the same counts
				o.onlyOnce(cmd.Flags())
			}
			tests, err := bench.Tests(o.prompts, o.gens, o.depths)
			if err != nil {
				return usage{err}
			}
			if len(tests) == 0 {
				return usagef("found no test, expected -p or -n above 0")
			}
			switch profiled := o.profile.profile.asked; {
			case o.text != "" && o.drafts.most.n == 0:
				return usagef("--file is the text of speculative decoding, expected --speculate too")
			case profiled && len(o.depths) > 1:
				return usagef("--profile takes one depth, found %d in --depth", len(o.depths))
			case profiled && o.json && o.profile.profile.path == "" && flags.on.word != "virtual":
				return usagef("--json prints no profile, expected --profile FILE")
			case o.roofline && flags.on.onDevice():
				return usagef("--roofline measures the processor, expected no --device")
			case counted && cmd.Flags().Changed("repeat"):
				return usagef("--repeat: each test runs once with --device virtual --profile, which measures no time; expected no --repeat")
			}
			return a.runBench(cmd.Context(), args[0], tests, o, flags)
		})
	cmd.Long = cmd.Short + `.

Tests have the names of llama-bench: pp512 evaluates a prompt of 512 tokens, tg128 generates 128 tokens.
--sequences and --speculate add a test for each tg test. "x8" decodes 8 sequences of different lengths,
one token of each in a forward pass. "draft7" is speculative decoding with drafts of up to 7 tokens, on a
text that repeats itself or on the text of --file. The runs of an added test alternate with plain decoding
of one sequence, and the result includes the speed-up.

--device virtual --profile measures no time. Each test runs once (by default with a prompt of 64 tokens and
one generated token), and the output has the work of each kernel with a lower bound of its time on --gpu.`
	f := cmd.Flags()
	f.IntSliceVarP(&o.prompts, "prompt", "p", []int{512}, "prompt length `N`, or a list of lengths with a test for each; 0 is no test")
	f.IntSliceVarP(&o.gens, "tokens", "n", []int{128}, "number `N` of tokens to generate, or a list of numbers with a test for each; 0 is no test")
	f.IntSliceVarP(&o.depths, "depth", "d", []int{0}, "number `N` of tokens in the context before a test, whose evaluation is not measured; with a list, all tests run at each depth")
	f.VarP(&o.repeat, "repeat", "r", "number of measured runs of each test, after one warm-up run")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.BoolVar(&o.roofline, "roofline", false, "measure the memory bandwidth and arithmetic of the machine between the runs, and print the fraction of both that each test reaches")
	o.drafts = addDrafting(cmd, "measure speculative decoding too, with drafts of up to `N` tokens; at most 30 (default 0, off)")
	f.StringVarP(&o.text, "file", "f", "", "`FILE` with the text that speculative decoding continues, read as bytes; - is standard input (default a text that repeats itself)")
	o.profile, o.tune = addProfileFlags(cmd), addTuneFlag(cmd)
	f.StringVar(&o.model, "model", "", "`MODEL` that a PLAN was compiled from, if it is not where the plan says")
	flags = addCompileFlags(cmd, "fast")
	flags.addDevice(cmd)
	return cmd
}

func (a *app) runBench(ctx context.Context, name string, tests []bench.Test, o *benchOptions, flags *compileFlags) error {
	s, err := a.open(name, o.model, flags)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := o.drafts.prepare(s); err != nil {
		return err
	}
	if _, err := s.compile(); err != nil {
		return err
	}
	if err := o.drafts.check(s); err != nil {
		return err
	}
	options := bench.Options{Repeat: int(o.repeat.n), Roofline: o.roofline, Progress: a.benchProgress}
	if o.text != "" {
		if options.Text, err = a.benchText(ctx, s, o.text); err != nil {
			return err
		}
	}
	tests = bench.AddPaired(tests, int(o.drafts.most.n), len(options.Text), int(s.Plan.Target.Sequences))
	for i := range tests {
		if err := s.checkLength(tests[i].Positions()); err != nil {
			return fmt.Errorf("test %s: %w", tests[i].Name, err)
		}
	}
	if err := cmp.Or(o.profile.prepare(s), o.tune.prepare(s, o.tune.load)); err != nil {
		return err
	}
	engine, err := s.startEngine()
	if err != nil {
		return err
	}
	defer engine.Close()
	b, err := bench.New(engine, options)
	if err != nil {
		return err
	}
	a.loaded()
	tests, stopped, err := b.Run(ctx, tests)
	o.tune.save(a, engine)
	interrupt := err
	if err != nil && (!errors.Is(err, context.Canceled) || len(tests) == 0 && stopped == "") {
		return err
	}
	a.progress("")
	if o.profile.counts(s) && interrupt == nil {
		return o.writeCounts(ctx, a, engine)
	}
	if err := a.printBench(tests, stopped, o.json); err != nil {
		return err
	}
	for i := range tests {
		o.profile.most.Raise(tests[i].Others)
	}
	if interrupt != nil {
		return cmp.Or(o.profile.writeStopped(ctx, a, engine), interrupt)
	}
	return o.profile.write(ctx, a, engine, o.tables(a))
}

// benchProgress shows which run of a test begins.
func (a *app) benchProgress(test string, run, of int) {
	switch {
	case of == 0:
		a.progress("%s: the only run", test)
	case run == 0:
		a.progress("%s: warm-up run", test)
	default:
		a.progress("%s: run %d of %d", test, run, of)
	}
}

// benchText returns the tokens of the text in the file at path.
func (a *app) benchText(ctx context.Context, s *source, path string) ([]int32, error) {
	text, err := a.promptFile(ctx, path)
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return nil, fmt.Errorf("%s: is empty, expected a text to continue", path)
	}
	return promptIDs(ctx, s, text)
}

// printBench prints the results. stopped names the test that an interrupt ended; it has no result.
func (a *app) printBench(tests []bench.Test, stopped string, asJSON bool) error {
	if asJSON {
		if tests == nil {
			tests = []bench.Test{} // so that JSON has a list and not null
		}
		return a.printJSON(tests)
	}
	t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	columns := ""
	if len(tests) > 0 && tests[0].Roofline != nil {
		columns = rooflineColumns
	}
	fmt.Fprintf(t, "test\ttokens/s%s\n", columns)
	for i := range tests {
		r := &tests[i]
		roof := rooflineCells(r)
		if roof == "" { // empty cells keep the columns after them in place
			roof = strings.Repeat("\t", strings.Count(columns, "\t"))
		}
		fmt.Fprintf(t, "%s\t%.2f ± %.2f%s%s\n", r.Name, r.AvgTS, r.StddevTS, roof, pairedCells(r))
	}
	if stopped != "" {
		fmt.Fprintf(t, "%s\tinterrupted\n", stopped)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range tests {
		if r := &tests[i]; r.Busy {
			if _, err := fmt.Fprintf(a.stdout, "%s: busy: other programs used %.2f processors (at most %.2f is quiet), so its speed says little; measure again when the machine is idle\n", r.Name, *r.Others, load.Quiet); err != nil {
				return err
			}
		}
	}
	for i := range tests {
		if r := tests[i].Roofline; r != nil {
			if _, err := fmt.Fprintf(a.stdout, "%s: the machine's %d workers: %s\n", tests[i].Name, r.Machine.Workers, rooflineText(r.Machine)); err != nil {
				return err
			}
		}
	}
	return nil
}

// rooflineColumns are the columns that a roofline adds to the table.
const rooflineColumns = "\tread by a token\treading allows\treached\tcomputing allows\treached"

// rooflineCells returns the cells of rooflineColumns. On a busy machine they have no shares.
func rooflineCells(t *bench.Test) string {
	r := t.Roofline
	if r == nil {
		return ""
	}
	read, compute := fmt.Sprintf("%.0f %%", 100*r.OfRead), fmt.Sprintf("%.0f %%", 100*r.OfCompute)
	if t.Busy {
		read, compute = "busy", "busy"
	}
	return fmt.Sprintf("\t%s\t%.2f\t%s\t%.2f\t%s", plan.HumanBytes(r.TokenBytes), r.ReadTS, read, r.ComputeTS, compute)
}

// pairedCells returns the ratio to plain decoding, and none on a busy machine.
func pairedCells(t *bench.Test) string {
	p := t.Paired
	if p == nil {
		return ""
	}
	ratio := fmt.Sprintf("%.2f of the %.2f", p.Ratio, p.PlainTS)
	if t.Busy {
		ratio = fmt.Sprintf("busy; %.2f tokens/s", p.PlainTS)
	}
	return fmt.Sprintf("\t%s of plain decoding%s", ratio, draftText(p.Proposed, p.Accepted))
}

// onlyOnce sets a single run for each test, and shorter default tests.
func (o *benchOptions) onlyOnce(set *pflag.FlagSet) {
	o.repeat.n = 0 // only the first run
	if !set.Changed("prompt") {
		o.prompts = []int{64}
	}
	if !set.Changed("tokens") {
		o.gens = []int{1}
	}
}

// writeCounts writes and prints the profile of a device that counts operations.
func (o *benchOptions) writeCounts(ctx context.Context, a *app, e *exec.Engine) error {
	if err := o.profile.write(ctx, a, e, o.tables(a)); err != nil || !o.json {
		return err
	}
	report, err := o.profile.countReport(e)
	if err != nil {
		return err
	}
	return a.printJSON(report)
}

// tables returns the output of tables, nil if the output is JSON.
func (o *benchOptions) tables(a *app) io.Writer {
	if o.json {
		return nil
	}
	return a.stdout
}
