package pesti

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"pesti/conformance/demo"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/frontend/tokenizer"
	"pesti/gguf"
	"pesti/gguf/sidecar"
	"pesti/lower"
)

// A Source is an open model, or an open plan with its model, before an engine runs it. Open and OpenPlan do
// all its steps at once; a Source is for callers that use the parts. Its methods must not be called at the
// same time. Close it after the models and engines that it has started.
type Source struct {
	Options Options       // may be changed before a step that uses them
	File    *gguf.File    // the model
	Weights *sidecar.File // the model's matrices in FP8; nil if all weights are in File
	Plan    *plan.Plan    // nil for a model until Compile

	name       string // of the model or plan, as the caller gave it
	planPath   string // "" for a model
	params     *frontend.Model
	vocabulary func() (*tokenizer.Tokenizer, error)
	loading    bool // whether vocabulary was called, which reads File
	borrowed   bool // whether the caller closes File
	closed     bool
}

// OpenSource opens a model file, or Demo. Its Plan is nil until Compile.
func OpenSource(name string, o Options) (*Source, error) {
	s := &Source{Options: o, name: name}
	return s.open(func() error { return s.openModel(name) })
}

// OpenPlanSource opens the model of a plan that was read from the file at path, see OpenPlan.
func OpenPlanSource(p *plan.Plan, path, model string, o Options) (*Source, error) {
	s := &Source{Options: o, Plan: p, name: path, planPath: path}
	return s.open(func() error { return s.openPlanned(model) })
}

// open returns s after a function has opened its files. After an error or a panic of a function in the options,
// it closes them.
func (s *Source) open(files func() error) (*Source, error) {
	opened := false
	defer func() {
		if !opened {
			s.Close()
		}
	}()
	if err := files(); err != nil {
		return nil, translate(err)
	}
	opened = true
	return s, nil
}

// openModel opens the model called name, and its weights in FP8 if the options name them.
func (s *Source) openModel(name string) (err error) {
	s.Options.progress("load", 0, 0)
	if name == Demo {
		s.File, err = gguf.Parse(Demo, demo.GGUF())
	} else {
		s.File, err = gguf.Open(name)
	}
	if err != nil {
		return err
	}
	s.Options.warn(name, s.File.Warnings())
	if s.Options.Weights != "" {
		if _, err := s.Load(); err != nil { // the reason why no file of weights fits
			return err
		}
	}
	return s.use(s.Options.Weights)
}

// use opens the weights in FP8 at path; "" is none.
func (s *Source) use(weights string) (err error) {
	s.vocabulary = sync.OnceValues(func() (*tokenizer.Tokenizer, error) {
		if t := s.Options.Tokenizer; t != nil {
			if err := t.CheckModel(s.File); err != nil {
				return nil, &OptionError{Field: "Tokenizer", Err: err}
			}
			return t, nil
		}
		return tokenizer.FromGGUF(s.File)
	})
	if weights == "" {
		return nil
	}
	if s.Plan != nil && s.Plan.Sidecar == (plan.Sidecar{}) {
		return optionErrorf("Weights", "is %s, expected none: the plan has all weights in the model", weights)
	}
	s.Weights, err = sidecar.Open(weights, s.File)
	return err
}

// openPlanned opens the files that a plan needs: the given ones, or else the ones that it names.
func (s *Source) openPlanned(model string) error {
	named := model == ""
	switch {
	case !named:
	case s.Plan.Model.File == "":
		model = Demo
	default:
		model = plan.ResolveFile(s.planPath, s.Plan.Model.File)
	}
	weights := s.Options.Weights
	s.Options.Weights = "" // for openModel
	err := s.openModel(model)
	s.Options.Weights = weights
	switch {
	case err != nil && named:
		return &InputError{s.planPath, "model", err}
	case err != nil:
		return err
	}
	if named && model == Demo {
		if err := exec.CheckModel(s.Plan, s.File); err != nil {
			return &InputError{s.planPath, "model", fmt.Errorf("the plan names no model, so it is opened with %s: %w, or open the plan with its model", Demo, err)}
		}
	}
	if weights != "" || s.Plan.Sidecar.File == "" {
		return s.use(weights)
	}
	if err := s.use(plan.ResolveFile(s.planPath, s.Plan.Sidecar.File)); err != nil {
		return &InputError{s.planPath, "weights", err}
	}
	return nil
}

