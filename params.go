package pesti

import (
	"cmp"
	"slices"

	"pesti/exec"
	"pesti/exec/sample"
)

// Params say how a text is continued. The zero value takes the most likely token each time.
type Params struct {
	MaxTokens int // most tokens to generate; 0: until the end of generation or of the context

	Temp          float64 // temperature; 0 takes the most likely token
	TopK          int     // sample from the K most likely tokens; 0: all
	TopP          float64 // sample from the smallest set of tokens whose probabilities add up to this; 0: all
	MinP          float64 // sample from tokens that are at least this times as likely as the most likely one; 0: all
	RepeatPenalty float64 // make recent tokens, also those of the prompt, less likely; 0 and 1: off
	RepeatLast    int     // how many tokens count as recent; 0: 64
	Seed          int64   // of the random numbers; sample.RandomSeed is another one each time

	Stop      []string // end before the first of these texts
	IgnoreEOG bool     // go on after the model's end of generation
	Logprobs  bool     // fill in Piece.Logprob, which needs all logits of each token

	// Speculate is the most tokens to draft and verify in one forward pass, where the text repeats itself: the
	// same text, in less time. 0 is off. The plan must give the logits of as many tokens and one more: see
	// lower.Options.Rows.
	Speculate int
}

// sampling returns the parameters of the sampler.
func (p *Params) sampling() sample.Params {
	return sample.Params{
		Temp: p.Temp, TopK: p.TopK, TopP: cmp.Or(p.TopP, 1), MinP: p.MinP,
		RepeatPenalty: cmp.Or(p.RepeatPenalty, 1), RepeatLast: cmp.Or(p.RepeatLast, 64), Seed: p.Seed,
	}
}

// check returns an error for parameters that make no sense for a session, and a sampler for its vocabulary.
func (p *Params) check(session *exec.Session) (*sample.Sampler, error) {
	switch limit := session.MaxLogitRows() - 1; {
	case p.MaxTokens < 0:
		return nil, optionErrorf("MaxTokens", "is %d, expected 0 or more", p.MaxTokens)
	case p.TopK < 0:
		return nil, optionErrorf("TopK", "is %d, expected 0 or more", p.TopK)
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
