package pesti

import (
	"cmp"
	"slices"

	"pesti/exec"
	"pesti/exec/sample"
)

// Params configure a generation. The zero value always takes the most likely token.
type Params struct {
	MaxTokens int // most tokens to generate; 0: until the end of generation or of the context

	Temp          float64 // temperature; 0 takes the most likely token
	TopK          int     // sample from the K most likely tokens; 0: all
	TopP          float64 // sample from the smallest set of tokens whose probabilities add up to this; 0: all
	MinP          float64 // sample from tokens with at least this fraction of the highest probability; 0: all
	RepeatPenalty float64 // make recent tokens, also those of the prompt, less likely; 0 and 1: off
	RepeatLast    int     // number of recent tokens; 0: 64
	Seed          int64   // seed of the random numbers; sample.RandomSeed takes a new one each time

	Stop      []string // end before the first of these texts, or at a control token of that name
	IgnoreEOG bool     // continue after the model's end-of-generation token
	Logprobs  bool     // set Piece.Logprob, which needs all logits of each token

	// Speculate is the largest number of draft tokens that one forward pass verifies; 0 is off.
	// Drafts make repetitive texts faster and never change the text. The plan needs rows of logits
	// for one token more than that: see lower.Options.Rows.
	Speculate int
}

// sampling returns the parameters of the sampler.
func (p *Params) sampling() sample.Params {
	return sample.Params{
		Temp: p.Temp, TopK: p.TopK, TopP: cmp.Or(p.TopP, 1), MinP: p.MinP,
		RepeatPenalty: cmp.Or(p.RepeatPenalty, 1), RepeatLast: cmp.Or(p.RepeatLast, 64), Seed: p.Seed,
	}
}

// check returns a sampler for a session's vocabulary, or an error for parameters that are invalid
// for the session.
func (p *Params) check(session *exec.Session) (*sample.Sampler, error) {
	switch limit := session.MaxLogitRows() - 1; {
	case p.MaxTokens < 0:
		return nil, optionErrorf("MaxTokens", "is %d, expected 0 or more", p.MaxTokens)
	case p.Speculate < 0:
		return nil, optionErrorf("Speculate", "is %d, expected 0 or more", p.Speculate)
	case p.Speculate > max(limit, 0):
		return nil, optionErrorf("Speculate", "is %d, expected at most %d: the plan gives the logits of up to %d tokens of a forward pass", p.Speculate, limit, limit+1)
	case p.Speculate > 0 && p.Logprobs:
		return nil, optionErrorf("Logprobs", "is set, expected it unset with Speculate")
	case slices.Contains(p.Stop, ""):
		return nil, optionErrorf("Stop", "has an empty text, expected the text to stop before")
	}
	s, err := sample.New(p.sampling(), session.Vocabulary())
	return s, translate(err)
}
