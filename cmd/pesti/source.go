package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"pesti/conformance/compare"
	"pesti/exec"
	"pesti/exec/backends"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/gguf/sidecar"
	"pesti/lower"
)

// A source is the input of a verb that runs a model: a MODEL, which is compiled in memory, or a PLAN with its
// model.
type source struct {
	app     *app
	name    string // of the MODEL or PLAN, as given
	file    *gguf.File
	sidecar *sidecar.File   // nil if all weights are in the model
	options lower.Options   // compile options of a MODEL, to which verbs add theirs
	plan    *plan.Plan      // nil for a MODEL that is not compiled yet
	threads int             // --threads for a PLAN; 0: the engine's default
	tuning  *tuning         // of start's engine; nil: it measures nothing
	profile bool            // whether the engine of start keeps a profile
	on      device          // where the engine of start runs
	driver  backends.Driver // of the devices to run on; nil for the CPU
	devices []int           // their numbers in the driver
	trace   int             // number of last forward passes in the trace
}

// open opens a MODEL or PLAN, and checks that the given options apply to it. The end of ctx interrupts the
// virtual device.
func (a *app) open(ctx context.Context, name, model string, flags *compileFlags) (*source, error) {
	s := &source{app: a, name: name}
	var err error
	if isPlan(name) {
		if s.plan, s.threads, err = a.readPlan(name, flags); err != nil {
			return nil, err
		}
		if on := s.plan.Device(0); on.Backend != plan.CUDA {
			if err := allowedISA(on.ISA, a.getenv(isaVariable)); err != nil {
				return nil, about(name, err)
			}
		}
		if err := s.choose(ctx, flags, s.plan.Target.Backend); err != nil {
			return nil, err
		}
		if s.file, err = a.planModel(name, s.plan, model); err != nil {
			return nil, err
		}
		if s.sidecar, err = a.planSidecar(name, s.plan, flags.weights, s.file); err != nil {
			s.file.Close()
			return nil, err
		}
		return s, nil
	}
	if model != "" {
		return nil, usagef("--model names the model of a plan, and %s is no plan; a model to run is the argument MODEL", name)
	}
	if s.options, err = flags.options(a); err != nil {
		return nil, err
	}
	if err := s.choose(ctx, flags, s.options.Target); err != nil {
		return nil, err
	}
	if s.driver != nil && s.options.Target == plan.CUDA && s.options.ISA == "" {
		if s.options.ISA, err = flags.on.setFor(s.driver, s.devices); err != nil {
			return nil, err
		}
	}
	if s.file, err = a.openModel(name); err != nil {
		return nil, orPlan(err)
	}
	if s.sidecar, err = flags.sidecar(a, s.file); err != nil {
		s.file.Close()
		return nil, err
	}
	s.options.Sidecar = s.sidecar
	return s, nil
}

// choose opens the driver of the device to run on: the requested device, or else the default for
// the backend.
func (s *source) choose(ctx context.Context, flags *compileFlags, backend string) (err error) {
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
	places := max(s.options.Devices, 1)
	if s.plan != nil {
		places = max(s.plan.NumGPUs(), 1)
	}
	if n := len(flags.on.numbers); n > places {
		return usagef("--%s names %d devices, expected at most %d, the number for %s", deviceFlag, n, places, s.name)
	}
	s.devices = exec.DeviceOrdinals(flags.on.numbers, places)
	s.driver, err = s.app.openDriver(flags.on, slices.Max(s.devices)+1)
	return err
}

// release closes the files.
func (s *source) release() {
	s.file.Close()
	if s.sidecar != nil {
		s.sidecar.Close()
	}
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
func (s *source) compile() (*lower.Result, error) {
	if s.plan != nil {
		return nil, nil
	}
	defer collectLess()()
	m, err := frontend.Load(s.file)
	if err != nil {
		return nil, err
	}
	s.app.warn(m.Warnings)
	res, err := lower.Compile(m, s.options)
	if err != nil {
		return nil, about(m.File.Path, err)
	}
	s.plan = res.Plan
	return res, nil
}

// execOptions returns the options of an engine for the plan. It also returns the compiler's freed
// memory to the system, which would otherwise stay resident in addition to the weights.
func (s *source) execOptions() exec.Options {
	debug.FreeOSMemory()
	o := exec.Options{Sidecar: s.sidecar, Driver: s.driver, Devices: s.devices, Threads: s.threads, Profile: s.profile, Trace: s.trace}
	if s.tuning != nil {
		o.ReadOrders, o.Tune = s.tuning.orders, s.tuning.path != ""
	}
	return o
}

// input returns the input for package compare to run the plan.
func (s *source) input() compare.Input {
	return compare.Input{Plan: s.plan, Model: s.file, Options: s.execOptions()}
}

// start opens an engine for the plan.
func (s *source) start(ctx context.Context) (*exec.Engine, error) {
	e, err := exec.Open(s.plan, s.file, s.execOptions())
	if err != nil {
		return nil, about(s.name, err)
	}
	return e, nil
}

// checkLength returns an error for a prompt that does not fit.
func (s *source) checkLength(prompt int) error {
	ctx, hint := s.plan.Target.Ctx, ""
	if int64(prompt) <= ctx {
		return nil
	}
	if m, err := frontend.Load(s.file); err == nil && m.Params.Context > ctx {
		hint = fmt.Sprintf("; a larger one, up to %d, is compiled with --ctx", m.Params.Context)
	}
	return fmt.Errorf("%s: the prompt has %d tokens, expected at most %d, the context of the plan%s", s.name, prompt, ctx, hint)
}
