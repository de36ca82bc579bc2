package exec

import (
	"context"
	"slices"
	"time"

	"pesti/exec/cpu/kernel"
)

// BeforeWaves makes worker 0 call f with the number of each wave before it computes its share,
// until restore is called.
func (e *Engine) BeforeWaves(f func(wave int)) (restore func()) {
	var before [][][]kernel.Func
	for i := range e.programs {
		waves := e.programs[i].schedule[0]
		before = append(before, slices.Clone(waves))
		for w := range waves {
			waves[w] = append([]kernel.Func{func(*kernel.Run) { f(w) }}, waves[w]...)
		}
	}
	return func() {
		for i := range e.programs {
			copy(e.programs[i].schedule[0], before[i])
		}
	}
}

// BeforeShares makes each worker call f with its number and that of the wave before it computes its share, until
// restore is called.
func (e *Engine) BeforeShares(f func(worker, wave int)) (restore func()) {
	var before [][][][]kernel.Func
	for i := range e.programs {
		var shares [][][]kernel.Func
		for worker, waves := range e.programs[i].schedule {
			shares = append(shares, slices.Clone(waves))
			for w := range waves {
				waves[w] = append([]kernel.Func{func(*kernel.Run) { f(worker, w) }}, waves[w]...)
			}
		}
		before = append(before, shares)
	}
	return func() {
		for i := range e.programs {
			for worker, waves := range e.programs[i].schedule {
				copy(waves, before[i][worker])
			}
		}
	}
}

// PackedWeight returns the packed copy of a weight, nil if products read the file.
func (e *Engine) PackedWeight(name string) []byte {
	for i := range e.packings {
		if p := &e.packings[i]; p.name == name {
			return p.dst
		}
	}
	return nil
}

// TuneAll is Tune for weights of any size, with short samples. An order is chosen if it is gain times as fast as
// the default.
func (e *Engine) TuneAll(ctx context.Context, limit time.Duration, gain float64) ([]Tuned, error) {
	return e.tuneWithin(ctx, limit, &tuneLimits{sample: 1, rounds: 5, gain: gain})
}

// Fastest chooses among the orders of reading.
var Fastest = fastest
