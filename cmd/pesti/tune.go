package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"pesti/exec"
	"pesti/exec/plan"
	"pesti/exec/tunefile"
)

const (
	// tuneVariable is the environment variable with the default of --tune.
	tuneVariable = "PESTI_TUNE"
	tuneOff      = "off"

	tuneFlagHelp = "measure once, in up to 0.15 s after the first token, in which order this machine reads weights fastest, and keep the result in `FILE`; off measures nothing; no order changes a result (default " + tuneVariable + ", or else a file in the user's cache)"
)

// A tuning holds the file from which an engine takes its choices of orders, and to which it saves
// new ones.
type tuning struct {
	word string // of --tune, "" for the default

	path   string // "" if no file is used
	key    tunefile.Key
	orders map[string]string
}

func addTuneFlag(cmd *cobra.Command) *tuning {
	t := &tuning{}
	cmd.Flags().StringVar(&t.word, "tune", "", tuneFlagHelp)
	return t
}

// prepare reads earlier choices for the plan of a source.
func (t *tuning) prepare(s *source, load func(a *app, isa string, threads int) error) error {
	target, engine := s.Plan.Device(0), &s.Options.Engine
	if target.Backend == plan.CUDA || s.Plan.Target.Backend == plan.CUDA {
		return nil
	}
	threads := engine.Threads
	if threads == 0 {
		threads = min(int(target.Threads), exec.DefaultThreads())
	}
	err := load(s.app, target.ISA, threads)
	engine.ReadOrders, engine.Tune = t.orders, t.path != ""
	return err
}

// load reads earlier choices for an instruction set and a number of workers. A file that is named must be a tune file,
// and one that --tune names must be for this machine. Otherwise files only save time: a notice says that one is for
// another machine, and it is measured and written again. In the cache there is a notice of damaged files only.
func (t *tuning) load(a *app, isa string, threads int) (err error) {
	t.key, t.path = tunefile.NewKey(isa, threads), cmp.Or(t.word, a.getenv(tuneVariable))
	inCache := t.path == ""
	if inCache {
		if t.path, err = tunefile.Path(t.key); err != nil { // there is no cache folder
			t.path = tuneOff
		}
	}
	if t.path == tuneOff {
		t.path = ""
		return nil
	}
	if slices.ContainsFunc(a.promised, func(path string) bool { return path == t.path || sameFile(path, t.path) }) {
		return usagef("--tune and another flag both name %s, expected two files", t.path)
	}
	t.orders, err = tunefile.Load(t.path, t.key)
	other := errors.Is(err, tunefile.ErrOtherKey)
	switch {
	case err == nil || other && inCache:
		return nil
	case inCache:
		a.warn([]string{err.Error() + "; it is deleted, and measured again"})
		return os.Remove(t.path)
	case other && t.word == "":
		a.warn([]string{err.Error() + "; it is measured again"})
		return nil
	}
	return fmt.Errorf("%w; delete it, to have it measured again", err)
}

// loadToReplace is load for a verb that measures everything again.
func (t *tuning) loadToReplace(a *app, isa string, threads int) error {
	err := t.load(a, isa, threads)
	t.orders = nil
	if errors.Is(err, tunefile.ErrOtherKey) {
		a.warn([]string{err.Error()})
		return nil
	}
	return err
}

// tunedText describes the measured choices that run and bench use for an instruction set.
func (a *app) tunedText(isa string) string {
	t := tuning{path: a.getenv(tuneVariable), key: tunefile.NewKey(isa, exec.DefaultThreads())}
	if t.path == tuneOff {
		return "no: " + tuneVariable + " is " + tuneOff
	}
	if t.path == "" {
		var err error
		if t.path, err = tunefile.Path(t.key); err != nil {
			return "no: " + err.Error()
		}
	}
	orders, err := tunefile.Load(t.path, t.key)
	if err != nil {
		return "no: " + err.Error()
	}
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(orders)) {
		all = append(all, kind+": "+orders[kind])
	}
	if all == nil {
		return "nothing: run and bench measure by themselves, and tune does"
	}
	return strings.Join(all, "; ") + " (" + t.path + ")"
}

// save saves an engine's measured choices.
func (t *tuning) save(a *app, e *exec.Engine) {
	if t.path == "" {
		return
	}
	if err := tunefile.Save(t.path, t.key, e.Tuned()); err != nil {
		a.warn([]string{err.Error()})
	}
}

// tuneTime is the longest time that the verb tune measures.
const tuneTime = 5 * time.Second

