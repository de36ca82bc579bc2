package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"syscall"

	lib "pesti"
	"pesti/conformance/compare"
	"pesti/exec"
	"pesti/exec/plan"
)

// A source is the input of a verb that runs a model: a MODEL, which is compiled in memory, or a PLAN with its
// model.
type source struct {
	*lib.Source
	app  *app
	name string // of the MODEL or PLAN, as given
	on   device // where the engine runs
}

// open opens a MODEL or PLAN, and checks that the given options apply to it.
func (a *app) open(name, model string, flags *compileFlags) (*source, error) {
	if isPlan(name) {
		return a.openPlan(name, model, flags)
	}
	if model != "" {
		return nil, usagef("--model names the model of a plan, and %s is no plan; a model to run is the argument MODEL", name)
	}
	o := lib.Options{Weights: flags.weights}
	var err error
	if o.Compile, err = flags.options(a); err != nil {
		return nil, err
	}
	s := &source{app: a, name: name}
	if err := s.choose(flags, o.Compile.Target, max(o.Compile.Devices, 1), &o.Engine); err != nil {
		return nil, err
	}
	if o.Engine.Driver != nil && o.Compile.Target == plan.CUDA && o.Compile.ISA == "" {
		if o.Compile.ISA, err = flags.on.setFor(o.Engine.Driver, o.Engine.Devices); err != nil {
			return nil, err
		}
	}
	if s.Source, err = a.openSource(name, o); err != nil {
		return nil, orPlan(err)
	}
	return s, nil
}

// openPlan opens a PLAN with its model.
func (a *app) openPlan(name, model string, flags *compileFlags) (*source, error) {
	p, threads, err := a.readPlan(name, flags)
	if err != nil {
		return nil, err
	}
	if on := p.Device(0); on.Backend != plan.CUDA {
		if err := allowedISA(on.ISA, a.getenv(isaVariable)); err != nil {
			return nil, about(name, err)
		}
	}
	s, engine := &source{app: a, name: name}, exec.Options{Threads: threads}
	if err := s.choose(flags, p.Target.Backend, max(p.NumGPUs(), 1), &engine); err != nil {
		return nil, err
	}
	if s.Source, err = a.planSource(p, name, model, flags.weights); err != nil {
		return nil, err
	}
	s.Options.Engine = engine
	return s, nil
}

// choose opens the driver of the device to run on, for an engine: the requested device, or else the default for
// the backend. places is the number of devices that the engine uses.
func (s *source) choose(flags *compileFlags, backend string, places int, engine *exec.Options) (err error) {
	if !flags.runs {
		return nil
	}
	if backend == plan.CUDA && flags.on.word == "" {
		flags.on = firstGPU
	}
	if backend == plan.CUDA && !flags.on.onDevice() {
		return usagef("--%s is %s, expected virtual or cuda:N: %s is for CUDA devices", deviceFlag, flags.on.word, s.name)
	}
	s.on = flags.on
	if n := len(flags.on.numbers); n > places {
		return usagef("--%s names %d devices, expected at most %d, the number for %s", deviceFlag, n, places, s.name)
	}
	engine.Devices = exec.DeviceOrdinals(flags.on.numbers, places)
	engine.Driver, err = s.app.openDriver(flags.on, slices.Max(engine.Devices)+1)
	return err
}

// openSource opens a MODEL.
func (a *app) openSource(name string, o lib.Options) (*lib.Source, error) {
	switch {
	case name == "":
		return nil, cannot("opened", name, syscall.ENOENT)
	case isPlan(name):
		return nil, usagef("%s: is a plan, expected a model", name)
	}
	return a.opened(lib.OpenSource(name, a.reporting(o)))
}

// planSource opens the model of the plan at path. If model or weights is "", it is the file that the plan names.
func (a *app) planSource(p *plan.Plan, path, model, weights string) (*lib.Source, error) {
	if isPlan(model) {
		return nil, usagef("%s: is a plan, expected a model", model)
	}
	return a.opened(lib.OpenPlanSource(p, path, model, a.reporting(lib.Options{Weights: weights})))
}

