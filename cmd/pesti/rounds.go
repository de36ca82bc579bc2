package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// A round is one evaluation of all tokens in steps for which a plan has one program. Rounds for all
// programs leave none unseen: of a prompt in steps of any one size, a plan may run no more than one.
type round struct {
	program string
	ends    []int // of its steps
}

// A leftOut is a program for which there is no round.
type leftOut struct {
	Program string `json:"program"`
	Why     string `json:"why"`
}

// mostAtOnce bounds how many tokens' values are in memory at a time.
const mostAtOnce = 64

// roundsOf returns the rounds of so many tokens for every program of the plans, in steps of most
// tokens where that is not 0.
func roundsOf(tokens int, most int64, plans ...*runner) (rounds []round, left []leftOut) {
	known := map[string]bool{}
	chunk := chunkOf(plans)
	for _, r := range plans {
		for i := range r.plan.Programs {
			g := &r.plan.Programs[i]
			limit := min(g.MaxT, max(g.MinT, mostAtOnce))
			if g.Chunk == 0 && chunk > 0 { // whole chunks would run another program
				limit = min(limit, max(g.MinT, chunk-1))
			}
			if most > 0 {
				limit = min(limit, most)
			}
			name := g.Name
			for _, x := range rounds {
				if x.program == name {
					name += " of " + oneLine(r.name)
				}
			}
			ends, why := divide(tokens, g.MinT, limit)
			if g.Chunk > 0 {
				ends, why = divideChunks(tokens, g.Chunk, limit)
			}
			if why != "" {
				if !slices.ContainsFunc(left, func(l leftOut) bool { return l.Program == g.Name && l.Why == why }) {
					left = append(left, leftOut{name, why})
				}
				continue
			}
			if key := fmt.Sprint(g.Name, ends); !known[key] {
				known[key] = true
				rounds = append(rounds, round{name, ends})
			}
		}
	}
	return rounds, left
}

// divide returns the ends of the fewest steps of least to most tokens, of about equal size, or says
// why there are none.
func divide(tokens int, least, most int64) (ends []int, why string) {
	if most < least {
		return nil, fmt.Sprintf("takes %d tokens or more at a time, and the other plan at most %d", least, most)
	}
	steps := (tokens-1)/int(most) + 1
	if tokens/steps < int(least) {
		if steps == 1 {
			return nil, fmt.Sprintf("takes %d tokens or more at a time", least)
		}
		return nil, fmt.Sprintf("takes %d to %d tokens at a time, of which no steps add up to %d", least, most, tokens)
	}
	for i := range steps {
		ends = append(ends, tokens*(i+1)/steps)
	}
	return ends, ""
}

// divideChunks returns the ends of steps of whole chunks and of the step of what is left, which other
// programs run, or says why there are none.
func divideChunks(tokens int, chunk, most int64) (ends []int, why string) {
	if most < chunk || tokens < int(chunk) {
		return nil, fmt.Sprintf("takes chunks of %d tokens at a time", chunk)
	}
	step := int(most / chunk * chunk)
	for end := step; end <= tokens; end += step {
		ends = append(ends, end)
	}
	whole := tokens / int(chunk) * int(chunk)
	for _, end := range []int{whole, tokens} {
		if ends == nil || ends[len(ends)-1] < end {
			ends = append(ends, end)
		}
	}
	return ends, ""
}

// chunkOf returns the least chunk of the plans' programs, 0 where none has one.
func chunkOf(plans []*runner) (least int64) {
	for _, r := range plans {
		if c := r.plan.Chunk(); c > 0 && (least == 0 || c < least) {
			least = c
		}
	}
	return least
}

// inSteps returns the round of the folders, which hold values and run no program.
func inSteps(tokens int) round {
	ends, _ := divide(tokens, 1, mostAtOnce)
	return round{"", ends}
}

// each calls step for all steps of the round, until ctx ends.
func (r *round) each(ctx context.Context, step func(from, to int) error) error {
	from := 0
	for _, to := range r.ends {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(from, to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// sayLeft is a sentence about the programs that were left out, "" for none.
func sayLeft(left []leftOut) string {
	var b strings.Builder
	for _, l := range left {
		fmt.Fprintf(&b, "not run: %s, which %s\n", l.Program, l.Why)
	}
	return b.String()
}
