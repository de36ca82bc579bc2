package bench

import (
	"context"
	"fmt"

	"pesti/exec"
	"pesti/exec/sample"
	"pesti/exec/speculate"
)

// A Paired is the result of a test whose runs alternate with plain decoding of one token of one sequence a
// step.
type Paired struct {
	PlainTS float64 `json:"plain_ts"` // plain decoding, in tokens per second
	Ratio   float64 `json:"ratio"`    // the test's tokens per second ÷ plain_ts, the median of the runs

	Proposed int `json:"proposed,omitempty"` // drafted tokens of one run
	Accepted int `json:"accepted,omitempty"`
}

// AddPaired appends paired tests for each test that generates tokens: one with drafts of up to
// draftTokens tokens, and one with several sequences if sequences is more than 1. text is the number of
// tokens in Options.Text, 0 if it is nil.
func AddPaired(tests []Test, draftTokens, text, sequences int) []Test {
	if text == 0 {
		text = repeated
	}
	for _, t := range tests {
		if t.NGen == 0 {
			continue
		}
		if draftTokens > 0 {
			g := t
			g.Name, g.DraftTokens, g.NDepth = t.Name+fmt.Sprintf(" draft%d", draftTokens), draftTokens, t.NDepth+text
			tests = append(tests, g)
		}
		if sequences > 1 {
			s := t
			s.Name, s.Sequences = t.Name+fmt.Sprintf(" x%d", sequences), sequences
			tests = append(tests, s)
		}
	}
	return tests
}

// isPaired reports whether the runs of a test alternate with plain decoding.
func (t *Test) isPaired() bool { return t.DraftTokens > 0 || t.Sequences > 0 }

// apart is the difference in length, in tokens, of successive sequences.
const apart = 3

// Length of the default text in tokens, and of the passage that it repeats.
const (
	repeated = 96
	passage  = 32
)

// clockPlain returns the time of plain decoding for the test's tokens, or for one sequence's tokens
// if the test has several.
func (b *Bencher) clockPlain(ctx context.Context, t *Test) (seconds float64, err error) {
	if t.DraftTokens > 0 {
		return b.clockGreedy(ctx, t, 0)
	}
	one := *t
	one.Sequences = 0
	return b.clockOne(ctx, &one)
}

// prompt returns n tokens to continue: random tokens followed by the text, or a repeated passage.
func (b *Bencher) prompt(n int) []int32 {
	if b.o.Text != nil {
		return append(randomIDs(n-len(b.o.Text), b.vocab), b.o.Text...)
	}
	ids := randomIDs(passage, b.vocab)
	for len(ids) < n {
		ids = append(ids, ids[len(ids)-passage])
	}
	return ids
}

// clockGreedy continues a text greedily, with drafts of up to draftTokens tokens. The tokens are the same with
// and without drafts.
func (b *Bencher) clockGreedy(ctx context.Context, t *Test, draftTokens int) (seconds float64, err error) {
	s := b.sessions[0]
	text := b.prompt(t.NDepth)
	s.Reset()
	row, err := s.FeedTopK(ctx, text, 1)
	if err != nil {
		return 0, err
	}
	feed := func(next []int32) (exec.Row, error) { return s.FeedTopK(ctx, next, 1) }
	var decoder *speculate.Decoder
	if draftTokens > 0 {
		if decoder, err = speculate.New(s, speculate.NewLookup(text, len(text)+s.Remaining()), draftTokens); err != nil {
			return 0, err
		}
		feed = func(next []int32) (exec.Row, error) {
			logits, err := decoder.Feed(ctx, next[0])
			return exec.Row{Logits: logits}, err
		}
	}
	greedy := sample.Default()
	greedy.Temp = 0
	sampler, err := sample.New(greedy, b.vocab)
	if err != nil {
		return 0, err
	}
	next := make([]int32, 1)
	seconds, err = b.timed(func() error {
		for i := range t.NGen {
			if err := ctx.Err(); err != nil {
				return err
			}
			if row.IDs != nil {
				next[0], err = sampler.SampleTop(i, row.IDs, row.Logits)
			} else {
				next[0], err = sampler.Sample(i, row.Logits)
			}
			if err != nil {
				return err
			}
			if row, err = feed(next); err != nil {
				return err
			}
		}
		return nil
	})
	if decoder != nil && err == nil {
		t.Paired.Proposed, t.Paired.Accepted = decoder.Proposed(), decoder.Accepted()
		err = decoder.DropDraft()
	}
	return seconds, err
}

// clockSequences returns the time to generate for all sequences at once. Each is longer than the
// one before it.
func (b *Bencher) clockSequences(ctx context.Context, t *Test) (seconds float64, err error) {
	n := t.Sequences
	ids := randomIDs(t.Positions(), b.vocab)
	for i, s := range b.sessions[:n] {
		if err := seek(ctx, s, ids[:t.NDepth+apart*i]); err != nil {
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
			if err := exec.DecodeBatch(ctx, b.sessions[:n], next); err != nil {
				return err
			}
		}
		return nil
	})
}
