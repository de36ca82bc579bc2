package exec_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/profile"
	"pesti/lower"
)

// profiled opens an engine with a profile and a trace of a number of runs.
func profiled(t *testing.T, threads, trace int) (*exec.Engine, *exec.Session, *exec.Session) {
	t.Helper()
	m := load(t, tiny.Config{})
	p := compile(t, m, lower.Options{Precision: "fast", Ubatch: 64}).Plan
	e, err := exec.Open(p, m.File, exec.Options{Threads: threads, Profile: true, Trace: trace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e, session(t, e), session(t, open(t, m, p, threads))
}

// TestProfile checks that a profile changes no bit and counts every run of every program, and that
// the workers' busy and waiting times do not exceed the elapsed time.
func TestProfile(t *testing.T) {
	for threads := 1; threads <= 3; threads++ {
		e, s, plain := profiled(t, threads, 0)
		for _, n := range []int{1, 1, 20, 1, 40} {
			if got, want := feed(t, s, prompt(n)), feed(t, plain, prompt(n)); !slices.Equal(got, want) {
				t.Errorf("%d threads: logits differ with a profile", threads)
			}
		}
		p := e.Profile()
		var names []string
		for i := range p.Programs {
			g := &p.Programs[i]
			names = append(names, fmt.Sprint(g.Program.Name, " ", g.Runs, " ", g.Tokens, " ", g.Load))
			for w := range threads {
				var busy time.Duration
				for _, step := range g.Steps {
					if step[w] < 0 {
						t.Errorf("a step took %v", step[w])
					}
					busy += step[w]
				}
				if busy <= 0 {
					t.Errorf("%s: worker %d was never busy", g.Program.Name, w)
				}
				for _, wave := range g.Waits {
					if wave[w] < 0 {
						t.Errorf("worker %d waited %v", w, wave[w])
					}
					busy += wave[w]
				}
				if busy > g.Wall {
					t.Errorf("%s: worker %d was busy or waiting for %v of %v", g.Program.Name, w, busy, g.Wall)
				}
			}
		}
		// Positions of decode: 0, 1 and 22, of which the mean is 7.67.
		if want := []string{"decode 3 3 {1 1 1 8}", "small 1 20 {20 1 1 2}", "prefill 1 40 {40 1 1 23}"}; !slices.Equal(names, want) {
			t.Errorf("%d threads: profile of %q, want %q", threads, names, want)
		}
		if e.ResetProfile(); len(e.Profile().Programs) != 0 {
			t.Errorf("there is a profile after a reset")
		}
		feed(t, s, prompt(1))
		if p := e.Profile(); len(p.Programs) != 1 || p.Programs[0].Runs != 1 || p.Programs[0].Wall <= 0 {
			t.Errorf("after a reset and one run: %+v", p)
		} else {
			for i, wave := range p.Programs[0].Waits {
				if slices.Min(wave) != 0 {
					t.Errorf("nobody came last in wave %d: workers waited %v", i, wave)
				}
			}
		}
	}
	m := load(t, tiny.Config{})
	if e := open(t, m, compile(t, m, lower.Options{}).Plan, 1); e.Profile() != nil || e.Trace() != nil {
		t.Errorf("there is a profile that nobody asked for")
	}
}

// TestTrace checks that the last runs are kept, oldest first, that the steps of a worker do not
// overlap, and that each wave begins after all of the wave before.
func TestTrace(t *testing.T) {
	const kept = 3
	e, s, _ := profiled(t, 2, kept)
	if got := e.Trace(); len(got) != 0 {
		t.Errorf("a trace of %d runs before the first", len(got))
	}
	var want []string
	for i, n := range []int{1, 33, 1, 20, 1} {
		feed(t, s, prompt(n))
		want = append(want, fmt.Sprint(n))
		runs := e.Trace()
		var got []string
		before := time.Duration(0)
		for _, r := range runs {
			got = append(got, fmt.Sprint(r.Load.T))
			if r.Begin < before || r.End < r.Begin {
				t.Errorf("a run from %v to %v after one that ended at %v", r.Begin, r.End, before)
			}
			checkSpans(t, &r)
			before = r.End
		}
		if last := want[max(0, i+1-kept):]; !slices.Equal(got, last) {
			t.Errorf("after %q the trace has %q", want, got)
		}
	}
	m := load(t, tiny.Config{})
	p := compile(t, m, lower.Options{}).Plan
	for _, n := range []int{-1, profile.MaxTrace + 1, math.MaxInt} {
		if _, err := exec.Open(p, m.File, exec.Options{Trace: n}); err == nil {
			t.Errorf("a trace of %d runs: no error", n)
		}
	}
}

func checkSpans(t *testing.T, r *profile.Traced) {
	t.Helper()
	waveEnd := r.Begin
	first := 0
	for i := range r.Program.Waves {
		next := waveEnd
		n := len(r.Program.Waves[i].Steps)
		for w, spans := range r.Spans {
			at := waveEnd
			for _, s := range spans[first : first+n] {
				if s.Begin < at || s.End < s.Begin {
					t.Errorf("%s, wave %d, worker %d: a step from %v to %v, expected it to begin at %v or later", r.Program.Name, i, w, s.Begin, s.End, at)
				}
				at = s.End
			}
			next = max(next, at)
		}
		waveEnd, first = next, first+n
	}
	if waveEnd > r.End {
		t.Errorf("steps end at %v, the run at %v", waveEnd, r.End)
	}
	if len(r.Spans) != 2 || len(r.Spans[0]) != first {
		t.Errorf("%d workers and %d steps, expected 2 and %d", len(r.Spans), len(r.Spans[0]), first)
	}
}

func TestProfileAllocatesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("counts take long where workers share one processor, as they do while allocations are counted")
	}
	_, s, _ := profiled(t, 2, 4)
	ids := prompt(1)
	count := math.Inf(1)
	for range 4 {
		s.Reset()
		count = min(count, testing.AllocsPerRun(1, func() {
			if _, err := s.Feed(t.Context(), ids); err != nil {
				t.Fatal(err)
			}
		}))
	}
	if count != 0 {
		t.Errorf("feeding a token under a profile allocates %v times", count)
	}
}
