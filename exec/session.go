package exec

import (
	"context"
	"fmt"
)

// A Session is one sequence of an engine: a slot of the caches and the number of positions filled.
// After its Close it has no positions, and Feed and Truncate return ErrClosed; after the engine's
// Close they return ErrEngineClosed. All sessions of an engine must be used from one goroutine at a
// time, except for NewSession and CheckTruncate.
type Session struct {
	engine *Engine
	seq    int32
	batch  Batch
	rows   rows
	closed bool // another session may use the sequence by now
}

// rows are the rows of logits of one forward pass that belong to a session.
type rows struct {
	pass     int32
	first, n int
}

// NewSession returns a session on a free sequence of the engine, which is empty. Close frees the
// sequence. If none is free, the error is ErrNoSequence. NewSession may be called while another
// goroutine runs a forward pass, but not concurrently with another NewSession or a Close.
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
	return nil, &kindError{ErrNoSequence, fmt.Sprintf("all %d sequences of the plan are in use; close a session, or compile for more sequences", len(e.sequences))}
}

// Pos returns the number of positions that the session has; the next token has this position.
func (s *Session) Pos() int {
	if s.closed {
		return 0
	}
	return s.engine.sequences[s.seq].length
}

// Remaining returns the number of free positions in the context.
func (s *Session) Remaining() int { return s.engine.ctx - s.Pos() }

// Vocabulary returns the number of logits in a row.
func (s *Session) Vocabulary() int { return s.engine.width }

// MaxLogitRows returns the maximum number of tokens for FeedLogits: at most the plan's rows of
// logits, and less than a whole chunk, which rounds differently from the same tokens one by one.
func (s *Session) MaxLogitRows() int {
	if chunk := int(s.engine.plan.Chunk()); chunk > 0 {
		return min(len(s.batch.Rows), chunk-1)
	}
	return len(s.batch.Rows)
}

// Feed appends tokens to the session, in as few forward passes as the plan allows (see NextChunk),
// and returns the logits of the last one, f32[vocabulary], in a view that is valid until the
// engine's next pass. If the plan has a program for chunks, which rounds differently, it evaluates
// each token whose whole chunk is in ids. So the same tokens from position 0 on in one call give
// the same bits for every ubatch of at least one chunk.
//
// Feed computes nothing if the tokens do not fit the context (ErrContextFull) or the vocabulary. If
// a pass fails or ctx ends it (see Engine.Forward), the session keeps the tokens of the earlier
// passes. Pos returns how many these are; feeding the others then gives the bits of one Feed.
func (s *Session) Feed(ctx context.Context, ids []int32) ([]float32, error) {
	row, err := s.FeedTopK(ctx, ids, 0)
	return row.Logits, err
}

// FeedTopK is Feed for a caller that needs only the greatest k logits of the last token, so that a
// device need not return all: see Engine.Row. Session.Logits then returns nil.
func (s *Session) FeedTopK(ctx context.Context, ids []int32, k int) (Row, error) {
	if err := s.check(ids); err != nil {
		return Row{}, err
	}
	for len(ids) > 0 {
		n, wanted := s.NextChunk(len(ids)), 0
		if n == len(ids) {
			wanted = 1
		}
		if err := s.feed(ctx, ids[:n], wanted, k); err != nil {
			return Row{}, err
		}
		ids = ids[n:]
	}
	return s.engine.Row(0), nil
}

// NextChunk returns how many of n tokens Feed evaluates in its first forward pass. Feeding chunks
// of these lengths one by one gives the bits of one Feed of all n.
func (s *Session) NextChunk(n int) int {
	return int(s.engine.plan.ChunkLen(int64(s.Pos()), int64(n)))
}

// FeedLogits appends up to MaxLogitRows tokens in one forward pass and keeps the logits of each
// token for Logits, with the same bits as one by one. It computes nothing if the tokens do not fit.
func (s *Session) FeedLogits(ctx context.Context, ids []int32) error {
	if err := s.check(ids); err != nil {
		return err
	}
	if len(ids) > s.MaxLogitRows() {
		return fmt.Errorf("the logits of %d tokens, expected at most the %d of one forward pass", len(ids), s.MaxLogitRows())
	}
	return s.feed(ctx, ids, len(ids), 0)
}

