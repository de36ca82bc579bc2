package exec

import (
	"errors"
	"fmt"
)

// A Session is one sequence of an engine: a slot of the caches and how far it is filled. After
// Close it has no positions, and Feed and Truncate return ErrClosed.
type Session struct {
	engine *Engine
	seq    int32
	batch  Batch
	closed bool // and the sequence perhaps another session's
}

// ErrClosed is the error of a session that was closed.
var ErrClosed = errors.New("the session is closed")

// NewSession takes a free sequence of the engine, empty. Close gives it back.
func NewSession(e *Engine) (*Session, error) {
	for i := range e.sequences {
		if s := &e.sequences[i]; !s.taken {
			s.taken = true
			n := int(e.plan.Target.Ubatch)
			ints := make([]int32, 3*n)
			return &Session{engine: e, seq: int32(i), batch: Batch{
				Tokens: ints[:n:n], Pos: ints[n : 2*n : 2*n], Seq: ints[2*n:], Rows: make([]int32, 1),
			}}, nil
		}
	}
	return nil, fmt.Errorf("all %d sequences of the plan are in use; compile with more --sequences", len(e.sequences))
}

// Pos returns the number of positions that the session has; the next token has this position.
func (s *Session) Pos() int {
	if s.closed {
		return 0
	}
	return s.engine.sequences[s.seq].length
}

// Feed evaluates tokens after those before, in chunks of the plan's ubatch, and returns the
// logits of the last one, f32[vocabulary], in a view that holds until the engine's next step.
// Nothing is computed where the tokens do not fit the context or the vocabulary; where a step
// fails, the session has the tokens of the chunks before it.
func (s *Session) Feed(ids []int32) ([]float32, error) {
	if s.closed {
		return nil, ErrClosed
	}
	e, pos := s.engine, s.Pos()
	if len(ids) == 0 {
		return nil, fmt.Errorf("no tokens to evaluate, expected at least one")
	}
	if len(ids) > e.ctx-pos {
		return nil, fmt.Errorf("%d tokens at position %d do not fit the context of %d; compile with a larger --ctx or shorten the prompt", len(ids), pos, e.ctx)
	}
	for _, id := range ids {
		if err := e.checkToken(id); err != nil {
			return nil, err
		}
	}
	for len(ids) > 0 {
		b := s.batch
		n := min(len(ids), len(b.Tokens))
		b.Tokens, b.Pos, b.Seq, b.Rows = b.Tokens[:n], b.Pos[:n], b.Seq[:n], b.Rows[:0]
		copy(b.Tokens, ids)
		for t := range n {
			b.Pos[t], b.Seq[t] = int32(pos+t), s.seq
		}
		if n == len(ids) {
			b.Rows = b.Rows[:1]
			b.Rows[0] = int32(n - 1)
		}
		if err := e.Step(&b); err != nil {
			return nil, err
		}
		ids, pos = ids[n:], pos+n
	}
	return e.Logits(0), nil
}

// Truncate forgets the positions from n on. Where a layer with a window no longer holds what a
// token at n looks back to, that is an error, and nothing changes.
func (s *Session) Truncate(n int) error {
	if s.closed {
		return ErrClosed
	}
	e := s.engine
	state := &e.sequences[s.seq]
	if n < 0 || n > state.length {
		return fmt.Errorf("truncating to %d positions, expected 0 to the %d there are", n, state.length)
	}
	if err := e.checkStart(state, int(s.seq), n); err != nil {
		return err
	}
	e.hold(s.seq, n)
	return nil
}

// Reset forgets all positions.
func (s *Session) Reset() {
	if !s.closed {
		s.engine.hold(s.seq, 0)
	}
}

// Close gives the sequence back to the engine. A second time it does nothing.
func (s *Session) Close() {
	if s.closed {
		return
	}
	s.Reset()
	s.engine.sequences[s.seq].taken = false
	s.closed = true
}
