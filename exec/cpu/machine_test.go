package cpu

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pesti/conformance/testenv"
	"pesti/exec/cpu/kernel"
)

// relay returns a schedule in which every worker checks, in every wave, that all workers have
// finished the wave before. wrong counts the failures.
func relay(workers, waves int, wrong *atomic.Int64) Schedule {
	done := make([]atomic.Int64, waves)
	s := make(Schedule, workers)
	for w := range s {
		for i := range waves {
			s[w] = append(s[w], []kernel.Func{func(r *kernel.Run) {
				if i > 0 && done[i-1].Load()%int64(workers) != 0 {
					wrong.Add(1)
				}
				if w == 0 && i%7 == 0 {
					time.Sleep(time.Microsecond) // let one be late
				}
				done[i].Add(1)
			}})
		}
	}
	return s
}

func TestWaves(t *testing.T) {
	testenv.Inputs(t)
	for _, workers := range []int{1, 2, 3, 5, 64} {
		m := New(workers)
		if m.Workers() != workers {
			t.Errorf("%d workers, expected %d", m.Workers(), workers)
		}
		if most := runtime.GOMAXPROCS(0); m.threads > most {
			t.Errorf("%d workers have %d threads, expected at most %d: a processor for each", workers, m.threads, most)
		}
		var wrong atomic.Int64
		s := relay(workers, 40, &wrong)
		for range 20 {
			if err := m.Run(nil, s, kernel.Run{T: 1}); err != nil {
				t.Fatal(err)
			}
		}
		if wrong.Load() != 0 {
			t.Errorf("%d workers: %d waves began before the one before had ended", workers, wrong.Load())
		}
		m.Close()
	}
}

// TestRunAgainAfterPause checks that parked workers wake and get the new schedule and rows.
func TestRunAgainAfterPause(t *testing.T) {
	m := New(3)
	defer m.Close()
	for i := range 4 {
		var sum atomic.Int64
		count := []kernel.Func{func(r *kernel.Run) { sum.Add(int64(r.T*100 + r.R)) }}
		if err := m.Run(nil, Schedule{{count}, {count}, {count}}, kernel.Run{T: i, R: 7}); err != nil {
			t.Fatal(err)
		}
		if want := int64(3 * (i*100 + 7)); sum.Load() != want {
			t.Errorf("run %d: sum %d, expected %d", i, sum.Load(), want)
		}
		time.Sleep(20 * time.Millisecond) // long enough to park
	}
}

// TestShares checks that threads with several workers do each worker's share of each wave once and
// in order.
func TestShares(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	for _, workers := range []int{1, 2, 3, 4, 7, 8} {
		const waves = 5
		m := New(workers)
		done := make([][]int, workers)
		s := make(Schedule, workers)
		for w := range s {
			for i := range waves {
				s[w] = append(s[w], []kernel.Func{func(*kernel.Run) { done[w] = append(done[w], i) }})
			}
		}
		if err := m.Run(nil, s, kernel.Run{T: 1}); err != nil {
			t.Fatal(err)
		}
		m.Close()
		for w, got := range done {
			if !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
				t.Errorf("worker %d of %d did waves %v, expected each of %d once", w, workers, got, waves)
			}
		}
	}
}

func TestOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	TestWaves(t)
}

// TestEmptySchedule checks that an empty schedule gives no error and that workers wait for the next run.
func TestEmptySchedule(t *testing.T) {
	m := New(2)
	defer m.Close()
	for _, s := range []Schedule{nil, {{}, {}}} {
		if err := m.Run(nil, s, kernel.Run{}); err != nil {
			t.Error(err)
		}
	}
}

// TestRunAllocatesNothing checks that a run allocates nothing, which zero allocations per token
// require.
func TestRunAllocatesNothing(t *testing.T) {
	m := New(2)
	defer m.Close()
	nothing := []kernel.Func{func(*kernel.Run) {}}
	s := Schedule{{nothing, nothing}, {nothing, nothing}}
	if n := testing.AllocsPerRun(100, func() { m.Run(nil, s, kernel.Run{T: 1}) }); n != 0 {
		t.Errorf("a run allocates %v times", n)
	}
}

