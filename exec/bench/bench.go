// Package bench measures how fast an engine evaluates prompts and generates tokens.
//
// It defines the tests and their measurement: a warm-up run and then measured runs, each of which
// begins at the test's depth. The runs of paired tests alternate with plain decoding, since their
// result is a ratio. The roofline is measured between the runs. The JSON of results has
// llama-bench's keys.
//
// It imports exec, exec/load, and exec/plan, exec/cpu and exec/profile for the roofline, exec/sample and
// exec/speculate for speculative decoding. It prints nothing.
package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"pesti/exec"
	"pesti/exec/cpu"
	"pesti/exec/load"
)

// A Test is one test and its result, in tokens per second.
type Test struct {
	Name      string    `json:"test"`
	NPrompt   int       `json:"n_prompt"`
	NGen      int       `json:"n_gen"`
	NDepth    int       `json:"n_depth"` // tokens already in the context
	AvgTS     float64   `json:"avg_ts"`
	StddevTS  float64   `json:"stddev_ts"`
	SamplesTS []float64 `json:"samples_ts"` // one for each measured run

	DraftTokens int     `json:"draft_tokens,omitempty"` // most draft tokens of a forward pass
	Sequences   int     `json:"sequences,omitempty"`    // sequences that each forward pass evaluates a token of, if several
	Paired      *Paired `json:"paired,omitempty"`

	Roofline *Roofline `json:"roofline,omitempty"`

	Others *float64 `json:"others,omitempty"` // processors that other programs used meanwhile, nil if that is not known
	Busy   bool     `json:"busy,omitempty"`   // whether they used so many that the speed says little about the machine
}

// Tokens returns the number of tokens that the test evaluates.
func (t *Test) Tokens() int { return t.NPrompt + t.NGen*max(t.Sequences, 1) }

// Positions returns the number of positions of the context that the test uses.
func (t *Test) Positions() int {
	return t.NDepth + apart*max(t.Sequences-1, 0) + t.NPrompt + t.NGen
}

// Tests returns a test for each prompt length and each number of tokens to generate, at each depth. A
// length of 0 has no test.
func Tests(prompts, gens, depths []int) ([]Test, error) {
	tests := []Test{}
	for _, depth := range depths {
		at := ""
		if depth != 0 {
			at = fmt.Sprintf(" @ d%d", depth)
		}
		for _, n := range prompts {
			if n != 0 {
				tests = append(tests, Test{Name: fmt.Sprintf("pp%d%s", n, at), NPrompt: n, NDepth: depth})
			}
		}
		for _, n := range gens {
			if n != 0 {
				tests = append(tests, Test{Name: fmt.Sprintf("tg%d%s", n, at), NGen: n, NDepth: depth})
			}
		}
	}
	for _, t := range tests {
		if min(t.NPrompt, t.NGen, t.NDepth) < 0 {
			return nil, fmt.Errorf("test %s: expected a number of tokens that is not negative", t.Name)
		}
	}
	return tests, nil
}

// Options configure a Bencher.
type Options struct {
	Repeat   int     // measured runs of each test, after a warm-up run; 0: one run without measurement
	Text     []int32 // text that speculative decoding continues; nil: a repetitive text
	Roofline bool    // measure the roofline between the runs of tests that are not paired

	// Progress is called before each run; of is Repeat, and run 0 is the warm-up. It may be nil.
	Progress func(test string, run, of int)
}

// A Bencher measures tests on an engine.
type Bencher struct {
	o        Options
	engine   *exec.Engine
	sessions []*exec.Session // one for each sequence of the plan
	vocab    int
	profiled bool // whether the run in progress is part of the engine's profile
}

// New returns a bencher. It uses all sequences of the engine.
func New(engine *exec.Engine, o Options) (*Bencher, error) {
	b := &Bencher{o: o, engine: engine}
	for range engine.Plan().Target.Sequences {
		session, err := exec.NewSession(engine)
		if err != nil {
			return nil, err
		}
		b.sessions = append(b.sessions, session)
	}
	b.vocab = b.sessions[0].Vocabulary()
	return b, nil
}

// Run measures tests one after another. The engine's profile includes the measured runs alone. On
// an error, Run returns the tests that have a result, and the name of the test in progress if that
// has none.
func (b *Bencher) Run(ctx context.Context, tests []Test) (measured []Test, stopped string, err error) {
	if _, err := b.sessions[0].Feed(ctx, []int32{0}); err != nil { // the first pass reads the file, so it is not measured
		return nil, "", err
	}
	b.sessions[0].Reset()
	b.engine.ResetProfile()
	b.engine.PauseProfile(true)
	for i := range tests {
		t := tests[i]
		err := b.measure(ctx, &t)
		if len(t.SamplesTS) > 0 || err == nil {
			measured = append(measured, t)
		} else {
			stopped = t.Name
		}
		if err != nil {
			return measured, stopped, err
		}
	}
	return measured, "", nil
}

