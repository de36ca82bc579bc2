package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"pesti/exec"
	"pesti/exec/plan"
	"pesti/exec/sample"
)

// runOptions are the flags of run, without those of compile.
type runOptions struct {
	prompt, promptFile, model string
	tokens                    count // −1: no limit
	params                    sample.Params
	stops                     []string
	ignoreEOS                 bool
	stats                     choice
	strict                    bool
	profile                   *profileFlags
	drafts                    *drafting
	tune                      *tuning
}

func (a *app) run() *cobra.Command {
	o := &runOptions{
		tokens: count{-1, -1},
		params: sample.Default(),
		stats:  choice{"", []string{"json"}},
	}
	var flags *compileFlags
	cmd := a.verb("run [MODEL|PLAN] -p TEXT", "Continue a text",
		`  pesti run model.gguf -p "The capital of France is" -n 16 --temp 0
  pesti run model.gguf -p "The capital of France is" -n 16 --speculate 7
  pesti run model.gguf -p "The capital of France is" -n 16 --profile run.json --trace trace.json`,
		arity{0, 1, "at most one, MODEL or PLAN"}, func(cmd *cobra.Command, args []string) error {
			name := demoName
			if len(args) > 0 {
				name = args[0]
			}
			if cmd.Flags().Changed("prompt") == cmd.Flags().Changed("file") {
				return usagef("expected one of -p TEXT and -f FILE")
			}
			if _, err := sample.New(o.params, 1); err != nil {
				return usage{withFlag(err)}
			}
			if slices.Contains(o.stops, "") {
				return usagef("--stop is empty, expected a text")
			}
			text := []byte(o.prompt)
			if cmd.Flags().Changed("file") {
				var err error
				if text, err = a.promptFile(cmd.Context(), o.promptFile); err != nil {
					return err
				}
			}
			return a.continueText(cmd.Context(), name, text, o, flags)
		})
	cmd.Long = cmd.Short + `.

Without MODEL or PLAN it runs demo, the embedded model.

The output is the generated text alone, without the prompt. A line break follows it only on a terminal.

--stats json prints one line of JSON on standard error. prefill_ts and decode_ts are tokens per second, of
the prompt and of the generated tokens; load_ms is the time before the first forward pass, in milliseconds;
start_resident and peak_resident are bytes of memory of the process. The other numbers are counts.`
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.prompt, "prompt", "p", "", "`TEXT` to continue")
	f.StringVarP(&o.promptFile, "file", "f", "", "`FILE` with the text to continue, read as bytes; - is standard input")
	f.VarP(&o.tokens, "tokens", "n", "maximum number of tokens to generate; -1 generates until the model ends or the context is full")
	f.Float64Var(&o.params.Temp, "temp", o.params.Temp, "temperature `T`, 0 or more; 0 always takes the most likely token")
	f.IntVar(&o.params.TopK, "top-k", o.params.TopK, "sample from the `K` most likely tokens; 0 is all")
	f.Float64Var(&o.params.TopP, "top-p", o.params.TopP, "sample from the smallest set of tokens whose probabilities add up to `P`, 0 to 1; 1 is all")
	f.Float64Var(&o.params.MinP, "min-p", o.params.MinP, "sample from tokens that are at least `P` times as likely as the most likely one, 0 to 1; 0 is all")
	f.Float64Var(&o.params.RepeatPenalty, "repeat-penalty", o.params.RepeatPenalty, "make recent tokens less likely by the factor `R`; 1 is off")
	f.Int64Var(&o.params.Seed, "seed", o.params.Seed, "`SEED` of the random numbers; -1 takes another one each time")
	f.StringArrayVar(&o.stops, "stop", nil, "end before this `TEXT`, or at the control token of this name; may be given more than once")
	f.BoolVar(&o.ignoreEOS, "ignore-eos", false, "continue after the end-of-generation token")
	f.Var(&o.stats, "stats", "print statistics on standard error")
	f.BoolVar(&o.strict, "strict", false, "fail if the plan has a fallback, a step that runs a reference kernel because the target has none")
	o.drafts = addDrafting(cmd, "speculative decoding by prompt lookup, with drafts of up to `N` tokens: the text stays the same, and repeated passages come faster; at most 30 (default 0, off)")
	o.profile, o.tune = addProfileFlags(cmd), addTuneFlag(cmd)
	f.StringVar(&o.model, "model", "", "`MODEL` that a PLAN was compiled from, if it is not where the plan says")
	flags = addCompileFlags(cmd, "fast")
	flags.addDevice(cmd)
	return cmd
}

