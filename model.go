package pesti

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"pesti/exec"
	"pesti/exec/plan"
	"pesti/frontend/tokenizer"
	"pesti/gguf"
)

// A Model is an open model: its plan, bound to memory and workers, and its tokenizer. All methods may be
// called from any number of goroutines at the same time. Forward passes of several sequences take turns.
type Model struct {
	options   Options
	source    *Source // that Close closes; nil if the caller does
	tokenizer *tokenizer.Tokenizer
	ends      map[int32]bool // end of generation

	turn   chan struct{} // holds one value while a goroutine uses the engine and its logits
	engine *exec.Engine

	mu     sync.Mutex
	free   []*exec.Session // with mu locked: free sequences, see Session.settle
	closed atomic.Bool     // set with mu locked
}

// Open opens a model file, or Demo, and compiles it. Close closes it.
func Open(name string, o Options) (*Model, error) {
	s, err := OpenSource(name, o)
	if err != nil {
		return nil, err
	}
	return s.run(func() error {
		_, err := s.Compile()
		return err
	})
}

// OpenPlan opens the plan in the file at path, which Compile or "pesti compile" made, with its model. If
// model is "", it is the file that the plan names, relative to the plan's folder, or Demo if the plan names
// none. If the file is another model, the error is ErrWrongModel.
func OpenPlan(path, model string, o Options) (*Model, error) {
	p, err := plan.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s, err := OpenPlanSource(p, path, model, o)
	if err != nil {
		return nil, err
	}
	m, err := s.run(func() error { return nil })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// New returns a Model of an open file and a plan for it. The caller closes the file after Close.
func New(f *gguf.File, p *plan.Plan, o Options) (*Model, error) {
	if f == nil || p == nil {
		return nil, errors.New("no model file or no plan, expected both")
	}
	s := &Source{Options: o, File: f, Plan: p, name: f.Path, borrowed: true}
	s, err := s.open(func() error { return s.use(o.Weights) })
	if err != nil {
		return nil, err
	}
	return s.run(func() error { return nil })
}

// run returns a Model that runs the source's plan, which compile sets if it is missing, and owns the source. The
// tokenizer is loaded during compile. After an error or a panic of a function in the options, it closes the source.
func (s *Source) run(compile func() error) (m *Model, err error) {
	defer func() {
		if m == nil {
			s.Close()
		}
	}()
	s.LoadTokenizer()
	if err := compile(); err != nil {
		return nil, err
	}
	if m, err = s.Start(); err != nil {
		return nil, err
	}
	m.source = s
	return m, nil
}

// closeAll closes what is open.
func (m *Model) closeAll() error {
	err := m.engine.Close()
	if m.source != nil {
		err = errors.Join(err, m.source.Close())
	}
	return err
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
	return m.encode(context.Background(), text, true)
}

// Detokenize returns the text of token ids.
func (m *Model) Detokenize(ids []int32) (string, error) {
	text, err := m.tokenizer.Decode(ids)
	return string(text), err
}

// encode returns the token ids of a text. bos is false for a text that follows other tokens.
func (m *Model) encode(ctx context.Context, text string, bos bool) ([]int32, error) {
	// Encode does not change the bytes. To copy a huge text takes longer than the end of ctx may take.
	bytes := unsafe.Slice(unsafe.StringData(text), len(text))
	ids, err := m.tokenizer.Encode(ctx, bytes, tokenizer.Options{BOS: bos, ParseSpecial: true})
	if end := ctx.Err(); end != nil && errors.Is(err, end) {
		return nil, exec.ContextError(ctx, "tokenization")
	}
	return ids, err
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
