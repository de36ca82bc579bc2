package pesti

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"pesti/exec"
	"pesti/exec/plan"
	"pesti/frontend/tokenizer"
	"pesti/gguf"
	"pesti/gguf/sidecar"
)

// A Model is an open model: its plan, bound to memory and workers, and its tokenizer. All methods may be
// called from any number of goroutines at the same time. Forward passes of several sequences take turns.
type Model struct {
	options    Options
	file       *gguf.File
	ownsFile   bool
	weights    *sidecar.File
	vocabulary func() (*tokenizer.Tokenizer, error) // returns the tokenizer, which a goroutine has been loading since the file was opened
	tokenizer  *tokenizer.Tokenizer
	ends       map[int32]bool // end of generation

	turn   chan struct{} // holds one value while a goroutine uses the engine and its logits
	engine *exec.Engine

	mu     sync.Mutex
	free   []*exec.Session // with mu locked: free sequences, see Session.settle
	closed atomic.Bool     // set with mu locked
}

// Open opens a model file, or Demo, and compiles it. Close closes it.
func Open(name string, o Options) (*Model, error) {
	return open(o, func(m *Model) (*plan.Plan, error) {
		if err := m.load(name); err != nil {
			return nil, err
		}
		c, err := compile(name, m.file, m.weights, &o)
		if err != nil {
			return nil, err
		}
		return c.Plan, nil
	})
}

