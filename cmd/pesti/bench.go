package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pesti/exec"
	"pesti/exec/cpu"
)

// benchOptions are the flags of bench, besides those of compile.
type benchOptions struct {
	prompts, gens, depths []int
	repeat                count
	model, text           string
	json                  bool
	roofline              bool
	profile               *profileFlags
	guess                 *guessing
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
			if counted { // the same each time
				o.onlyOnce(cmd.Flags())
			}
			tests, err := benchTests(o)
			if err != nil {
				return err
			}
			switch profiled := o.profile.profile.asked; {
			case o.text != "" && o.guess.most.n == 0:
				return usagef("--file is for tests with guesses, expected --speculate too")
			case profiled && len(o.depths) > 1:
				return usagef("--profile is of runs that are alike, found %d depths, expected one", len(o.depths))
			case profiled && o.json && o.profile.profile.path == "" && flags.on.word != "virtual":
				return usagef("--json prints no profile, expected --profile FILE")
			case o.roofline && flags.on.onDevice():
				return usagef("--roofline measures the processor, expected no --device")
			case counted && cmd.Flags().Changed("repeat"):
				return usagef("--repeat is for what is measured, and the virtual device has no time: each test runs once")
			}
			return a.runBench(cmd.Context(), args[0], tests, o, flags)
		})
	cmd.Long = cmd.Short + `.

With --sequences and --speculate each test that generates has others behind it: so many sequences of
different lengths, a token of each in a step, as "x8"; and a text that repeats itself, or that in --file,
with guesses, as "guess7". By turns with these the same is measured one token of one sequence a step, and
told as ratio.

With --device virtual --profile nothing is measured: each test runs once, by default a chunk of 64 tokens
and one token, and what is printed is what kernels did and how long --gpu would take at least.`
	f := cmd.Flags()
	f.IntSliceVarP(&o.prompts, "prompt", "p", []int{512}, "`N` tokens of prompt, one test for each of a list; 0 is none")
	f.IntSliceVarP(&o.gens, "tokens", "n", []int{128}, "`N` tokens to generate, one test for each of a list; 0 is none")
	f.IntSliceVarP(&o.depths, "depth", "d", []int{0}, "`N` tokens that each test finds in the context, evaluated before it and not measured; all tests for each of a list")
	f.VarP(&o.repeat, "repeat", "r", "how often each test is measured, after one run to warm up")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.BoolVar(&o.roofline, "roofline", false, "measure by turns what the machine can do, and say how much of that each test reaches")
	o.guess = addGuessing(cmd, "measure too what it brings to guess up to `N` tokens of a text that repeats itself; at most 30 (default 0, off)")
	f.StringVarP(&o.text, "file", "f", "", "`FILE` with the text that is continued with guesses, taken byte for byte; - is standard input (default one that repeats itself)")
	o.profile = addProfileFlags(cmd)
	f.StringVar(&o.model, "model", "", "`MODEL` of a PLAN, where it is not where the plan says")
	flags = addCompileFlags(cmd, "fast")
	flags.addDevice(cmd)
	return cmd
}

// A benchResult is one test and what was measured, in tokens per second. Its keys in JSON are those
// of llama-bench.
type benchResult struct {
	Test      string    `json:"test"`
	NPrompt   int       `json:"n_prompt"`
	NGen      int       `json:"n_gen"`
	NDepth    int       `json:"n_depth"` // tokens in the context before
	AvgTS     float64   `json:"avg_ts"`
	StddevTS  float64   `json:"stddev_ts"`
	SamplesTS []float64 `json:"samples_ts"` // each time that it was measured

	Guesses   int    `json:"guesses,omitempty"`   // most of a step
	Sequences int    `json:"sequences,omitempty"` // a token of each in a step, where there are several
	Turns     *turns `json:"turns,omitempty"`

	Roofline *rooflineResult `json:"roofline,omitempty"`
}

// tokens returns how many tokens the test evaluates.
func (r *benchResult) tokens() int { return r.NPrompt + r.NGen*max(r.Sequences, 1) }