// runStats are the statistics of a run. Speeds are in tokens per second, 0 if no tokens were computed.
type runStats struct {
	PromptTokens    int      `json:"prompt_tokens"`
	GeneratedTokens int      `json:"generated_tokens"`
	LoadMS          float64  `json:"load_ms"` // time before the first forward pass
	PrefillTS       float64  `json:"prefill_ts"`
	DecodeTS        float64  `json:"decode_ts"`
	Stop            string   `json:"stop"`                        // one of the stop constants
	Fallbacks       int      `json:"fallbacks"`                   // steps of the plan that run reference kernels; for a device, on the host
	Launches        int      `json:"launches_per_layer"`          // of the decode program on a device; 0 on the CPU
	Detours         [][2]int `json:"host_staged_pairs,omitempty"` // pairs of devices whose copies go through the host
	Proposed        int      `json:"proposed"`                    // draft tokens
	Accepted        int      `json:"accepted"`                    // draft tokens that were accepted

	// Resident bytes of the process before it opened the model, and at the peak; 0 if the system does not
	// report them.
	StartResident int64 `json:"start_resident"`
	PeakResident  int64 `json:"peak_resident"`
}

// continueText runs the model or plan called name on a prompt.
func (a *app) continueText(ctx context.Context, name string, text []byte, o *runOptions, flags *compileFlags) error {
	begin := time.Now()
	resident, _ := exec.Resident()
	a.progress("loading %s", name)
	s, err := a.open(name, o.model, flags)
	if err != nil {
		return err
	}
	defer s.Close()
	// Indexing a vocabulary takes as long as compiling the plan, so both run at the same time.
	s.LoadTokenizer()
	if err := o.drafts.prepare(s); err != nil {
		return err
	}
	if _, err := s.compile(); err != nil {
		return err
	}
	if err := o.drafts.check(s); err != nil {
		return err
	}
	summary := plan.Summarize(s.Plan)
	if f := plan.FallbackSteps(s.Plan); o.strict && len(f) > 0 {
		return fmt.Errorf("%s: %d steps of the plan are fallbacks, such as %s (%s); expected none with --strict", name, len(f), f[0].Name, f[0].Kernel)
	}
	if err := cmp.Or(o.profile.prepare(s), o.tune.prepare(s, o.tune.load)); err != nil {
		return err
	}
	tok, err := s.Tokenizer()
	if err != nil {
		return err
	}
	stats := runStats{
		Fallbacks:     summary.Fallbacks,
		Launches:      summary.LaunchesPerLayer,
		StartResident: resident,
	}
	ids, err := tok.EncodePrompt(ctx, text)
	switch {
	case errors.Is(err, context.Canceled):
		a.loaded()
		stats.Stop, stats.LoadMS = stopInterrupt, milliseconds(time.Since(begin))
		_, stats.PeakResident = exec.Resident()
		a.printStats(&stats, o.stats.word)
		return err
	case err != nil:
		return about(s.File.Path, err)
	}
	if err := s.checkLength(len(ids)); err != nil {
		return err
	}
	model, err := s.start()
	if err != nil {
		return err
	}
	defer model.Close()
	session, err := model.NewSession()
	if err != nil {
		return err
	}
	engine := model.Engine()
	for _, d := range engine.HostStagedPairs() {
		a.warn([]string{fmt.Sprintf("device %d cannot access the memory of device %d: copies between them go through the host", d[1], d[0])})
	}
	a.loaded()
	stats.PromptTokens, stats.LoadMS, stats.Detours = len(ids), milliseconds(time.Since(begin)), engine.HostStagedPairs()
	r, err := a.generate(ctx, session, ids, o)
	o.tune.save(a, engine)
	stats.Stop = r.Stop
	if isTerminal(a.stdout) {
		fmt.Fprintln(a.stdout)
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		stats.Stop = stopClosed
	case errors.Is(err, context.Canceled):
		stats.Stop = stopInterrupt
	case err != nil:
		return err
	}
	stats.GeneratedTokens, stats.Proposed, stats.Accepted = r.Tokens, r.Proposed, r.Accepted
	_, stats.PeakResident = exec.Resident()
	stats.PrefillTS, stats.DecodeTS = perSecond(r.PromptTokens, r.PromptTime), perSecond(r.Evaluated, r.DecodeTime)
	a.printStats(&stats, o.stats.word)
	if err != nil {
		return cmp.Or(o.profile.writeStopped(ctx, a, engine), err)
	}
	return o.profile.write(ctx, a, engine, a.stderr)
}

// printStats prints statistics: as JSON if format is json, otherwise as a line if standard error is
// a terminal or after an interrupt.
func (a *app) printStats(s *runStats, format string) {
	switch {
	case format == "json":
		text, err := json.Marshal(s)
		if err == nil {
			fmt.Fprintf(a.stderr, "%s\n", text)
		}
	case s.Stop == stopInterrupt, isTerminal(a.stderr) && s.Stop != stopClosed:
		fmt.Fprintf(a.stderr, "prompt %d tokens at %.1f/s, generated %d at %.1f/s%s, loaded in %.0f ms, stopped by %s\n",
			s.PromptTokens, s.PrefillTS, s.GeneratedTokens, s.DecodeTS, draftText(s.Proposed, s.Accepted), s.LoadMS, s.Stop)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func perSecond(tokens int, d time.Duration) float64 {
	return float64(tokens) / cmp.Or(d.Seconds(), 1)
}