// opened records the files of a source as inputs.
func (a *app) opened(s *lib.Source, err error) (*lib.Source, error) {
	if err != nil {
		return nil, withFlag(err)
	}
	a.inputs = append(a.inputs, s.Paths()...)
	return s, nil
}

// reporting returns o with warnings as notices, and with the progress of a prompt on the terminal.
func (a *app) reporting(o lib.Options) lib.Options {
	o.Log = slog.New(noticeHandler{a})
	o.Progress = func(p lib.Progress) {
		switch {
		case p.Stage != "prompt":
		case p.Done == p.Total:
			a.progress("")
		default:
			a.progress("prompt: %d of %d tokens", p.Done, p.Total)
		}
	}
	return o
}

// A noticeHandler keeps the messages of a log as notices, without attributes: the messages name the file.
type noticeHandler struct{ app *app }

func (h noticeHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h noticeHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h noticeHandler) WithGroup(string) slog.Handler            { return h }

func (h noticeHandler) Handle(_ context.Context, r slog.Record) error {
	h.app.warn([]string{r.Message})
	return nil
}

// orPlan rewrites an error of package gguf for an argument that can also be a plan.
func orPlan(err error) error {
	text := err.Error()
	for _, expected := range []string{"expected a GGUF file", `expected "GGUF"`} {
		if before, after, ok := strings.Cut(text, expected); ok {
			return errors.New(before + "expected a GGUF model or a plan" + after)
		}
	}
	return err
}

// readPlan reads a PLAN for a verb with compile's options. Only the number of threads applies to a
// plan; readPlan returns it too, 0 if it is not given.
func (a *app) readPlan(name string, flags *compileFlags) (p *plan.Plan, threads int, err error) {
	if err := flags.modelOnly(name); err != nil {
		return nil, 0, err
	}
	if p, err = loadPlan(name); err != nil {
		return nil, 0, err
	}
	a.inputs = append(a.inputs, name)
	if !flags.set.Changed("threads") {
		return p, 0, nil
	}
	threads, most := int(flags.threads.n), p.Device(0).Threads
	if threads > most {
		return nil, 0, usagef("--threads is %d, expected at most %d, which is what %s was compiled for", threads, most, name)
	}
	return p, min(threads, exec.UsableCores()), nil
}

// compile compiles a MODEL. For a PLAN it does nothing and returns nil.
func (s *source) compile() (*lib.Compiled, error) {
	if s.Plan != nil {
		return nil, nil
	}
	return compileSource(s.Source)
}

// compileSource compiles a model.
func compileSource(s *lib.Source) (*lib.Compiled, error) {
	defer collectLess()()
	c, err := s.Compile()
	if err != nil {
		return nil, about(s.File.Path, err)
	}
	return c, nil
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

// input returns the input for package compare to run the plan.
func (s *source) input() compare.Input {
	releaseCompiler()
	return compare.Input{Plan: s.Plan, Model: s.File, Options: s.EngineOptions()}
}

// startEngine opens an engine for the plan.
func (s *source) startEngine() (*exec.Engine, error) {
	releaseCompiler()
	e, err := s.StartEngine()
	if err != nil {
		return nil, about(s.name, err)
	}
	return e, nil
}

// start returns the plan as a model of package pesti. Close it before the source.
func (s *source) start() (*lib.Model, error) {
	releaseCompiler()
	m, err := s.Start()
	if err != nil {
		return nil, about(s.name, err)
	}
	return m, nil
}

// releaseCompiler returns the compiler's freed memory to the system, which would otherwise stay resident in
// addition to the weights.
func releaseCompiler() { debug.FreeOSMemory() }

// checkLength returns an error for a prompt that does not fit.
func (s *source) checkLength(prompt int) error {
	ctx, hint := s.Plan.Target.Ctx, ""
	if int64(prompt) <= ctx {
		return nil
	}
	if m, err := s.Load(); err == nil && m.Params.Context > ctx {
		hint = fmt.Sprintf("; a larger one, up to %d, is compiled with --ctx", m.Params.Context)
	}
	return fmt.Errorf("%s: the prompt has %d tokens, expected at most %d, the context of the plan%s", s.name, prompt, ctx, hint)
}
