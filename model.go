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
	options   Options
	file      *gguf.File
	ownsFile  bool
	weights   *sidecar.File
	tokenizer *tokenizer.Tokenizer
	ends      map[int32]bool // end of generation

	turn   chan struct{} // holds one value while a goroutine uses the engine and its logits
	engine *exec.Engine
	closed atomic.Bool
}

// Open opens a model file, or Demo, and compiles it. Close closes it.
func Open(name string, o Options) (*Model, error) {
	f, err := openFile(name, &o)
	if err != nil {
		return nil, err
	}
	m, err := open(f, func(m *Model) (*plan.Plan, error) {
		var err error
		if m.weights, err = openWeights(o.Weights, f); err != nil {
			return nil, err
		}
		c, err := compile(f, m.weights, &o)
		if err != nil {
			return nil, err
		}
		return c.Plan, nil
	}, o)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	m.ownsFile = true
	return m, nil
}

// OpenPlan opens a plan that was compiled before, with the model file that it is for, which must be the
// same: otherwise the error is ErrWrongModel. Where model is "", it is the file that the plan names.
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
	f, err := openFile(model, &o)
	if err != nil {
		return nil, err
	}
	m, err := New(f, p, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	m.ownsFile = true
	return m, nil
}

// New makes a Model of an open file and a plan for it. The file stays the caller's: it must be open until
// Close.
func New(f *gguf.File, p *plan.Plan, o Options) (*Model, error) {
	if f == nil || p == nil {
		return nil, errors.New("no model file or no plan, expected both")
	}
	return open(f, func(m *Model) (_ *plan.Plan, err error) {
		m.weights, err = openWeights(o.Weights, f)
		return p, err
	}, o)
}

// open reads the vocabulary while it makes the plan, and starts an engine.
func open(f *gguf.File, makePlan func(*Model) (*plan.Plan, error), o Options) (*Model, error) {
	m := &Model{options: o, file: f, ends: map[int32]bool{}, turn: make(chan struct{}, 1)}
	vocabulary := sync.OnceValues(func() (*tokenizer.Tokenizer, error) {
		if o.Tokenizer != nil {
			return o.Tokenizer, nil
		}
		return tokenizer.FromGGUF(f)
	})
	go vocabulary()
	p, err := makePlan(m)
	var failed error
	if m.tokenizer, failed = vocabulary(); err == nil {
		err = failed
	}
	if err == nil {
		o.progress("pack", 0, 0)
		engine := o.Engine
		if m.weights != nil {
			engine.Sidecar = m.weights
		}
		m.engine, err = exec.Open(p, f, engine)
	}
	if err != nil {
		return nil, errors.Join(translate(err), m.closeWeights())
	}
	o.warn(f.Path, m.tokenizer.Warnings())
	for _, id := range m.tokenizer.EndOfGeneration() {
		m.ends[id] = true
	}
	return m, nil
}

func (m *Model) closeWeights() error {
	if m.weights == nil {
		return nil
	}
	return m.weights.Close()
}

// Close ends the workers and gives the memory back. A forward pass in progress ends first; sessions and
// generations then return ErrClosed. A second time it does nothing.
func (m *Model) Close() error {
	m.turn <- struct{}{}
	defer m.release()
	if m.closed.Swap(true) {
		return nil
	}
	err := errors.Join(m.engine.Close(), m.closeWeights())
	if m.ownsFile {
		err = errors.Join(err, m.file.Close())
	}
	return err
}

// Plan returns the plan that the model runs. It must not be changed.
func (m *Model) Plan() *plan.Plan { return m.engine.Plan() }

// Engine returns the engine, for its profile and its values. It must not be used while a session or a
// generation of the model is in use.
func (m *Model) Engine() *exec.Engine { return m.engine }

// Tokenize returns the token ids of a text, with the token that texts begin with where the model wants one.
// Names of control tokens in the text, such as <|im_end|>, stand for these tokens.
func (m *Model) Tokenize(text string) ([]int32, error) {
	return m.encode(text, true)
}

// Detokenize returns the text of token ids.
func (m *Model) Detokenize(ids []int32) (string, error) {
	text, err := m.tokenizer.Decode(ids)
	return string(text), err
}

// encode returns the token ids of a text that follows other tokens where bos is false.
func (m *Model) encode(text string, bos bool) ([]int32, error) {
	return m.tokenizer.Encode([]byte(text), tokenizer.Options{BOS: bos, ParseSpecial: true})
}

// NewSession takes a free sequence of the model, empty. Where all are in use the error is ErrNoSequence.
func (m *Model) NewSession() (*Session, error) {
	m.turn <- struct{}{}
	defer m.release()
	s, err := exec.NewSession(m.engine)
	if err != nil {
		return nil, translate(err)
	}
	return &Session{model: m, session: s}, nil
}

// Logits returns the logits of the token that follows ids, a copy. It takes a free sequence meanwhile.
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

// take waits until the engine is free or ctx ends.
func (m *Model) take(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case m.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return cancelled(ctx)
	}
}

func (m *Model) release() { <-m.turn }

// cancelled is the error of a call that waits when its context ends.
func cancelled(ctx context.Context) error { return exec.ContextError(ctx, "waiting for the model") }

// checkIDs returns an error for ids outside the vocabulary.
func checkIDs(ids []int32, vocabulary int) error {
	if i := slices.IndexFunc(ids, func(id int32) bool { return id < 0 || int(id) >= vocabulary }); i >= 0 {
		return fmt.Errorf("token id %d at index %d, expected 0 to %d, the end of the vocabulary", ids[i], i, vocabulary-1)
	}
	return nil
}
