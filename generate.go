package pesti

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"pesti/exec"
	"pesti/exec/sample"
	"pesti/exec/speculate"
	"pesti/frontend/tokenizer"
)

// A Piece is a generated token, or at the end the held-back text.
type Piece struct {
	ID      int32   // of the token; -1 in the last piece, which has no token
	Text    string  // text that can be shown now; "" if the next token may continue a character or a stop text
	Logprob float32 // natural logarithm of the token's probability, before sampling; 0 unless Params.Logprobs
	Result  *Result // in the last piece, nil in all others
}

// Reasons why a generation ended.
const (
	StopEOG      = "eog"      // the model ended it
	StopLength   = "length"   // Params.MaxTokens were generated
	StopText     = "stop"     // a text of Params.Stop was generated
	StopContext  = "context"  // the context is full
	StopCanceled = "canceled" // an error, or the end of the context.Context
	StopBreak    = "break"    // the caller left the loop
)

// A Result has the counts and times of a generation.
type Result struct {
	Stop         string        // one of the constants above
	PromptTokens int           // that were evaluated
	PromptTime   time.Duration // of their forward passes, without waiting for other sequences
	Tokens       int           // that were generated
	Evaluated    int           // number of evaluated tokens among them: all but the last one
	DecodeTime   time.Duration // of their forward passes, without waiting for other sequences
	Proposed     int           // draft tokens, with Params.Speculate
	Accepted     int           // accepted draft tokens
}

// Generate continues a prompt, token by token. The last piece has an ID of -1, the held-back text,
// and the Result; it is also yielded with an error. Its Result is nil if the generation did not
// begin because of invalid input or ErrNoSequence. The iteration uses a free sequence and frees it
// when it ends, also after a break or a panic of the loop's body. If no sequence is free, the error
// is ErrNoSequence. Generations of several goroutines take turns, forward pass by forward pass, and
// each has the tokens that it would have alone.
//
// The prompt is tokenized as by Tokenize. The end of ctx ends the generation with an error that is
// context.Cause(ctx): within milliseconds while a long prompt is tokenized, at once while another
// sequence's forward pass runs, and in its own pass after the wave that runs, see exec.Engine.Forward. In the steady state no memory is allocated per
// token; the text of about a thousand tokens shares one string.
func (m *Model) Generate(ctx context.Context, prompt string, p Params) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		s, err := m.NewSession()
		if err != nil {
			yield(Piece{ID: -1}, err)
			return
		}
		defer s.Close()
		s.Generate(ctx, prompt, p)(yield)
	}
}

// A generation is one call of generate.
type generation struct {
	session *Session
	params  *Params
	sampler *sample.Sampler
	decoder *speculate.Decoder // nil without speculation
	topK    int                // number of greatest logits that are needed, 0: all
	stops   *tokenizer.StopMatcher
	control []int32 // control tokens among the stop texts, which add no text
	stream  tokenizer.Stream
	piece   []byte // bytes of the last token
	texts   texts
	next    [1]int32
	logprob float32
}

// generate continues a prompt. Between tokens only the session is locked, so the loop's body may do
// anything, including a panic.
func (s *Session) generate(ctx context.Context, p Params, prompt func() ([]int32, error)) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		if err := s.begin(ctx); err != nil {
			yield(Piece{ID: -1}, err)
			return
		}
		defer s.unlock()
		s.result = Result{}
		g, ids, err := s.newGeneration(&p, prompt)
		if err != nil {
			last := Piece{ID: -1}
			if end := ctx.Err(); end != nil && errors.Is(err, end) {
				s.result.Stop = StopCanceled
				result := s.result
				last.Result = &result
			}
			yield(last, err)
			return
		}
		s.logits = s.logits[:0]
		s.result.Stop = StopBreak
		goOn, err := g.run(ctx, ids, yield)
		if !goOn {
			return
		}
		if err != nil {
			s.result.Stop = StopCanceled
		}
		held := g.texts.add(g.stream.Write(g.stops.Flush())) + g.texts.add(g.stream.Flush())
		result := s.result
		yield(Piece{ID: -1, Text: held, Result: &result}, err)
	}
}

// newGeneration makes all checks that are possible before the first forward pass. It also returns
// the prompt's tokens.
func (s *Session) newGeneration(p *Params, prompt func() ([]int32, error)) (*generation, []int32, error) {
	sampler, err := p.check(s.session)
	if err != nil {
		return nil, nil, err
	}
	ids, err := prompt()
	if err == nil {
		err = s.check(ids)
	}
	if err != nil {
		return nil, nil, err
	}
	g := &generation{session: s, params: p, sampler: sampler, stops: tokenizer.NewStopMatcher(p.Stop)}
	for _, text := range p.Stop {
		g.control = append(g.control, s.model.tokenizer.Controls(text)...)
	}
	if p.Speculate == 0 && !p.Logprobs {
		g.topK = sampler.TopKNeeded()
	}
	return g, ids, nil
}

