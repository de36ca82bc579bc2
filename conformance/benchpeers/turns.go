package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// startsPerRound is how often each program starts in a round: it is short, and varies more.
const startsPerRound = 3

// A referee lets programs take turns.
type referee struct {
	*options
	ours, theirs *engine // theirs is nil where there is none
	progress     io.Writer
	cpu          time.Duration // that children took
}

// measure measures all models.
func measure(ctx context.Context, o *options, models []string, progress io.Writer) (*report, error) {
	ours, err := o.pestiEngine(ctx)
	if err != nil {
		return nil, err
	}
	theirs, err := o.peerEngine()
	if err != nil {
		return nil, err
	}
	f := &referee{options: o, ours: ours, theirs: theirs, progress: progress}
	r := &report{Machine: thisMachine(), Begun: time.Now().UTC().Truncate(time.Second), Threads: o.threads, Rounds: o.rounds, Ours: ours.program}
	if theirs != nil {
		r.Theirs = &theirs.program
	}
	w := startWatch()
	for _, model := range models {
		m, err := f.model(ctx, model)
		if err != nil {
			return nil, err
		}
		r.Models = append(r.Models, *m)
	}
	r.Load = w.stop(f.cpu)
	r.Ended = time.Now().UTC().Truncate(time.Second)
	return r, nil
}

// tests returns what is measured: prompts, and generation behind contexts.
func (o *options) tests() []measured {
	var list []measured
	for _, n := range o.prompts {
		list = append(list, measured{test: test{NPrompt: n}})
	}
	for _, depth := range o.depths {
		list = append(list, measured{test: test{NGen: o.gen, NDepth: depth}})
	}
	return list
}

// model measures one model.
func (f *referee) model(ctx context.Context, path string) (*modelReport, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	m := &modelReport{File: filepath.Base(path), Size: info.Size(), Tests: f.tests()}
	longest := positions
	for _, t := range m.Tests {
		longest = max(longest, t.NPrompt+t.NGen+t.NDepth)
	}
	if m.Needs, err = f.needs(ctx, path, longest); err != nil {
		return nil, err
	}
	// A round that does not count brings the file into memory.
	if err := f.startTurn(ctx, path, &turns{}); err != nil {
		return nil, err
	}
	for round := range f.rounds {
		for range startsPerRound {
			f.say("%s: round %d of %d, start", m.File, round+1, f.rounds)
			if err := f.startTurn(ctx, path, &m.Start); err != nil {
				return nil, err
			}
		}
		for i := range m.Tests {
			f.say("%s: round %d of %d, %s", m.File, round+1, f.rounds, m.Tests[i].test)
			if err := f.benchTurn(ctx, path, &m.Tests[i]); err != nil {
				return nil, err
			}
			if err := f.limitTurn(ctx, path, &m.Tests[i]); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// startTurn lets each program start once.
func (f *referee) startTurn(ctx context.Context, model string, to *turns) error {
	return f.turn(to, func(e *engine) ([]float64, int64, error) {
		c, err := f.child(ctx, e.start(model))
		if err != nil {
			return nil, 0, err
		}
		return []float64{c.wall.Seconds()}, c.peak, nil
	})
}

// benchTurn lets each program measure a test once.
func (f *referee) benchTurn(ctx context.Context, model string, to *measured) error {
	return f.turn(&to.turns, func(e *engine) ([]float64, int64, error) {
		found, peak, err := f.bench(ctx, e.bench(model, to.test), to.test)
		if err != nil {
			return nil, 0, err
		}
		return found.Samples, peak, nil
	})
}

// limitTurn measures what the machine allows a test that generates, which is reading.
func (f *referee) limitTurn(ctx context.Context, model string, to *measured) error {
	if to.NGen == 0 {
		return nil
	}
	found, _, err := f.bench(ctx, f.ours.limit(model, to.test), to.test)
	if err != nil {
		return err
	}
	if found.Roofline == nil {
		return fmt.Errorf("%s, %s on %s: found no roofline", f.ours.Name, to.test, model)
	}
	to.Limits = append(to.Limits, *found.Roofline)
	return nil
}

// bench runs a command that measures one test.
func (f *referee) bench(ctx context.Context, command []string, t test) (found *benched, peak int64, err error) {
	c, err := f.child(ctx, command)
	if err != nil {
		return nil, 0, err
	}
	if found, err = parseBench(c.out, t); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return found, c.peak, nil
}

// turn lets ours, then theirs, measure.
func (f *referee) turn(to *turns, measure func(*engine) ([]float64, int64, error)) error {
	for _, side := range []struct {
		engine *engine
		to     *samples
	}{{f.ours, &to.Ours}, {f.theirs, &to.Theirs}} {
		if side.engine == nil {
			continue
		}
		values, peak, err := measure(side.engine)
		if err != nil {
			return err
		}
		side.to.add(values, peak)
	}
	return nil
}

// child runs a program and counts the time of processors that it took.
func (f *referee) child(ctx context.Context, command []string) (*child, error) {
	c, err := runChild(ctx, command)
	if err == nil {
		f.cpu += c.cpu
	}
	return c, err
}

func (f *referee) say(format string, args ...any) {
	fmt.Fprintf(f.progress, format+"\n", args...)
}