func benchTests(o *benchOptions) ([]benchResult, error) {
	tests := []benchResult{}
	for _, depth := range o.depths {
		at := ""
		if depth != 0 {
			at = fmt.Sprintf(" @ d%d", depth)
		}
		for _, n := range o.prompts {
			if n != 0 {
				tests = append(tests, benchResult{Test: fmt.Sprintf("pp%d%s", n, at), NPrompt: n, NDepth: depth})
			}
		}
		for _, n := range o.gens {
			if n != 0 {
				tests = append(tests, benchResult{Test: fmt.Sprintf("tg%d%s", n, at), NGen: n, NDepth: depth})
			}
		}
	}
	for _, t := range tests {
		if min(t.NPrompt, t.NGen, t.NDepth) < 0 {
			return nil, usagef("test %s: expected a number of tokens that is not negative", t.Test)
		}
	}
	if len(tests) == 0 {
		return nil, usagef("found no test, expected -p or -n above 0")
	}
	return tests, nil
}

func (a *app) runBench(ctx context.Context, name string, tests []benchResult, o *benchOptions, flags *compileFlags) error {
	s, err := a.open(ctx, name, o.model, flags)
	if err != nil {
		return err
	}
	defer s.release()
	if err := o.guess.prepare(s); err != nil {
		return err
	}
	if _, err := s.compile(); err != nil {
		return err
	}
	if err := o.guess.check(s); err != nil {
		return err
	}
	b := &bencher{guess: o.guess}
	if o.text != "" {
		text, err := a.promptFile(o.text)
		if err != nil {
			return err
		}
		if len(text) == 0 {
			return fmt.Errorf("%s: is empty, expected a text to continue", o.text)
		}
		if b.text, err = promptIDs(s, text); err != nil {
			return err
		}
	}
	tests = b.withTurns(tests, int(s.plan.Target.Sequences))
	for i := range tests {
		if err := s.checkLength(tests[i].positions()); err != nil {
			return fmt.Errorf("test %s: %w", tests[i].Test, err)
		}
	}
	if err := o.profile.prepare(s); err != nil {
		return err
	}
	engine, err := s.start(ctx)
	if err != nil {
		return err
	}
	defer engine.Close()
	counts := o.profile.counts(s)
	b.engine = engine
	for range s.plan.Target.Sequences {
		session, err := exec.NewSession(engine)
		if err != nil {
			return err
		}
		b.sessions = append(b.sessions, session)
	}
	a.loaded()
	logits, err := b.sessions[0].Feed([]int32{0})
	if err != nil {
		return err
	}
	b.vocab = len(logits)
	b.sessions[0].Reset()
	engine.ResetProfile() // the first run waits for the file
	engine.PauseProfile(true)
	var interrupt error
	stopped := "" // the test of which an interrupt left nothing
	for i := range tests {
		var roof *testRoof
		if o.roofline && !tests[i].byTurns() {
			if roof, err = newTestRoof(engine, &tests[i]); err != nil {
				return err
			}
		}
		speeds, err := a.measure(ctx, b, &tests[i], o.repeat.n, roof)
		if result, err := roof.result(tests[i].tokens(), speeds); err != nil {
			return err
		} else {
			tests[i].Roofline = result
		}
		tests[i].SamplesTS = speeds
		if tests[i].AvgTS, tests[i].StddevTS = meanAndDeviation(speeds); err == nil {
			continue
		}
		if !errors.Is(err, context.Canceled) {
			return err
		}
		if interrupt = err; len(speeds) > 0 {
			i++
		} else {
			stopped = tests[i].Test
		}
		tests = tests[:i] // what was measured up to here is told
		break
	}
	a.progress("")
	if counts && interrupt == nil {
		return o.writeCounts(ctx, a, engine)
	}
	if err := a.printBench(tests, stopped, o.json); err != nil {
		return err
	}
	if interrupt != nil {
		o.profile.notWritten(a)
		return interrupt
	}
	return o.profile.write(ctx, a, engine, o.tables(a))
}