// run evaluates the prompt and yields tokens. It reports whether the caller still listens.
func (g *generation) run(ctx context.Context, prompt []int32, yield func(Piece, error) bool) (goOn bool, err error) {
	s, r := g.session, &g.session.result
	if err := g.prompt(ctx, prompt); err != nil {
		return true, err
	}
	limit, stop := s.remaining(), StopContext
	if n := g.params.MaxTokens; n > 0 && n <= limit {
		limit, stop = n, StopLength
	}
	for r.Tokens < limit {
		if r.Tokens > 0 {
			if err := g.decode(ctx); err != nil {
				return true, err
			}
		}
		id := g.next[0]
		if !g.params.IgnoreEOG && s.model.ends[id] {
			stop = StopEOG
			break
		}
		g.sampler.Accept(id)
		r.Tokens++
		g.piece = s.model.tokenizer.AppendPiece(g.piece[:0], id)
		text, stopped := g.stops.Write(g.piece)
		if !yield(Piece{ID: id, Text: g.texts.add(g.stream.Write(text)), Logprob: g.logprob}, nil) {
			return false, nil
		}
		if stopped || slices.Contains(g.control, id) {
			stop = StopText
			break
		}
	}
	r.Stop = stop
	return true, nil
}

// prompt evaluates the prompt and draws the first token.
func (g *generation) prompt(ctx context.Context, prompt []int32) error {
	s, r := g.session, &g.session.result
	var spent time.Duration
	s.model.options.progress("prompt", 0, len(prompt))
	for done := 0; done < len(prompt); {
		n, took, err := s.feedChunk(ctx, prompt[done:], g.topK, g.takeFirst(prompt))
		if err != nil {
			return translate(err)
		}
		done, spent = done+n, spent+took
		s.model.options.progress("prompt", done, len(prompt))
	}
	r.PromptTokens, r.PromptTime = len(prompt), spent
	return nil
}

// takeFirst returns the function that handles the logits of the prompt's last token.
func (g *generation) takeFirst(prompt []int32) func(exec.Row) error {
	return func(row exec.Row) (err error) {
		for _, id := range prompt {
			g.sampler.Accept(id)
		}
		if n := g.params.Speculate; n > 0 {
			s := g.session.session
			if g.decoder, err = speculate.New(s, speculate.NewLookup(prompt, len(prompt)+s.Remaining()), n); err != nil {
				return err
			}
		}
		return g.take(row)
	}
}

// decode evaluates the token that was drawn and draws the next one.
func (g *generation) decode(ctx context.Context) error {
	s := g.session
	if err := s.model.take(ctx); err != nil {
		return err
	}
	defer s.model.release()
	begin := time.Now()
	var row exec.Row
	var err error
	if d := g.decoder; d != nil {
		row.Logits, err = d.Feed(ctx, g.next[0])
		s.result.Proposed, s.result.Accepted = d.Proposed(), d.Accepted()
	} else {
		row, err = s.session.FeedTopK(ctx, g.next[:], g.topK)
	}
	if err != nil {
		return translate(err)
	}
	s.pos.Add(1)
	s.result.Evaluated++
	s.result.DecodeTime += time.Since(begin)
	return g.take(row)
}

// take draws a token from a row of logits. The row is a view, so the caller must hold the engine.
func (g *generation) take(row exec.Row) (err error) {
	if row.IDs != nil {
		g.next[0], err = g.sampler.SampleTop(g.session.result.Tokens, row.IDs, row.Logits)
		return err
	}
	g.next[0], err = g.sampler.Sample(g.session.result.Tokens, row.Logits)
	if err == nil && g.params.Logprobs {
		g.logprob = logprob(row.Logits, g.next[0])
	}
	return err
}

// logprob returns the natural logarithm of a token's probability: its logit minus log Σ exp.
func logprob(logits []float32, id int32) float32 {
	most := math.Inf(-1)
	for _, l := range logits {
		most = max(most, float64(l))
	}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l) - most)
	}
	return float32(float64(logits[id]) - most - math.Log(sum))
}

// texts converts bytes to strings. Strings are parts of blocks that are never rewritten, so there
// is one allocation per block and not per token.
type texts struct{ block strings.Builder }

const textBlock = 4096

func (t *texts) add(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	if t.block.Cap()-t.block.Len() < len(text) {
		t.block.Reset()
		t.block.Grow(max(textBlock, len(text)))
	}
	at := t.block.Len()
	t.block.Write(text)
	return t.block.String()[at:]
}
