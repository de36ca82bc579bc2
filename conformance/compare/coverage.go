package compare

import (
	"context"
	"fmt"
	"slices"
)

// A schedule evaluates all tokens in runs of one program of a plan. Schedules for all programs
// cover a plan, since runs of a single size may use only one of its programs.
type schedule struct {
	program string
	ends    []int // ends of the runs, as token indices
}

// A Skipped is a program for which there is no schedule.
type Skipped struct {
	Program string `json:"program"`
	Why     string `json:"why"`
}

// StepTokens is the largest number of tokens whose values are in memory at a time. With a plan that
// returns that many rows of logits, no pass is repeated.
const StepTokens = 64

// coverage returns schedules of a number of tokens for every program of the plans. most is the
// largest number of tokens in a run, 0 for no limit.
func coverage(tokens int, most int64, plans ...*PlanOperand) (schedules []schedule, skipped []Skipped) {
	skipped = []Skipped{} // so that JSON has a list and not null
	known := map[string]bool{}
	chunk := leastChunk(plans)
	for _, p := range plans {
		for i := range p.plan.Programs {
			g := &p.plan.Programs[i]
			limit := min(g.MaxT, max(g.MinT, StepTokens))
			if g.Chunk == 0 && chunk > 0 { // whole chunks would run another program
				limit = min(limit, max(g.MinT, chunk-1))
			}
			if most > 0 {
				limit = min(limit, most)
			}
			name := g.Name
			for _, s := range schedules {
				if s.program == name {
					name += " of " + p.name()
				}
			}
			ends, why := divide(tokens, g.MinT, limit)
			if g.Chunk > 0 {
				ends, why = divideChunks(tokens, g.Chunk, limit)
			}
			if why != "" {
				if !slices.ContainsFunc(skipped, func(s Skipped) bool { return s.Program == g.Name && s.Why == why }) {
					skipped = append(skipped, Skipped{name, why})
				}
				continue
			}
			if key := fmt.Sprint(g.Name, ends); !known[key] {
				known[key] = true
				schedules = append(schedules, schedule{name, ends})
			}
		}
	}
	return schedules, skipped
}

// divide returns the ends of the fewest runs of least to most tokens, of about equal size, or why
// there are none.
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

// divideChunks returns the ends of runs of whole chunks, and of a last run with the remaining
// tokens on another program; or why there are none.
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

// leastChunk returns the smallest chunk of the plans' programs, 0 if no program has a chunk.
func leastChunk(plans []*PlanOperand) (least int64) {
	for _, p := range plans {
		if c := p.plan.Chunk(); c > 0 && (least == 0 || c < least) {
			least = c
		}
	}
	return least
}

// folderSchedule returns the schedule for two folders, which run no program.
func folderSchedule(tokens int) schedule {
	ends, _ := divide(tokens, 1, StepTokens)
	return schedule{"", ends}
}

// each calls step for all runs of the schedule, until ctx ends.
func (s *schedule) each(ctx context.Context, step func(from, to int) error) error {
	from := 0
	for _, to := range s.ends {
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
