package main

import (
	"cmp"
	"context"
	"math"
	"time"

	lib "pesti"
)

// Reasons why a generation stopped, in addition to those of package pesti.
const (
	stopInterrupt = "interrupt" // by the user
	stopClosed    = "closed"    // the reader of the output closed it
)

// generate writes the continuation of a prompt as it is generated. Also after an error, the text up
// to there is written and the result holds the counts so far.
func (a *app) generate(ctx context.Context, s *lib.Session, prompt []int32, o *runOptions) (lib.Result, error) {
	if o.tokens.n == 0 {
		begin := time.Now()
		err := s.Feed(ctx, prompt)
		return lib.Result{Stop: lib.StopLength, PromptTokens: len(prompt), PromptTime: time.Since(begin)}, err
	}
	var text []byte
	for piece, err := range s.GenerateIDs(ctx, prompt, o.generation()) {
		if text = append(text[:0], piece.Text...); len(text) > 0 {
			_, failed := a.stdout.Write(text)
			err = cmp.Or(err, failed)
		}
		if err != nil {
			return s.Result(), err
		}
	}
	return s.Result(), nil
}

// generation returns the parameters of a generation from the flags.
func (o *runOptions) generation() lib.Params {
	p := lib.Params{
		Temp: o.params.Temp, TopK: o.params.TopK, TopP: o.params.TopP, MinP: o.params.MinP,
		RepeatPenalty: o.params.RepeatPenalty, RepeatLast: o.params.RepeatLast, Seed: o.params.Seed,
		Stop: o.stops, IgnoreEOG: o.ignoreEOS, Speculate: int(o.drafts.most.n),
	}
	if p.TopP == 0 { // which is "off" in Params, and here the most likely token
		p.TopP = math.SmallestNonzeroFloat64
	}
	if o.tokens.n > 0 {
		p.MaxTokens = int(min(o.tokens.n, math.MaxInt32))
	}
	return p
}