// DecodeBatch appends one token to each of several sessions of one engine, in one forward pass, and
// keeps its logits as the session's Logits(0). It computes nothing if one of the tokens does not
// fit.
func DecodeBatch(ctx context.Context, sessions []*Session, ids []int32) error {
	if len(sessions) == 0 || len(ids) != len(sessions) {
		return fmt.Errorf("%d tokens for %d sessions, expected one for each", len(ids), len(sessions))
	}
	e := sessions[0].engine
	b := sessions[0].batch
	if limit := len(b.Rows); len(ids) > limit {
		return fmt.Errorf("the logits of %d sessions, expected at most the %d that the plan gives in a forward pass", len(ids), limit)
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
	if err := e.Forward(ctx, &b); err != nil {
		return err
	}
	for i, s := range sessions {
		s.rows = rows{e.passes, i, 1}
	}
	return nil
}

// Logits returns the logits of the i-th token of the last FeedLogits or DecodeBatch,
// f32[vocabulary], in a view that is valid until the engine's next forward pass. It is nil after
// that pass, if there is no such token, and if FeedTopK left the logits on a device.
func (s *Session) Logits(i int) []float32 {
	if s.closed || s.rows.pass != s.engine.passes || i < 0 || i >= s.rows.n {
		return nil
	}
	return s.engine.Logits(s.rows.first + i)
}

// usable returns an error if the session or its engine is closed.
func (s *Session) usable() error {
	switch {
	case s.closed:
		return ErrClosed
	case s.engine.closed:
		return ErrEngineClosed
	}
	return nil
}

// check returns an error if tokens do not fit the context or the vocabulary.
func (s *Session) check(ids []int32) error {
	if err := s.usable(); err != nil {
		return err
	}
	if len(ids) == 0 {
		return fmt.Errorf("no tokens to evaluate, expected at least one")
	}
	if len(ids) > s.Remaining() {
		return &kindError{ErrContextFull, fmt.Sprintf("%d tokens at position %d do not fit the context of %d positions; shorten the text, or compile for a larger context", len(ids), s.Pos(), s.engine.ctx)}
	}
	for _, id := range ids {
		if err := s.engine.checkToken(id); err != nil {
			return err
		}
	}
	return nil
}

// feed evaluates tokens in one forward pass, with the logits of the last wanted ones: all logits,
// or at least the greatest topK if that is not 0.
func (s *Session) feed(ctx context.Context, ids []int32, wanted, topK int) error {
	b, pos, n := s.batch, s.Pos(), len(ids)
	b.Tokens, b.Pos, b.Seq, b.Rows = b.Tokens[:n], b.Pos[:n], b.Seq[:n], b.Rows[:wanted]
	copy(b.Tokens, ids)
	for t := range n {
		b.Pos[t], b.Seq[t] = int32(pos+t), s.seq
	}
	for r := range wanted {
		b.Rows[r] = int32(n - wanted + r)
	}
	b.TopK = topK
	if err := s.engine.Forward(ctx, &b); err != nil {
		return err
	}
	s.rows = rows{s.engine.passes, 0, wanted}
	return nil
}

// Truncate removes the positions from n on. If CheckTruncate returns an error, Truncate returns it
// and changes nothing.
func (s *Session) Truncate(n int) error {
	if err := s.usable(); err != nil {
		return err
	}
	if err := s.CheckTruncate(n); err != nil {
		return err
	}
	s.engine.hold(s.seq, n)
	return nil
}

// CheckTruncate returns an error if the session has fewer than n positions, or if a layer with a
// window no longer holds the positions that a token at n sees. The session must not be closed.
// CheckTruncate may be called while another goroutine runs a forward pass of other sessions.
func (s *Session) CheckTruncate(n int) error {
	state := &s.engine.sequences[s.seq]
	if n < 0 || n > state.length {
		return fmt.Errorf("truncating to %d positions, expected 0 to the session's %d", n, state.length)
	}
	return s.engine.checkStart(state, int(s.seq), n)
}

// Reset removes all positions.
func (s *Session) Reset() {
	if !s.closed {
		s.engine.hold(s.seq, 0)
	}
}

// Close frees the sequence for other sessions. A second call does nothing.
func (s *Session) Close() {
	if s.closed {
		return
	}
	s.Reset()
	s.engine.sequences[s.seq].taken = false
	s.closed = true
}