func (a *app) tune() *cobra.Command {
	var model string
	var asJSON bool
	var flags *compileFlags
	t := &tuning{}
	cmd := a.verb("tune [MODEL|PLAN]", "Measure in which order this machine reads weights fastest",
		`  pesti tune
  pesti tune model.gguf
  pesti tune model.gguf --tune tuned.json
  pesti run model.gguf -p "Once upon a time" --tune tuned.json`,
		arity{0, 1, "at most one, MODEL or PLAN"}, func(cmd *cobra.Command, args []string) error {
			measure := a.tuneMachine
			if len(args) > 0 {
				measure = func(ctx context.Context, t *tuning, flags *compileFlags) ([]exec.Tuned, error) {
					return a.tuneModel(ctx, args[0], model, t, flags)
				}
			} else if model != "" {
				return usagef("--model names the model of a plan, and there is no PLAN")
			}
			tuned, err := measure(cmd.Context(), t, flags)
			if err = cmp.Or(err, cmd.Context().Err()); err != nil {
				return err
			}
			return a.showTuned(tuned, t, asJSON)
		})
	cmd.Long = cmd.Short + `.

The products of one token are limited by memory. On processors with AVX2, AVX-512 VNNI or AMX, kernels can
read a weight in several orders: one panel after another or, except with AVX2, four panels at a time, with or
without prefetch. Which order is fastest depends on the processor, on the type of the weights and on their
shape. All orders give the same bits. Other instruction sets have one order.

The verb measures every order for each type of weights, prints the medians of five, and keeps the choices for
run and bench. With MODEL or PLAN it measures products of that model, for types of which it has 32 MiB or
more; without, products with 6144 x 4096 weights. An order other than the default is chosen if it is at least
5 % faster, by the median and by the fastest sample. run and bench measure by themselves if nothing was
measured before.`
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.StringVar(&t.word, "tune", "", "keep the choices in `FILE`; off keeps nothing (default "+tuneVariable+", or else a file in the user's cache)")
	f.StringVar(&model, "model", "", "`MODEL` that a PLAN was compiled from, if it is not where the plan says")
	flags = addCompileFlags(cmd, "fast")
	return cmd
}

// tuneModel measures products of a model.
func (a *app) tuneModel(ctx context.Context, name, model string, t *tuning, flags *compileFlags) ([]exec.Tuned, error) {
	s, err := a.open(name, model, flags)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if _, err := s.compile(); err != nil {
		return nil, err
	}
	if err := t.prepare(s, t.loadToReplace); err != nil {
		return nil, err
	}
	e, err := s.startEngine()
	if err != nil {
		return nil, err
	}
	defer e.Close()
	a.loaded()
	a.progress("measuring")
	defer a.progress("")
	tuned, err := e.Tune(ctx, tuneTime)
	if err != nil {
		return nil, about(s.name, err)
	}
	return tuned, nil
}

// tuneMachine measures products without a model, with the instruction set and the number of workers of the flags.
func (a *app) tuneMachine(ctx context.Context, t *tuning, flags *compileFlags) ([]exec.Tuned, error) {
	o, err := flags.options(a)
	if err != nil {
		return nil, err
	}
	if o.Target == plan.CUDA {
		return nil, usagef("--target is cuda, expected cpu: the verb measures the processor")
	}
	set := cmp.Or(o.ISA, "portable")
	if err := t.loadToReplace(a, set, min(o.Threads, exec.UsableCores())); err != nil {
		return nil, err
	}
	a.progress("measuring")
	defer a.progress("")
	return exec.TuneMachine(ctx, set, t.key.Threads, tuneTime)
}

// showTuned keeps and prints what was measured.
func (a *app) showTuned(tuned []exec.Tuned, t *tuning, asJSON bool) error {
	if t.path != "" {
		if err := tunefile.Save(t.path, t.key, tuned); err != nil {
			return err
		}
	}
	if asJSON {
		return a.printJSON(struct {
			Key   tunefile.Key `json:"key"`
			Types []exec.Tuned `json:"types"`
		}{t.key, tuned})
	}
	if len(tuned) == 0 {
		_, err := fmt.Fprintf(a.stdout, "no weights with a choice of order on %s\n", t.key.ISA)
		return err
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "type\tweights\torder\tGB/s\tGMAC/s\t\n")
	for i := range tuned {
		r := &tuned[i]
		if len(r.Tried) == 0 {
			fmt.Fprintf(w, "%s\t%s\t%s\t\t\tnot measured: %s\n", r.Type, plan.HumanBytes(r.Bytes), r.Order, r.Why)
		}
		for k, tried := range r.Tried {
			note := ""
			switch chosen := tried.Order == r.Order; {
			case k == 0 && chosen:
				note = strings.TrimSuffix("default, kept: "+r.Why, ": ")
			case k == 0:
				note = "default"
			case chosen:
				note = "chosen"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t%.1f\t%s\n", r.Type, plan.HumanBytes(r.Bytes), tried.Order, tried.GBs, tried.GMACs, note)
		}
	}
	return w.Flush()
}