func (a *app) printBench(tests []benchResult, stopped string, asJSON bool) error {
	if asJSON {
		return a.printJSON(tests)
	}
	t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	columns := ""
	if len(tests) > 0 && tests[0].Roofline != nil {
		columns = rooflineColumns
	}
	fmt.Fprintf(t, "test\ttokens/s%s\n", columns)
	for _, r := range tests {
		roof := r.Roofline.cells()
		if roof == "" { // its cells stay empty, for what follows
			roof = strings.Repeat("\t", strings.Count(columns, "\t"))
		}
		fmt.Fprintf(t, "%s\t%.2f ± %.2f%s%s\n", r.Test, r.AvgTS, r.StddevTS, roof, r.Turns.cells())
	}
	if stopped != "" {
		fmt.Fprintf(t, "%s\tinterrupted\n", stopped)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return printRoofs(a.stdout, tests)
}

// onlyOnce has each test run once, and those that nobody asked for be short.
func (o *benchOptions) onlyOnce(set *pflag.FlagSet) {
	o.repeat.n = 0 // beside the run to warm up
	if !set.Changed("prompt") {
		o.prompts = []int{64}
	}
	if !set.Changed("tokens") {
		o.gens = []int{1}
	}
}

// writeCounts writes and prints the profile of a device that counts.
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

// tables returns where a table is printed: nowhere beside JSON.
func (o *benchOptions) tables(a *app) io.Writer {
	if o.json {
		return nil
	}
	return a.stdout
}

// measure returns the speeds of a test, after one run to warm up; of an interrupted one, those of
// the runs before.
func (a *app) measure(ctx context.Context, b *bencher, test *benchResult, repeat int64, roof *testRoof) (speeds []float64, err error) {
	var plain, ratios []float64
	if test.byTurns() {
		test.Turns = &turns{}
		defer func() { test.Turns.PlainTS, test.Turns.Ratio = cpu.Median(plain), cpu.Median(ratios) }()
	}
	for r := range repeat + 1 {
		switch {
		case repeat == 0:
			a.progress("%s: the only run", test.Test)
		case r == 0:
			a.progress("%s: a run to warm up", test.Test)
		default:
			a.progress("%s: run %d of %d", test.Test, r, repeat)
		}
		if err := roof.sample(); err != nil {
			return speeds, err
		}
		b.profiled = r > 0 || repeat == 0
		seconds, err := b.clock(ctx, test)
		b.profiled = false
		if err != nil {
			return speeds, err
		}
		speed := float64(test.tokens()) / max(seconds, 1e-9)
		if r > 0 {
			speeds = append(speeds, speed)
		}
		if !test.byTurns() {
			continue
		}
		if seconds, err = b.clockPlain(ctx, test); err != nil {
			return speeds, err
		}
		if r > 0 {
			plain = append(plain, float64(test.NGen)/max(seconds, 1e-9))
			ratios = append(ratios, speed/plain[len(plain)-1])
		}
	}
	return speeds, nil
}

// clockOne returns how long a plain test takes once its depth is reached.
func (b *bencher) clockOne(ctx context.Context, t *benchResult) (seconds float64, err error) {
	session := b.sessions[0]
	ids := randomIDs(t.NDepth+t.tokens(), b.vocab)
	if err := seek(session, ids[:t.NDepth]); err != nil {
		return 0, err
	}
	ids = ids[t.NDepth:]
	step := len(ids)
	if t.NGen > 0 {
		step = 1
	}
	return b.timed(func() error {
		for ; len(ids) > 0; ids = ids[step:] {
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := session.FeedTop(ids[:step], 1); err != nil {
				return err
			}
		}
		return nil
	})
}

// timed returns how long f takes, which is all that the profile is of.
func (b *bencher) timed(f func() error) (seconds float64, err error) {
	b.engine.PauseProfile(!b.profiled)
	defer b.engine.PauseProfile(true)
	begin := time.Now()
	if err := f(); err != nil {
		return 0, err
	}
	return time.Since(begin).Seconds(), nil
}

// seek leaves the session with these tokens. All runs begin with the same ones, so that it keeps
// what it has of them, where no layer with a window has forgotten.
func seek(session *exec.Session, ids []int32) error {
	if err := session.Truncate(min(len(ids), session.Pos())); err != nil {
		session.Reset()
	}
	if ids = ids[session.Pos():]; len(ids) == 0 {
		return nil
	}
	_, err := session.FeedTop(ids, 1)
	return err
}

// meanAndDeviation returns the mean and the standard deviation of a sample.
func meanAndDeviation(x []float64) (mean, deviation float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	if len(x) < 2 {
		return mean, 0
	}
	for _, v := range x {
		deviation += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(deviation / float64(len(x)-1))
}
