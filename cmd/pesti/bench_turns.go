package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"pesti/exec"
	"pesti/exec/sample"
)

// This file has the tests of bench that are measured by turns with plain decoding, of one token of
// one sequence a step, since what they tell is the ratio.

// A bencher is what tests run on.
type bencher struct {
	engine   *exec.Engine
	sessions []*exec.Session // as many as the plan has sequences
	guess    *guessing
	text     []int32 // that is continued with guesses, nil: one that repeats itself
	vocab    int
	profiled bool // whether the run in progress is one of those that are told
}

// A turns is what was measured by turns with a test.
type turns struct {
	PlainTS float64 `json:"plain_ts"` // plain decoding, in tokens per second
	Ratio   float64 `json:"ratio"`    // the test's tokens per second ÷ those, the median of the runs

	Proposed int `json:"proposed,omitempty"` // guesses of one run
	Accepted int `json:"accepted,omitempty"` // that came true
}

// withTurns adds, behind the tests that generate tokens, those with guesses and those of several
// sequences, where they are asked for.
func (b *bencher) withTurns(tests []benchResult, sequences int) []benchResult {
	guesses, text := int(b.guess.most.n), len(b.text)
	if b.text == nil {
		text = repeated
	}
	for _, t := range tests {
		if t.NGen == 0 {
			continue
		}
		if guesses > 0 {
			g := t
			g.Test, g.Guesses, g.NDepth = t.Test+fmt.Sprintf(" guess%d", guesses), guesses, t.NDepth+text
			tests = append(tests, g)
		}
		if sequences > 1 {
			s := t
			s.Test, s.Sequences = t.Test+fmt.Sprintf(" x%d", sequences), sequences
			tests = append(tests, s)
		}
	}
	return tests
}

// positions returns how much of the context a test takes.
func (r *benchResult) positions() int {
	return r.NDepth + apart*max(r.Sequences-1, 0) + r.NPrompt + r.NGen
}

// byTurns tells whether a test is measured by turns with plain decoding.
func (r *benchResult) byTurns() bool { return r.Guesses > 0 || r.Sequences > 0 }

// apart is how many tokens a sequence has more than the one before it.
const apart = 3

// A text that repeats itself: so many tokens, of which passage are different.
const (
	repeated = 96
	passage  = 32
)

// clock returns how long a test takes once its depth is reached.
func (b *bencher) clock(ctx context.Context, t *benchResult) (seconds float64, err error) {
	switch {
	case t.Guesses > 0:
		return b.clockGreedy(ctx, t, b.guess)
	case t.Sequences > 0:
		return b.clockTogether(ctx, t)
	}
	return b.clockOne(ctx, t)
}

// clockPlain returns how long the same tokens take by plain decoding, of several sequences those of one.
func (b *bencher) clockPlain(ctx context.Context, t *benchResult) (seconds float64, err error) {
	if t.Guesses > 0 {
		return b.clockGreedy(ctx, t, &guessing{})
	}
	one := *t
	one.Sequences = 0
	return b.clockOne(ctx, &one)
}

// context returns n tokens to continue with guesses: the text behind others, or a passage again and again.
func (b *bencher) context(n int) []int32 {
	if b.text != nil {
		return append(randomIDs(n-len(b.text), b.vocab), b.text...)
	}
	ids := randomIDs(passage, b.vocab)
	for len(ids) < n {
		ids = append(ids, ids[len(ids)-passage])
	}
	return ids
}

// clockGreedy continues a text greedily: with guesses the same tokens come as without.
func (b *bencher) clockGreedy(ctx context.Context, t *benchResult, guess *guessing) (seconds float64, err error) {
	s := b.sessions[0]
	text := b.context(t.NDepth)
	s.Reset()
	row, err := s.FeedTop(text, 1)
	if err != nil {
		return 0, err
	}
	decoder, err := guess.decoder(s, text)
	if err != nil {
		return 0, err
	}
	greedy := sample.Default()
	greedy.Temp = 0
	sampler, err := sample.New(greedy, b.vocab)
	if err != nil {
		return 0, err
	}
	g := generator{session: s, decoder: decoder, enough: 1}
	next := make([]int32, 1)
	seconds, err = b.timed(func() error {
		for i := range t.NGen {
			if err := ctx.Err(); err != nil {
				return err
			}
			if next[0], err = take(sampler, i, row); err != nil {
				return err
			}
			if row, err = g.follow(next); err != nil {
				return err
			}
		}
		return nil
	})
	if decoder != nil && err == nil {
		t.Turns.Proposed, t.Turns.Accepted = g.guessed()
		err = decoder.Settle()
	}
	return seconds, err
}

// clockTogether generates for all sequences at a time, each longer than the one before it.
func (b *bencher) clockTogether(ctx context.Context, t *benchResult) (seconds float64, err error) {
	n := t.Sequences
	ids := randomIDs(t.positions(), b.vocab)
	for i, s := range b.sessions[:n] {
		if err := seek(s, ids[:t.NDepth+apart*i]); err != nil {
			return 0, err
		}
	}
	next := make([]int32, n)
	return b.timed(func() error {
		for range t.NGen {
			if err := ctx.Err(); err != nil {
				return err
			}
			for i, s := range b.sessions[:n] {
				next[i] = ids[s.Pos()]
			}
			if err := exec.Together(b.sessions[:n], next); err != nil {
				return err
			}
		}
		return nil
	})
}

// randomIDs returns n tokens. Which ones does not matter to the work, but they are the same in every
// run.
func randomIDs(n, vocab int) []int32 {
	random := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(random.IntN(vocab))
	}
	return ids
}

// cells are what was measured by turns in the table of bench.
func (t *turns) cells() string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf("\t%.2f of the %.2f of plain decoding%s", t.Ratio, t.PlainTS, guesses(t.Proposed, t.Accepted))
}