// measure sets the result of a test. After an error, it is the result of the completed runs.
func (b *Bencher) measure(ctx context.Context, t *Test) error {
	var roof *testRoof
	if b.o.Roofline && !t.isPaired() {
		var err error
		if roof, err = newTestRoof(b.engine, t); err != nil {
			return err
		}
	}
	watch := load.Start()
	err := b.repeat(ctx, t, roof)
	l := watch.StopOwn()
	t.Others = l.Others
	t.Busy, _ = l.Busy()
	t.AvgTS, t.StddevTS = meanAndDeviation(t.SamplesTS)
	var failed error
	if t.Roofline, failed = roof.result(t.Tokens(), t.SamplesTS); failed != nil {
		return failed
	}
	return err
}

// repeat does the warm-up run and the measured runs of a test.
func (b *Bencher) repeat(ctx context.Context, t *Test, roof *testRoof) error {
	var plain, ratios []float64
	if t.isPaired() {
		t.Paired = &Paired{}
		defer func() { t.Paired.PlainTS, t.Paired.Ratio = cpu.Median(plain), cpu.Median(ratios) }()
	}
	for r := range b.o.Repeat + 1 {
		if b.o.Progress != nil {
			b.o.Progress(t.Name, r, b.o.Repeat)
		}
		if err := roof.sample(ctx); err != nil {
			return err
		}
		b.profiled = r > 0 || b.o.Repeat == 0
		seconds, err := b.clock(ctx, t)
		b.profiled = false
		if err != nil {
			return err
		}
		speed := float64(t.Tokens()) / max(seconds, 1e-9)
		if r > 0 {
			t.SamplesTS = append(t.SamplesTS, speed)
		}
		if !t.isPaired() {
			continue
		}
		if seconds, err = b.clockPlain(ctx, t); err != nil {
			return err
		}
		if r > 0 {
			plain = append(plain, float64(t.NGen)/max(seconds, 1e-9))
			ratios = append(ratios, speed/plain[len(plain)-1])
		}
	}
	return nil
}

// clock returns the time of a test, without the time to reach its depth.
func (b *Bencher) clock(ctx context.Context, t *Test) (seconds float64, err error) {
	switch {
	case t.DraftTokens > 0:
		return b.clockGreedy(ctx, t, t.DraftTokens)
	case t.Sequences > 0:
		return b.clockSequences(ctx, t)
	}
	return b.clockOne(ctx, t)
}

// clockOne returns the time of a test of one sequence without speculative decoding.
func (b *Bencher) clockOne(ctx context.Context, t *Test) (seconds float64, err error) {
	session := b.sessions[0]
	ids := randomIDs(t.NDepth+t.Tokens(), b.vocab)
	if err := seek(ctx, session, ids[:t.NDepth]); err != nil {
		return 0, err
	}
	ids = ids[t.NDepth:]
	step := len(ids)
	if t.NGen > 0 {
		step = 1
	}
	return b.timed(func() error {
		for ; len(ids) > 0; ids = ids[step:] {
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := session.FeedTopK(ctx, ids[:step], 1); err != nil {
				return err
			}
		}
		return nil
	})
}

// timed returns the time of f. The profile includes only f.
func (b *Bencher) timed(f func() error) (seconds float64, err error) {
	b.engine.PauseProfile(!b.profiled)
	defer b.engine.PauseProfile(true)
	begin := time.Now()
	if err := f(); err != nil {
		return 0, err
	}
	return time.Since(begin).Seconds(), nil
}

// seek makes the session hold exactly these tokens. All runs begin with the same tokens, so it
// keeps the session's own, unless a window layer has overwritten some.
func seek(ctx context.Context, session *exec.Session, ids []int32) error {
	if err := session.Truncate(min(len(ids), session.Pos())); err != nil {
		session.Reset()
	}
	if ids = ids[session.Pos():]; len(ids) == 0 {
		return nil
	}
	_, err := session.FeedTopK(ctx, ids, 1)
	return err
}

// randomIDs returns n tokens, the same in every run. The time does not depend on the choice of
// tokens.
func randomIDs(n, vocab int) []int32 {
	random := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(random.IntN(vocab))
	}
	return ids
}

// meanAndDeviation returns the mean and the standard deviation of a sample.
func meanAndDeviation(x []float64) (mean, deviation float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	if len(x) < 2 {
		return mean, 0
	}
	for _, v := range x {
		deviation += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(deviation / float64(len(x)-1))
}
