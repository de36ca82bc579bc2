package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// maxGuesses is the maximum draft length. With the token before it, a draft still fits the program for few
// tokens, and the logits of so many rows stay small compared with the weights.
const maxGuesses = 30

// A drafting is the option of verbs for speculative decoding.
type drafting struct{ most count }

func addDrafting(cmd *cobra.Command, help string) *drafting {
	g := &drafting{}
	cmd.Flags().Var(&g.most, "speculate", help)
	cmd.Flags().Lookup("speculate").DefValue = "" // 0, which is off
	return g
}

// prepare raises the rows of logits that a MODEL is compiled for, if needed.
func (g *drafting) prepare(s *source) error {
	if g.most.n > maxGuesses {
		return usagef("--speculate is %d, expected at most %d", g.most.n, maxGuesses)
	}
	if g.most.n > 0 && s.Plan == nil {
		s.Options.Compile.Rows = max(g.most.n+1, s.Options.Compile.Sequences)
	}
	return nil
}

// check returns an error if the plan does not allow drafts of that length.
func (g *drafting) check(s *source) error {
	t := &s.Plan.Target
	if limit := min(t.Rows, t.Ubatch) - 1; g.most.n > limit {
		return usagef("--speculate is %d, expected at most %d: the plan of %s evaluates up to %d tokens in a step and gives the logits of %d", g.most.n, limit, s.name, t.Ubatch, t.Rows)
	}
	return nil
}

// draftText describes the drafts that were verified; it is "" if there were none.
func draftText(proposed, accepted int) string {
	if proposed == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of %d draft tokens accepted", accepted, proposed)
}
