package exec

import (
	"errors"
	"fmt"
)

// A Session is one sequence of an engine: a slot of the caches and how far it is filled. After
// Close it has no positions, and Feed and Truncate return ErrClosed; after that of the engine they return
// ErrEngineClosed.
type Session struct {
	engine *Engine
	seq    int32
	batch  Batch
	rows   rows
	closed bool // and the sequence perhaps another session's
}

// rows are the rows of logits of an engine's step that are a session's.
type rows struct {
	step     int32
	first, n int
}

// ErrClosed is the error of a session that was closed.
var ErrClosed = errors.New("the session is closed")

// NewSession takes a free sequence of the engine, empty. Close gives it back.
func NewSession(e *Engine) (*Session, error) {
	if e.closed {
		return nil, ErrEngineClosed
	}
	for i := range e.sequences {
		if s := &e.sequences[i]; !s.taken {
			s.taken = true
			n := int(e.plan.Target.Ubatch)
			ints := make([]int32, 3*n)
			return &Session{engine: e, seq: int32(i), batch: Batch{
				Tokens: ints[:n:n], Pos: ints[n : 2*n : 2*n], Seq: ints[2*n:], Rows: make([]int32, min(n, int(e.plan.Target.Rows))),
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

// Room returns the number of positions that are left in the context.
func (s *Session) Room() int { return s.engine.ctx - s.Pos() }

// Vocabulary returns the number of logits of a row.
func (s *Session) Vocabulary() int { return s.engine.width }

// Rows returns how many tokens FeedEach takes at most: as many as there are logits for, and fewer
// than a whole chunk, which would round otherwise than the same tokens one by one.
func (s *Session) Rows() int {
	if chunk := int(s.engine.plan.Chunk()); chunk > 0 {
		return min(len(s.batch.Rows), chunk-1)
	}
	return len(s.batch.Rows)
}

// Feed evaluates tokens after those before, in as few steps as the plan allows (see Next), and
// returns the logits of the last one, f32[vocabulary], in a view that holds until the engine's next
// step. Where the plan has a program for chunks of tokens, which rounds otherwise, those tokens go
// through it whose whole chunk is among ids: the same tokens from position 0 on in one call give the
// same bits whatever ubatch the plan was compiled for, if that is not below the chunk.
// Nothing is computed where the tokens do not fit the context or the vocabulary; where a step
// fails, the session has the tokens of the steps before it.
func (s *Session) Feed(ids []int32) ([]float32, error) {
	row, err := s.FeedTop(ids, 0)
	return row.Logits, err
}

// FeedTop is Feed, but gives of the last token's logits no more than a device that finds the greatest k has
// to fetch, see Engine.Row: Logits then has none.
func (s *Session) FeedTop(ids []int32, k int) (Row, error) {
	if err := s.check(ids); err != nil {
		return Row{}, err
	}
	for len(ids) > 0 {
		n, wanted := s.Next(len(ids)), 0
		if n == len(ids) {
			wanted = 1
		}
		if err := s.feed(ids[:n], wanted, k); err != nil {
			return Row{}, err
		}
		ids = ids[n:]
	}
	return s.engine.Row(0), nil
}

// Next returns how many of n tokens the first step of Feed takes. Who feeds so many at a time, to do
// something else between steps, gets the bits of one Feed of all of them.
func (s *Session) Next(n int) int { return int(s.engine.plan.ChunkLen(int64(s.Pos()), int64(n))) }

// FeedEach evaluates up to Rows tokens after those before, in one step, and keeps the logits of
// each for Logits, of the same bits as one by one. Nothing is computed where they do not fit.
func (s *Session) FeedEach(ids []int32) error {
	if err := s.check(ids); err != nil {
		return err
	}
	if len(ids) > s.Rows() {
		return fmt.Errorf("the logits of %d tokens, expected at most the %d of one step", len(ids), s.Rows())
	}
	return s.feed(ids, len(ids), 0)
}

// Together evaluates the next token of each of several sessions of one engine, in one step, and
// keeps its logits as the session's Logits(0). Nothing is computed where one of them does not fit.
func Together(sessions []*Session, ids []int32) error {
	if len(sessions) == 0 || len(ids) != len(sessions) {
		return fmt.Errorf("%d tokens for %d sessions, expected one for each", len(ids), len(sessions))
	}
	e := sessions[0].engine
	b := sessions[0].batch
	if most := len(b.Rows); len(ids) > most {
		return fmt.Errorf("the logits of %d sessions, expected at most the %d that the plan gives in a step", len(ids), most)
	}
	b.Tokens, b.Pos, b.Seq, b.Rows = b.Tokens[:0], b.Pos[:0], b.Seq[:0], b.Rows[:0]
	for i, s := range sessions {
		if s.engine != e {
			return fmt.Errorf("session %d is of another engine than session 0, expected one engine", i)
		}
		if err := s.check(ids[i : i+1]); err != nil {
			return fmt.Errorf("session %d: %w", i, err)
		}
		b.Tokens, b.Pos, b.Seq, b.Rows = append(b.Tokens, ids[i]), append(b.Pos, int32(s.Pos())), append(b.Seq, s.seq), append(b.Rows, int32(i))
	}
	if err := e.Step(&b); err != nil {
		return err
	}
	for i, s := range sessions {
		s.rows = rows{e.step, i, 1}
	}
	return nil
}

// Logits returns the logits of the i-th token of the last FeedEach or Together, f32[vocabulary], in
// a view that holds until the engine's next step. It is nil after that, and where there is no such
// token, or FeedTop left them on a device.
func (s *Session) Logits(i int) []float32 {
	if s.closed || s.rows.step != s.engine.step || i < 0 || i >= s.rows.n {
		return nil
	}
	return s.engine.Logits(s.rows.first + i)
}

// usable returns an error where the session or its engine is closed.
func (s *Session) usable() error {
	switch {
	case s.closed:
		return ErrClosed
	case s.engine.closed:
		return ErrEngineClosed
	}
	return nil
}

// check returns an error where tokens do not fit.
func (s *Session) check(ids []int32) error {
	if err := s.usable(); err != nil {
		return err
	}
	if len(ids) == 0 {
		return fmt.Errorf("no tokens to evaluate, expected at least one")
	}
	if len(ids) > s.Room() {
		return fmt.Errorf("%d tokens at position %d do not fit the context of %d; compile with a larger --ctx or shorten the prompt", len(ids), s.Pos(), s.engine.ctx)
	}
	for _, id := range ids {
		if err := s.engine.checkToken(id); err != nil {
			return err
		}
	}
	return nil
}

// feed evaluates tokens of one step, with the logits of the last ones, of which the greatest suffice where
// top is not 0.
func (s *Session) feed(ids []int32, wanted, top int) error {
	b, pos, n := s.batch, s.Pos(), len(ids)
	b.Tokens, b.Pos, b.Seq, b.Rows = b.Tokens[:n], b.Pos[:n], b.Seq[:n], b.Rows[:wanted]
	copy(b.Tokens, ids)
	for t := range n {
		b.Pos[t], b.Seq[t] = int32(pos+t), s.seq
	}
	for r := range wanted {
		b.Rows[r] = int32(n - wanted + r)
	}
	if err := s.engine.StepTop(&b, top); err != nil {
		return err
	}
	s.rows = rows{s.engine.step, 0, wanted}
	return nil
}

// Truncate forgets the positions from n on. Where a layer with a window no longer holds what a
// token at n looks back to, that is an error, and nothing changes.
func (s *Session) Truncate(n int) error {
	if err := s.usable(); err != nil {
		return err
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