// TestPanicPasses checks that a panic in a kernel is not reported as a fault.
func TestPanicPasses(t *testing.T) {
	m := New(1)
	defer m.Close()
	bug := errors.New("bug")
	defer func() {
		if p := recover(); p != bug {
			t.Errorf("recovered %v, expected %v", p, bug)
		}
	}()
	m.Run(nil, Schedule{{{func(*kernel.Run) { panic(bug) }}}}, kernel.Run{})
	t.Error("the panic was swallowed")
}

func BenchmarkBarrier(b *testing.B) {
	for _, workers := range []int{1, 2} {
		b.Run(string(rune('0'+workers)), func(b *testing.B) {
			m := New(workers)
			defer m.Close()
			const waves = 1000
			s := make(Schedule, workers)
			for w := range s {
				s[w] = make([][]kernel.Func, waves)
			}
			for b.Loop() {
				m.Run(nil, s, kernel.Run{})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/waves, "ns/wave")
		})
	}
}

// TestCancel cancels a run in its eleventh wave: workers finish that wave and compute no other. The
// next run is not affected, and one that begins with a closed channel computes nothing.
func TestCancel(t *testing.T) {
	for _, workers := range []int{1, 3} {
		m := New(workers)
		var waves atomic.Int64
		var cancel func()
		s := make(Schedule, workers)
		for w := range s {
			for i := range 1000 {
				s[w] = append(s[w], []kernel.Func{func(r *kernel.Run) {
					if w == 0 {
						waves.Add(1)
						if i == 10 {
							cancel()
						}
					}
				}})
			}
		}
		for range 3 {
			done := make(chan struct{})
			cancel = func() { close(done) }
			waves.Store(0)
			if err := m.Run(done, s, kernel.Run{T: 1}); !errors.Is(err, ErrCanceled) {
				t.Errorf("%d workers: error %v, expected %v", workers, err, ErrCanceled)
			}
			if n := waves.Load(); n != 11 {
				t.Errorf("%d workers: %d waves ran, expected 11", workers, n)
			}
			if err := m.Run(done, s, kernel.Run{T: 1}); !errors.Is(err, ErrCanceled) || waves.Load() != 11 {
				t.Errorf("%d workers: error %v after %d waves, expected %v after the 11 of the run before", workers, err, waves.Load(), ErrCanceled)
			}
			cancel = func() {}
			for _, open := range []chan struct{}{nil, make(chan struct{})} {
				waves.Store(0)
				if err := m.Run(open, s, kernel.Run{T: 1}); err != nil || waves.Load() != 1000 {
					t.Errorf("%d workers: the run after it: error %v after %d waves, expected 1000 waves", workers, err, waves.Load())
				}
			}
		}
		m.Close()
	}
}

// TestCancelTooLate checks that a run that is canceled in its last wave completes without an
// error.
func TestCancelTooLate(t *testing.T) {
	m := New(1)
	defer m.Close()
	done := make(chan struct{})
	s := Schedule{{{}, {func(*kernel.Run) { close(done) }}}}
	if err := m.Run(done, s, kernel.Run{T: 1}); err != nil {
		t.Errorf("all waves are done: error %v", err)
	}
	if err := m.Run(done, s, kernel.Run{T: 1}); !errors.Is(err, ErrCanceled) {
		t.Errorf("the run after it: error %v, expected %v", err, ErrCanceled)
	}
}

// TestCancelAllocatesNothing checks that a run polls the channel without a goroutine and without
// allocation.
func TestCancelAllocatesNothing(t *testing.T) {
	m := New(2)
	defer m.Close()
	ctx, cancel := context.WithCancel(t.Context())
	nothing := []kernel.Func{func(*kernel.Run) {}}
	s := Schedule{{nothing, nothing}, {nothing, nothing}}
	run := func() { m.Run(ctx.Done(), s, kernel.Run{T: 1}) }
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("a run allocates %v times", n)
	}
	cancel()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("a canceled run allocates %v times", n)
	}
}