// OpenPlan opens the plan in the file at path, which Compile or "pesti compile" made, with its model. If
// model is "", it is the file that the plan names, relative to the plan's folder, or Demo if the plan names
// none. If the file is another model, the error is ErrWrongModel.
func OpenPlan(path, model string, o Options) (*Model, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p, err := plan.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case model != "":
	case p.Model.File == "":
		model = Demo
	default:
		model = plan.ResolveFile(path, p.Model.File)
	}
	if o.Weights == "" && p.Sidecar.File != "" {
		o.Weights = plan.ResolveFile(path, p.Sidecar.File)
	}
	m, err := open(o, func(m *Model) (*plan.Plan, error) { return p, m.load(model) })
	if err != nil {
		if model == Demo && errors.Is(err, ErrWrongModel) {
			err = fmt.Errorf("%w, or open the plan with its model", err)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// New returns a Model of an open file and a plan for it. The caller closes the file after Close.
func New(f *gguf.File, p *plan.Plan, o Options) (*Model, error) {
	if f == nil || p == nil {
		return nil, errors.New("no model file or no plan, expected both")
	}
	return open(o, func(m *Model) (*plan.Plan, error) { return p, m.use(f) })
}

// open opens files with makePlan, which calls load or use, and starts an engine for the plan. After an error or a
// panic of a function in the options, it closes what was opened.
func open(o Options, makePlan func(*Model) (*plan.Plan, error)) (_ *Model, err error) {
	m := &Model{options: o, ends: map[int32]bool{}, turn: make(chan struct{}, 1)}
	opened := false
	defer func() {
		if !opened {
			err = errors.Join(err, m.closeAll())
		}
	}()
	p, err := makePlan(m)
	if err != nil {
		return nil, translate(err)
	}
	if o.Weights != "" && p.Sidecar == (plan.Sidecar{}) {
		return nil, optionErrorf("Weights", "is %s, expected none: the plan has all weights in the model", o.Weights)
	}
	if m.tokenizer, err = m.vocabulary(); err != nil {
		return nil, err
	}
	o.progress("pack", 0, 0)
	engine := o.Engine
	if m.weights != nil {
		engine.Sidecar = m.weights
	}
	if m.engine, err = exec.Open(p, m.file, engine); err != nil {
		return nil, translate(err)
	}
	o.warn(m.file.Path, m.tokenizer.Warnings())
	for _, id := range m.tokenizer.EndOfGeneration() {
		m.ends[id] = true
	}
	opened = true
	return m, nil
}

// load opens a model file, which Close closes, and uses it.
func (m *Model) load(name string) error {
	f, err := openFile(name, &m.options)
	if err != nil {
		return err
	}
	m.ownsFile = true
	err = m.use(f)
	m.options.warn(name, f.Warnings())
	return err
}

// use starts to load the vocabulary of a model file, and opens its sidecar if there is one.
func (m *Model) use(f *gguf.File) (err error) {
	m.file = f
	m.vocabulary = sync.OnceValues(func() (*tokenizer.Tokenizer, error) {
		if t := m.options.Tokenizer; t != nil {
			if err := t.CheckModel(f); err != nil {
				return nil, &OptionError{Field: "Tokenizer", Err: err}
			}
			return t, nil
		}
		return tokenizer.FromGGUF(f)
	})
	go m.vocabulary()
	m.weights, err = openWeights(m.options.Weights, f)
	return err
}

// closeAll closes what is open.
func (m *Model) closeAll() error {
	var errs []error
	if m.vocabulary != nil {
		m.vocabulary() // wait for it, since it reads the file
	}
	if m.engine != nil {
		errs = append(errs, m.engine.Close())
	}
	if m.weights != nil {
		errs = append(errs, m.weights.Close())
	}
	if m.ownsFile {
		errs = append(errs, m.file.Close())
	}
	return errors.Join(errs...)
}

// Close ends the workers and frees the memory. It first waits for a forward pass in progress;
// sessions and generations then return ErrClosed. A second call does nothing.
func (m *Model) Close() error {
	if m.turn == nil { // it was never open
		return nil
	}
	m.turn <- struct{}{}
	defer m.release()
	if m.usable() != nil {
		return nil
	}
	m.mu.Lock()
	m.closed.Store(true)
	m.mu.Unlock()
	return m.closeAll()
}

// usable returns an error if the model is closed.
func (m *Model) usable() error {
	if m.closed.Load() || m.turn == nil {
		return fmt.Errorf("the model is %w", ErrClosed)
	}
	return nil
}

// Plan returns the plan that the model runs. It must not be changed.
func (m *Model) Plan() *plan.Plan { return m.engine.Plan() }

// Engine returns the engine, for its profile and its values. It must not be used while a session or a
// generation of the model is in use.
func (m *Model) Engine() *exec.Engine { return m.engine }

// Tokenize returns the token ids of a text, including the BOS token if the model uses one. Names of
// control tokens in the text, such as <|im_end|>, become these tokens.
func (m *Model) Tokenize(text string) ([]int32, error) {
	return m.encode(text, true)
}

// Detokenize returns the text of token ids.
func (m *Model) Detokenize(ids []int32) (string, error) {
	text, err := m.tokenizer.Decode(ids)
	return string(text), err
}

// encode returns the token ids of a text. bos is false for a text that follows other tokens.
func (m *Model) encode(text string, bos bool) ([]int32, error) {
	return m.tokenizer.Encode([]byte(text), tokenizer.Options{BOS: bos, ParseSpecial: true})
}

// NewSession returns a session on a free sequence of the model, which is empty. If all are in use, the error is
// ErrNoSequence. It does not wait for a forward pass.
func (m *Model) NewSession() (*Session, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(); err != nil {
		return nil, err
	}
	if last := len(m.free) - 1; last >= 0 {
		s := m.free[last]
		m.free = m.free[:last]
		return &Session{model: m, session: s}, nil
	}
	s, err := exec.NewSession(m.engine)
	if err != nil {
		return nil, translate(err)
	}
	return &Session{model: m, session: s}, nil
}

// giveBack frees a sequence.
func (m *Model) giveBack(s *exec.Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free = append(m.free, s)
}

// Logits returns a copy of the logits for the token after ids. It uses a free sequence during the
// call.
func (m *Model) Logits(ctx context.Context, ids []int32) ([]float32, error) {
	s, err := m.NewSession()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.Feed(ctx, ids); err != nil {
		return nil, err
	}
	return s.Logits(), nil
}

// take waits until the engine is free, for one forward pass. When ctx ends it returns at once.
func (m *Model) take(ctx context.Context) error {
	if ctx.Err() != nil {
		return exec.ContextError(ctx, "before a forward pass")
	}
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return exec.ContextError(ctx, "waiting for the forward pass of another sequence")
	}
	err := m.usable()
	if err != nil {
		m.release()
	}
	return err
}

func (m *Model) release() { <-m.turn }

// checkIDs returns an error for ids outside the vocabulary.
func checkIDs(ids []int32, vocabulary int) error {
	if i := slices.IndexFunc(ids, func(id int32) bool { return id < 0 || int(id) >= vocabulary }); i >= 0 {
		return fmt.Errorf("token id %d at index %d, expected 0 to %d, the end of the vocabulary", ids[i], i, vocabulary-1)
	}
	return nil
}
