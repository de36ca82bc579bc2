package pesti

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"pesti/exec"
)

// A Session is one sequence of a model: the tokens that it was fed and has generated, with their
// cache. It allows one call at a time; another call during it, from another goroutine or from the
// body of a loop over its Generate, returns ErrBusy and changes nothing. Logits and Result belong
// to the goroutine that made the last call. Pos may be called at any time.
type Session struct {
	model   *Model
	session *exec.Session // nil after Close; may have more tokens than pos, see settle
	pos     atomic.Int64
	busy    atomic.Bool
	logits  []float32 // copy of the logits of the last token of Feed; empty if there are none
	result  Result
}

// lock marks the session as in use. unlock ends that.
func (s *Session) lock() error {
	if !s.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("the session is %w", ErrBusy)
	}
	return nil
}

func (s *Session) unlock() { s.busy.Store(false) }

// begin locks a session that is open, and checks the context.
func (s *Session) begin(ctx context.Context) error {
	if ctx == nil {
		return exec.ErrNilContext
	}
	if s.model == nil {
		return fmt.Errorf("the session is %w", ErrClosed) // it was never open
	}
	if err := s.lock(); err != nil {
		return err
	}
	err := s.model.usable()
	if s.session == nil {
		err = fmt.Errorf("the session is %w", ErrClosed)
	}
	if err != nil {
		s.unlock()
	}
	return err
}

// Pos returns the number of tokens that the session has. It does not wait for a forward pass.
func (s *Session) Pos() int { return int(s.pos.Load()) }

// remaining returns the number of free positions in the context.
func (s *Session) remaining() int { return int(s.model.Plan().Target.Ctx) - s.Pos() }

// Feed appends tokens to the session. If they do not fit, the error is ErrContextFull and nothing
// changes. If ctx ends, the session keeps the tokens of the completed forward passes: see Pos.
func (s *Session) Feed(ctx context.Context, ids []int32) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.unlock()
	if err := s.check(ids); err != nil {
		return err
	}
	s.logits = s.logits[:0]
	for done := 0; done < len(ids); {
		n, _, err := s.feedChunk(ctx, ids[done:], 0, func(row exec.Row) error {
			s.logits = append(s.logits, row.Logits...)
			return nil
		})
		if err != nil {
			return translate(err)
		}
		done += n
	}
	return nil
}

// check returns an error if tokens cannot be appended to the session.
func (s *Session) check(ids []int32) error {
	if len(ids) == 0 {
		return errors.New("no tokens, expected at least one")
	}
	if left := s.remaining(); len(ids) > left {
		return fmt.Errorf("%d tokens at position %d, and %d positions are left: %w", len(ids), s.Pos(), left, ErrContextFull)
	}
	return checkIDs(ids, s.session.Vocabulary())
}

// feedChunk appends as many of the tokens as one forward pass takes, and returns their number. Other sessions
// run between the chunks of a prompt. If the last token is among them, feedChunk calls use with its logits, a
// view, before another pass can overwrite them. took is the time of the pass, without waiting for other sessions.
func (s *Session) feedChunk(ctx context.Context, ids []int32, topK int, use func(exec.Row) error) (n int, took time.Duration, err error) {
	if err := s.model.take(ctx); err != nil {
		return 0, 0, err
	}
	defer s.model.release()
	begin := time.Now()
	if err := s.settle(); err != nil {
		return 0, 0, err
	}
	n = s.session.NextChunk(len(ids))
	row, err := s.session.FeedTopK(ctx, ids[:n], topK)
	if err != nil {
		return 0, 0, err
	}
	took = time.Since(begin)
	s.pos.Add(int64(n))
	if n == len(ids) {
		err = use(row)
	}
	return n, took, err
}

// settle removes the tokens from the engine's sequence that the session does not have: the tokens of an
// earlier session on this sequence, the tokens that Truncate removed, and the drafts of a generation that
// ended. Removing them needs the engine. It is done before the next forward pass, so that Close, Truncate and
// the end of a generation do not wait for the engine.
func (s *Session) settle() error {
	if pos := s.Pos(); s.session.Pos() != pos {
		return s.session.Truncate(pos)
	}
	return nil
}

// Logits returns a copy of the logits for the token after the last Feed. It is nil if Feed was not
// the last call that changed the session.
func (s *Session) Logits() []float32 {
	if len(s.logits) == 0 {
		return nil
	}
	return slices.Clone(s.logits)
}

// Truncate removes the tokens from position n on. It is an error, and changes nothing, if a layer
// with a window no longer holds the positions before n that it needs. It does not wait for a
// forward pass.
func (s *Session) Truncate(n int) error {
	if err := s.begin(context.Background()); err != nil {
		return err
	}
	defer s.unlock()
	if pos := s.Pos(); n < 0 || n > pos {
		return fmt.Errorf("truncating to %d positions, expected 0 to the session's %d", n, pos)
	}
	if err := s.session.CheckTruncate(n); err != nil {
		return err
	}
	s.pos.Store(int64(n))
	s.logits = s.logits[:0]
	return nil
}

// Generate appends a text to the session and continues it: see Model.Generate. The BOS token is
// added only before the first text of a session. The session keeps the prompt and the generated
// tokens except the last one, which was not evaluated. If ctx ends while the prompt is tokenized,
// the session does not change.
func (s *Session) Generate(ctx context.Context, prompt string, p Params) iter.Seq2[Piece, error] {
	return s.generate(ctx, p, func() ([]int32, error) {
		if prompt == "" {
			return nil, errors.New("the prompt is empty, expected some text")
		}
		return s.model.encode(ctx, prompt, s.Pos() == 0)
	})
}

// GenerateIDs is Generate for a prompt of token ids.
func (s *Session) GenerateIDs(ctx context.Context, prompt []int32, p Params) iter.Seq2[Piece, error] {
	return s.generate(ctx, p, func() ([]int32, error) { return prompt, nil })
}

// Result returns the counts and times of the last generation, even if it ended early.
func (s *Session) Result() Result { return s.result }

// Close frees the sequence. A second call does nothing. While a generation of the session runs, it
// returns ErrBusy. It does not wait for a forward pass.
func (s *Session) Close() error {
	if err := s.lock(); err != nil {
		return err
	}
	defer s.unlock()
	if s.session == nil {
		return nil
	}
	s.model.giveBack(s.session)
	s.session, s.logits = nil, nil
	s.pos.Store(0)
	return nil
}
