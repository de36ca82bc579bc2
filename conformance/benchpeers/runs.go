package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"pesti/exec/load"
)

// startsPerRound is how often each program starts in a round. A start is short, and its time varies
// more.
const startsPerRound = 3

// A pairedRunner runs all programs alternately.
type pairedRunner struct {
	*options
	ours     *engine
	peers    []*engine
	progress io.Writer
	cpu      time.Duration // used by child processes
}

// measureModels measures all models.
func measureModels(ctx context.Context, o *options, models []string, progress io.Writer) (*report, error) {
	ours, err := o.pestiEngine(ctx)
	if err != nil {
		return nil, err
	}
	peers, err := o.peerEngines(ctx)
	if err != nil {
		return nil, err
	}
	f := &pairedRunner{options: o, ours: ours, peers: peers, progress: progress}
	r := &report{Machine: thisMachine(), Begun: time.Now().UTC().Truncate(time.Second), Threads: o.threads, Repeats: o.repeats, Ours: ours.program}
	w := load.Start()
	for _, model := range models {
		m, err := f.model(ctx, model)
		if err != nil {
			return nil, err
		}
		r.Models = append(r.Models, *m)
	}
	for i, e := range peers { // after the runs, which say the versions
		if i == 0 {
			r.Theirs = &e.program
		} else {
			r.Others = append(r.Others, e.program)
		}
	}
	r.Load = w.Stop(f.cpu)
	r.Ended = time.Now().UTC().Truncate(time.Second)
	return r, nil
}

// tests returns the tests: prompts, and generation after contexts.
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
func (f *pairedRunner) model(ctx context.Context, path string) (*modelReport, error) {
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
	// A first round, which does not count, brings the file into memory.
	if err := f.runStart(ctx, path, &pairedRuns{}); err != nil {
		return nil, err
	}
	for round := range f.repeats {
		for range startsPerRound {
			f.say("%s: round %d of %d, start", m.File, round+1, f.repeats)
			if err := f.runStart(ctx, path, &m.Start); err != nil {
				return nil, err
			}
		}
		for i := range m.Tests {
			f.say("%s: round %d of %d, %s", m.File, round+1, f.repeats, m.Tests[i].test)
			if err := f.probe(ctx, m.Size, &m.Tests[i]); err != nil {
				return nil, err
			}
			if err := f.runBench(ctx, path, &m.Tests[i]); err != nil {
				return nil, err
			}
			if err := f.probe(ctx, m.Size, &m.Tests[i]); err != nil {
				return nil, err
			}
			if err := f.runLimit(ctx, path, &m.Tests[i]); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// probe measures the read bandwidth with a buffer like a model of size bytes. It runs this program again:
// on Linux a process counts the peak memory of the one that started it as its own.
func (f *pairedRunner) probe(ctx context.Context, size int64, to *measured) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	c, err := f.child(ctx, []string{own, probeFlag, strconv.FormatInt(max(size, 1), 10), "-threads", strconv.Itoa(f.threads)})
	if err != nil {
		return err
	}
	read, err := strconv.ParseFloat(strings.TrimSpace(string(c.out)), 64)
	if err != nil {
		return fmt.Errorf("%s %s: %w", own, probeFlag, err)
	}
	to.Read = append(to.Read, read)
	return nil
}

// runStart starts each program once.
func (f *pairedRunner) runStart(ctx context.Context, model string, to *pairedRuns) error {
	return f.runPair(to, func(e *engine) ([]float64, int64, error) {
		if e.start == nil {
			return nil, 0, nil
		}
		c, err := f.child(ctx, e.start(model))
		if err != nil {
			return nil, 0, err
		}
		return []float64{c.wall.Seconds()}, c.peak, nil
	})
}

// runBench runs a test once in each program.
func (f *pairedRunner) runBench(ctx context.Context, model string, to *measured) error {
	return f.runPair(&to.pairedRuns, func(e *engine) ([]float64, int64, error) {
		prints := to.test
		if e.prints != nil {
			prints = e.prints(prints)
		}
		found, peak, err := f.bench(ctx, e.bench(model, to.test), prints)
		if err != nil {
			return nil, 0, err
		}
		if e.Version == "" {
			e.Version = strings.TrimSpace(fmt.Sprint(found.Number, " ", found.Build))
		}
		return found.Samples, peak, nil
	})
}

// runLimit measures the limit of a test that generates: the speed of reading.
func (f *pairedRunner) runLimit(ctx context.Context, model string, to *measured) error {
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
func (f *pairedRunner) bench(ctx context.Context, command []string, t test) (found *benched, peak int64, err error) {
	c, err := f.child(ctx, command)
	if err != nil {
		return nil, 0, err
	}
	if found, err = parseBench(c.out, t); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return found, c.peak, nil
}

// runPair measures our program, then the peers.
func (f *pairedRunner) runPair(to *pairedRuns, sample func(*engine) ([]float64, int64, error)) error {
	for i, e := range append([]*engine{f.ours}, f.peers...) {
		values, peak, err := sample(e)
		if err != nil {
			return err
		}
		switch i {
		case 0:
			to.Ours.add(values, peak)
		case 1:
			to.Theirs.add(values, peak)
		default:
			to.other(i-2).add(values, peak)
		}
	}
	return nil
}

// child runs a program and adds its processor time to f.cpu.
func (f *pairedRunner) child(ctx context.Context, command []string) (*child, error) {
	c, err := runChild(ctx, command)
	if err == nil {
		f.cpu += c.cpu
	}
	return c, err
}

func (f *pairedRunner) say(format string, args ...any) {
	fmt.Fprintf(f.progress, format+"\n", args...)
}