// Paths returns the paths of all open files.
func (s *Source) Paths() []string {
	var paths []string
	if s.planPath != "" {
		paths = append(paths, s.planPath)
	}
	if s.File != nil && s.File.Path != Demo {
		paths = append(paths, s.File.Paths()...)
	}
	if s.Weights != nil {
		paths = append(paths, s.Weights.Path)
	}
	return paths
}

// Load returns the model's hyperparameters and tensors, after checking them.
func (s *Source) Load() (*frontend.Model, error) {
	if err := s.usable(); err != nil || s.params != nil {
		return s.params, err
	}
	m, err := frontend.Load(s.File)
	if err != nil {
		return nil, err
	}
	s.Options.warn(s.File.Path, m.Warnings)
	s.params = m
	return m, nil
}

// LoadTokenizer begins to load the tokenizer on another goroutine. For a large vocabulary that takes as long as
// Compile.
func (s *Source) LoadTokenizer() {
	if s.usable() == nil {
		s.loading = true
		go s.vocabulary()
	}
}

// Tokenizer returns the model's tokenizer, or the one of the options.
func (s *Source) Tokenizer() (*tokenizer.Tokenizer, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	s.loading = true
	return s.vocabulary()
}

// Compile compiles the model, with the Compile options and the defaults of this package, and sets Plan. It may be
// called again with other options. For a plan, it is an error.
func (s *Source) Compile() (*Compiled, error) {
	if s.planPath != "" {
		return nil, fmt.Errorf("%s: is a plan, which is compiled already; expected a model", s.planPath)
	}
	s.Options.progress("compile", 0, 0)
	m, err := s.Load()
	if err != nil {
		return nil, err
	}
	o := s.Options.Compile
	if o.ISA == "" && cmp.Or(o.Target, "cpu") == "cpu" {
		if o.ISA, err = exec.BestISA(""); err != nil {
			return nil, err
		}
	}
	o.Threads = cmp.Or(o.Threads, exec.DefaultThreads())
	if o.File == "" && s.name != Demo {
		if o.File, err = filepath.Abs(s.name); err != nil {
			return nil, err
		}
	}
	if s.Weights != nil {
		o.Sidecar = s.Weights
		if o.SidecarFile == "" {
			if o.SidecarFile, err = filepath.Abs(s.Weights.Path); err != nil {
				return nil, err
			}
		}
	}
	c, err := lower.Compile(m, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.File.Path, translate(err))
	}
	s.Plan = c.Plan
	return c, nil
}

// EngineOptions returns the Engine options with the opened weights.
func (s *Source) EngineOptions() exec.Options {
	o := s.Options.Engine
	if s.Weights != nil {
		o.Sidecar = s.Weights
	}
	return o
}

// StartEngine returns an engine for the plan, without a tokenizer.
func (s *Source) StartEngine() (*exec.Engine, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if s.Plan == nil {
		return nil, fmt.Errorf("%s: has no plan yet, expected Compile before", s.name)
	}
	e, err := exec.Open(s.Plan, s.File, s.EngineOptions())
	return e, translate(err)
}

// Start returns a Model that runs the plan. Close it before the source.
func (s *Source) Start() (*Model, error) {
	t, err := s.Tokenizer()
	if err != nil {
		return nil, err
	}
	s.Options.progress("pack", 0, 0)
	e, err := s.StartEngine()
	if err != nil {
		return nil, err
	}
	m := &Model{options: s.Options, tokenizer: t, engine: e, ends: map[int32]bool{}, turn: make(chan struct{}, 1)}
	started := false
	defer func() {
		if !started { // a function in the options has panicked
			e.Close()
		}
	}()
	s.Options.warn(s.File.Path, t.Warnings())
	for _, id := range t.EndOfGeneration() {
		m.ends[id] = true
	}
	started = true
	return m, nil
}

// usable returns an error if the files are not open.
func (s *Source) usable() error {
	if s.File == nil || s.closed {
		return fmt.Errorf("%s: the source is %w", cmp.Or(s.name, "model"), ErrClosed)
	}
	return nil
}

// Close closes the files. A second call does nothing.
func (s *Source) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	if s.loading {
		s.vocabulary() // wait for it
	}
	var errs []error
	if s.Weights != nil {
		errs = append(errs, s.Weights.Close())
	}
	if s.File != nil && !s.borrowed {
		errs = append(errs, s.File.Close())
	}
	return errors.Join(errs...)
}
