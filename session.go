package pesti

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"pesti/exec"
)

// A Session is one sequence of a model: the tokens that it was fed and has generated, with their cache. It
// takes one call at a time; a call from another goroutine meanwhile, or from the body of a loop over its
// Generate, returns ErrBusy and changes nothing. Logits and Result belong to the goroutine that made the last
// call.
type Session struct {
	model   *Model
	session *exec.Session
	busy    atomic.Bool
	logits  []float32 // of the last token fed by Feed, a copy; empty where there is none
	result  Result
}

// begin marks the session as in use and checks its context.
func (s *Session) begin(ctx context.Context) error {
	if ctx == nil {
		return exec.ErrNilContext
	}
	if !s.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("the session is %w", ErrBusy)
	}
	return nil
}

// Pos returns the number of tokens that the session has.
func (s *Session) Pos() int {
	s.model.turn <- struct{}{}
	defer s.model.release()
	return s.session.Pos()
}

// Feed appends tokens to the session. Where they do not fit, the error is ErrContextFull and nothing
// changes. Where ctx ends, the session keeps the tokens of the forward passes before: see Pos.
func (s *Session) Feed(ctx context.Context, ids []int32) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.busy.Store(false)
	s.logits = s.logits[:0]
	_, err := s.feed(ctx, ids, 0, func(row exec.Row) error {
		s.logits = append(s.logits, row.Logits...)
		return nil
	})
	return err
}

// feed appends tokens, chunk by chunk, so that other sessions get their turns. It calls use with the logits
// of the last one, a view, before another pass can overwrite them. It returns how many tokens it appended.
func (s *Session) feed(ctx context.Context, ids []int32, topK int, use func(exec.Row) error) (done int, err error) {
	if len(ids) == 0 {
		return 0, errors.New("no tokens, expected at least one")
	}
	for done < len(ids) {
		n, err := s.feedChunk(ctx, ids, done, topK, use)
		if err != nil {
			return done, translate(err)
		}
		done += n
	}
	return done, nil
}

func (s *Session) feedChunk(ctx context.Context, ids []int32, done, topK int, use func(exec.Row) error) (n int, err error) {
	if err := s.model.take(ctx); err != nil {
		return 0, err
	}
	defer s.model.release()
	if done == 0 && !s.model.closed.Load() {
		if err := checkIDs(ids, s.session.Vocabulary()); err != nil {
			return 0, err
		}
		if left := s.session.Remaining(); len(ids) > left {
			return 0, fmt.Errorf("%d tokens at position %d, and %d positions are left: %w", len(ids), s.session.Pos(), left, ErrContextFull)
		}
	}
	n = len(ids) - done
	if !s.model.closed.Load() {
		n = s.session.NextChunk(n)
	}
	row, err := s.session.FeedTopK(ctx, ids[done:done+n], topK)
	if err == nil && done+n == len(ids) {
		err = use(row)
	}
	return n, err
}

// Logits returns the logits of the token that follows those of the last Feed, a copy; nil where Feed was not
// the last call that changed the session.
func (s *Session) Logits() []float32 {
	if len(s.logits) == 0 {
		return nil
	}
	return slices.Clone(s.logits)
}

// Truncate forgets the tokens from position n on. Where a layer with a window has forgotten what comes
// before n, that is an error and nothing changes.
func (s *Session) Truncate(n int) error {
	if err := s.begin(context.Background()); err != nil {
		return err
	}
	defer s.busy.Store(false)
	s.model.turn <- struct{}{}
	defer s.model.release()
	if err := s.session.Truncate(n); err != nil {
		return translate(err)
	}
	s.logits = s.logits[:0]
	return nil
}

// Generate appends a text to the session and continues it: see Model.Generate. The token that texts begin
// with comes only before the first text of a session. The session keeps the prompt and the generated tokens
// except the last one, which was not evaluated.
func (s *Session) Generate(ctx context.Context, prompt string, p Params) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		if prompt == "" {
			yield(Piece{ID: -1}, errors.New("the prompt is empty, expected some text"))
			return
		}
		ids, err := s.model.encode(prompt, s.Pos() == 0)
		if err != nil {
			yield(Piece{ID: -1}, err)
			return
		}
		s.generate(ctx, ids, p, yield)
	}
}

// GenerateIDs is Generate for a prompt of token ids.
func (s *Session) GenerateIDs(ctx context.Context, prompt []int32, p Params) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) { s.generate(ctx, prompt, p, yield) }
}

// Result returns the counts and times of the last generation, also of one that ended early.
func (s *Session) Result() Result { return s.result }

// Close gives the sequence back to the model. A second time it does nothing. While a generation runs it
// returns ErrBusy.
func (s *Session) Close() error {
	if err := s.begin(context.Background()); err != nil {
		return err
	}
	defer s.busy.Store(false)
	s.model.turn <- struct{}{}
	defer s.model.release()
	if !s.model.closed.Load() {
		s.session.Close()
	}
	s.logits = nil
	return nil
}
