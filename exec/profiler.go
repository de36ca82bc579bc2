package exec

import (
	"slices"
	"time"

	"pesti/exec/cpu/kernel"
	"pesti/exec/cuda"
	"pesti/exec/plan"
	"pesti/exec/profile"
)

// A profiler records when each worker computes each step. While a program runs, each worker writes its own
// spans; after the run they are summed. Neither allocates.
type profiler struct {
	epoch    time.Time
	programs []programClock
	device   *cuda.Properties // nil for the processor
	counted  bool             // whether the device counts instead of measuring time
	paused   bool             // whether runs are left out

	runs int64 // number of traced runs
	ring []profile.Traced
}

// A programClock is the clock of one program of the plan.
type programClock struct {
	program *plan.Program
	last    [][]profile.Span     // of the last run, by worker and step
	times   profile.ProgramTimes // whose Load is the sum over runs
}

func newProfiler(p *plan.Plan, workers, traced int) *profiler {
	c := &profiler{epoch: time.Now()}
	most := 0
	for i := range p.Programs {
		g := &p.Programs[i]
		steps := g.NumSteps()
		most = max(most, steps)
		c.programs = append(c.programs, programClock{program: g, last: table[profile.Span](workers, steps),
			times: profile.ProgramTimes{Program: g, Steps: table[time.Duration](steps, workers), Waits: table[time.Duration](len(g.Waves), workers), Counts: make([][]cuda.Counts, steps)}})
	}
	c.ring = make([]profile.Traced, traced)
	for i := range c.ring {
		c.ring[i].Spans = table[profile.Span](workers, most)
	}
	return c
}

// table allocates each row separately, so that workers, which each write one row, share no cache line.
func table[T any](rows, cols int) [][]T {
	t := make([][]T, rows)
	for i := range t {
		t[i] = make([]T, cols)
	}
	return t
}

// around returns f, a worker's share of a step, with the time recorded before and after.
func (c *profiler) around(program, worker, step int, f kernel.Func) kernel.Func {
	s, epoch := &c.programs[program].last[worker][step], c.epoch
	return func(r *kernel.Run) {
		s.Begin = time.Since(epoch)
		f(r)
		s.End = time.Since(epoch)
	}
}

// clock returns the clock of a program.
func (c *profiler) clock(g *plan.Program) *programClock {
	at := slices.IndexFunc(c.programs, func(o programClock) bool { return o.program == g })
	return &c.programs[at]
}

// add adds the last run of a program, which succeeded.
func (c *profiler) add(g *programClock, l plan.Workload, begin, end time.Duration) {
	t := &g.times
	t.Runs++
	t.Tokens += l.T
	t.Wall += end - begin
	t.Load = plan.Workload{T: t.Load.T + l.T, R: t.Load.R + l.R, Seqs: t.Load.Seqs + l.Seqs, Pos: t.Load.Pos + l.Pos}
	for w, spans := range g.last {
		for i, s := range spans {
			t.Steps[i][w] += s.End - s.Begin
		}
	}
	first := 0
	for i := range g.program.Waves {
		n := len(g.program.Waves[i].Steps)
		if n == 0 {
			continue
		}
		var last time.Duration
		for _, spans := range g.last {
			last = max(last, spans[first+n-1].End)
		}
		for w, spans := range g.last {
			t.Waits[i][w] += last - spans[first+n-1].End
		}
		first += n
	}
	if len(c.ring) == 0 {
		return
	}
	r := &c.ring[c.runs%int64(len(c.ring))]
	c.runs++
	r.Program, r.Load, r.Begin, r.End = g.program, l, begin, end
	for w, spans := range g.last {
		r.Spans[w] = r.Spans[w][:len(spans)]
		copy(r.Spans[w], spans)
	}
}

// reset forgets all runs.
func (c *profiler) reset() {
	c.runs = 0
	for i := range c.programs {
		t := &c.programs[i].times
		*t = profile.ProgramTimes{Program: t.Program, Steps: t.Steps, Waits: t.Waits, Counts: t.Counts}
		clear(t.Counts)
		for _, rows := range [][][]time.Duration{t.Steps, t.Waits} {
			for _, row := range rows {
				clear(row)
			}
		}
	}
}

// runProfiled runs a program and records its time.
func (e *Engine) runProfiled(g *program) error {
	begin := time.Since(e.profiler.epoch)
	if err := e.walk(g); err != nil {
		return err
	}
	end := time.Since(e.profiler.epoch)
	if e.profiler.counted {
		end = begin // a virtual device's elapsed time is meaningless
	}
	e.profiler.add(e.profiler.clock(g.Program), e.load(), begin, end)
	return nil
}

// load returns the workload of the step in progress. For sequences that begin at different positions it has
// the mean position.
func (e *Engine) load() plan.Workload {
	l := plan.Workload{T: int64(e.last.T), R: int64(e.last.R)}
	for t := range e.last.T {
		if t == 0 || e.seq[t] != e.seq[t-1] {
			l.Seqs++
			l.Pos += int64(e.pos[t])
		}
	}
	l.Pos /= max(l.Seqs, 1)
	return l
}

// Profile returns the times of steps so far. It is nil unless the engine was opened with
// Options.Profile or Options.Trace.
func (e *Engine) Profile() *profile.Profile {
	if e.profiler == nil {
		return nil
	}
	p := &profile.Profile{Workers: e.Threads(), Device: e.profiler.device, Counted: e.profiler.counted}
	for i := range e.profiler.programs {
		t := e.profiler.programs[i].times
		if t.Runs == 0 {
			continue
		}
		mean := func(sum int64) int64 { return (sum + t.Runs/2) / t.Runs }
		t.Load = plan.Workload{T: mean(t.Load.T), R: mean(t.Load.R), Seqs: mean(t.Load.Seqs), Pos: mean(t.Load.Pos)}
		t.Steps, t.Waits, t.Counts = cloned(t.Steps), cloned(t.Waits), cloned(t.Counts)
		p.Programs = append(p.Programs, t)
	}
	return p
}

func cloned[T any](rows [][]T) [][]T {
	c := make([][]T, len(rows))
	for i := range rows {
		c[i] = slices.Clone(rows[i])
	}
	return c
}

// ResetProfile discards all measurements, such as warm-up runs.
func (e *Engine) ResetProfile() {
	if e.profiler != nil {
		e.profiler.reset()
	}
}

// PauseProfile excludes runs from the profile and the trace from now on, or includes them again.
func (e *Engine) PauseProfile(paused bool) {
	if e.profiler != nil {
		e.profiler.paused = paused
	}
}

// Trace returns the last runs, at most as many as Options.Trace, oldest first, in views that are valid
// until the next step.
func (e *Engine) Trace() []profile.Traced {
	if e.profiler == nil {
		return nil
	}
	c := e.profiler
	n := int64(len(c.ring))
	if c.runs < n {
		return slices.Clone(c.ring[:c.runs])
	}
	if n == 0 {
		return nil
	}
	at := c.runs % n
	return append(slices.Clone(c.ring[at:]), c.ring[:at]...)
}
