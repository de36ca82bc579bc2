package main

import (
	"cmp"
	"context"
	"time"

	"pesti/exec"
	"pesti/exec/sample"
	"pesti/exec/speculate"
	"pesti/frontend/tokenizer"
)

// Why a generation stopped.
const (
	stopEOG       = "eog"       // the model ended it
	stopLength    = "length"    // as many tokens as asked for
	stopText      = "stop"      // a stop string came
	stopContext   = "context"   // the context is full
	stopInterrupt = "interrupt" // by the user
	stopClosed    = "closed"    // who read the output has had enough
)

// A generator continues one prompt and writes the text as it comes.
type generator struct {
	app     *app
	session *exec.Session
	tok     *tokenizer.Tokenizer
	params  sample.Params
	stops   *tokenizer.StopMatcher
	stream  tokenizer.Stream
	piece   []byte         // of the last token
	eog     map[int32]bool // empty where they do not stop
	ctx     int            // positions of the session
	guess   *guessing
	enough  int                // of the greatest logits that suffice, 0 for none but all
	decoder *speculate.Decoder // nil where nothing is guessed

	count           int // tokens generated
	prefill, decode meter
}

func newGenerator(a *app, s *source, engine *exec.Engine, tok *tokenizer.Tokenizer, o *runOptions) (*generator, error) {
	session, err := exec.NewSession(engine)
	if err != nil {
		return nil, err
	}
	g := &generator{
		app: a, session: session, tok: tok, params: o.params,
		stops: tokenizer.NewStopMatcher(o.stops),
		eog:   map[int32]bool{},
		ctx:   int(s.plan.Target.Ctx),
		guess: o.guess,
	}
	if !o.ignoreEOS {
		for _, id := range tok.EndOfGeneration() {
			g.eog[id] = true
		}
	}
	return g, nil
}

// generate evaluates the prompt and writes up to most new tokens, −1 for as many as come. It
// returns why it stopped. On an error too, the text up to there has been written.
func (g *generator) generate(ctx context.Context, prompt []int32, most int64) (stop string, err error) {
	limit, stop := int64(g.ctx-len(prompt)), stopContext
	if most >= 0 && most <= limit {
		limit, stop = most, stopLength
	}
	sampler, err := sample.New(g.params, g.session.Vocabulary())
	if err != nil {
		return "", err
	}
	if g.guess.most.n == 0 {
		g.enough = sampler.TopKNeeded()
	}
	row, err := g.feed(ctx, prompt)
	if err != nil {
		return "", err
	}
	for _, id := range prompt {
		sampler.Accept(id)
	}
	if g.decoder, err = g.guess.decoder(g.session, prompt); err != nil {
		return "", err
	}
	next := make([]int32, 1)
	for int64(g.count) < limit {
		begin := time.Now()
		if g.count > 0 {
			if row, err = g.follow(ctx, next); err != nil {
				break
			}
			g.decode.add(1, begin)
		}
		if next[0], err = take(sampler, g.count, row); err != nil {
			break
		}
		if g.eog[next[0]] {
			stop = stopEOG
			break
		}
		sampler.Accept(next[0])
		g.count++
		g.piece = g.tok.AppendPiece(g.piece[:0], next[0])
		text, stopped := g.stops.Write(g.piece)
		if err = g.write(g.stream.Write(text)); err != nil {
			break
		}
		if stopped {
			stop = stopText
			break
		}
		if err = ctx.Err(); err != nil {
			break
		}
	}
	return stop, cmp.Or(err, g.flush())
}

// take draws a token from what is known of a row of logits.
func take(s *sample.Sampler, step int, row exec.Row) (int32, error) {
	if row.IDs != nil {
		return s.SampleTop(step, row.IDs, row.Logits)
	}
	return s.Sample(step, row.Logits)
}

// feed evaluates the prompt step by step, so that it can be interrupted, and returns the logits
// after it.
func (g *generator) feed(ctx context.Context, prompt []int32) (row exec.Row, err error) {
	begin := time.Now()
	for done := 0; done < len(prompt); {
		if err := ctx.Err(); err != nil {
			return row, err
		}
		g.app.progress("prompt: %d of %d tokens", done, len(prompt))
		part := prompt[done : done+g.session.NextChunk(len(prompt)-done)]
		if row, err = g.session.FeedTopK(ctx, part, g.enough); err != nil {
			return row, err
		}
		done += len(part)
	}
	g.app.progress("")
	g.prefill.add(len(prompt), begin)
	return row, nil
}

// follow evaluates the token that was taken and returns the logits after it.
func (g *generator) follow(ctx context.Context, next []int32) (exec.Row, error) {
	if g.decoder != nil {
		logits, err := g.decoder.Feed(ctx, next[0])
		return exec.Row{Logits: logits}, err
	}
	return g.session.FeedTopK(ctx, next, g.enough)
}

// guessed returns how many tokens were guessed, and how many of them came.
func (g *generator) guessed() (proposed, accepted int) {
	if g.decoder == nil {
		return 0, 0
	}
	return g.decoder.Proposed(), g.decoder.Accepted()
}

// write shows text.
func (g *generator) write(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	_, err := g.app.stdout.Write(text)
	return err
}

// flush shows the text that was held because more might have come.
func (g *generator) flush() error {
	if err := g.write(g.stream.Write(g.stops.Flush())); err != nil {
		return err
	}
	return g.write(g.stream.Flush())
}
