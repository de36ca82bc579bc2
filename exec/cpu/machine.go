// Package cpu owns what runs a bound program on the processor: workers on threads of their own,
// the barrier between waves, memory outside the Go heap, and how fast all of that is at most. What
// the steps compute is package kernel's; which program runs on which operands is package exec's.
//
// It imports exec/cpu/kernel alone, and must not know plans, models or files.
package cpu

import (
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"pesti/exec/cpu/kernel"
)

// A Schedule is a program bound to its workers: for each worker, for each wave, the worker's
// share of each step. All workers have the same number of waves.
type Schedule [][][]kernel.Func

// ErrFault is the error of a run that touched mapped memory which is no longer there: another
// process cut the file short.
var ErrFault = errors.New("mapped memory is gone")

// ErrCancelled is the error of a run that its caller cancelled before all waves were computed.
var ErrCancelled = errors.New("the run was cancelled")

// A Machine is a set of workers that run schedules, one at a time. They have as many operating
// system threads as there are processors for them: threads beyond that would only wait for each
// other to be scheduled, at every wave. A thread does the shares of several workers in turn where
// there are more. Thread 0 is the goroutine that calls Run; the others wait between runs: a short
// while spinning, then parked.
type Machine struct {
	// Mapped, which is set before the first run, tells whether an address is one of a mapped file, where
	// a fault is ErrFault. A fault anywhere else is a wild pointer, and panics.
	Mapped func(addr uintptr) bool

	workers int
	threads int
	barrier barrier

	// The run in progress, written before start changes.
	schedule Schedule
	run      kernel.Run
	done     <-chan struct{} // closed when the caller cancels the run; thread 0 polls it

	start atomic.Uint32 // counts runs
	_     [60]byte
	// A worker hit missing memory, or thread 0 saw that the run is cancelled, or a worker skipped its
	// share for that: threads pass through the remaining waves without computing, so that barriers meet.
	fault, cancelled, skipped atomic.Bool
	_                         [52]byte
	lots                      []lot
	ended                     sync.WaitGroup
}

// A lot is where a thread parks when there is nothing to run for long.
type lot struct {
	parked atomic.Bool
	wake   chan struct{} // the thread that sets parked to false sends to it
	_      [48]byte
}

// UsableCores returns how many processors this process may use at the same time.
func UsableCores() int { return runtime.GOMAXPROCS(0) }

// New starts the threads of so many workers. Close ends them.
func New(workers int) *Machine {
	m := &Machine{workers: max(workers, 1)}
	m.threads = min(m.workers, UsableCores())
	m.barrier.threads = int32(m.threads)
	m.lots = make([]lot, m.threads)
	for thread := 1; thread < m.threads; thread++ {
		m.lots[thread].wake = make(chan struct{}, 1)
		m.ended.Add(1)
		go m.work(thread)
	}
	return m
}

// Workers returns the number of workers: of shares that a schedule has.
func (m *Machine) Workers() int { return m.workers }

// Run runs a schedule of as many workers as the machine has, and returns when all are done. Once done
// is closed, workers finish the wave that they are in and skip the others, and Run returns
// ErrCancelled; a nil channel never cancels. It allocates nothing. Only one call may run at a time.
func (m *Machine) Run(done <-chan struct{}, s Schedule, r kernel.Run) error {
	if len(s) == 0 || len(s[0]) == 0 {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))

	m.schedule, m.run, m.done = s, r, done
	m.fault.Store(false)
	m.cancelled.Store(false)
	m.skipped.Store(false)
	m.release()
	m.walk(0)
	switch {
	case m.fault.Load():
		return ErrFault
	case m.skipped.Load():
		return ErrCancelled
	}
	return nil
}

// Close ends the threads. The machine must not be running.
func (m *Machine) Close() {
	m.schedule = nil
	m.release()
	m.ended.Wait()
}

// release lets the threads see a new schedule.
func (m *Machine) release() {
	m.start.Add(1)
	for thread := 1; thread < m.threads; thread++ {
		if lot := &m.lots[thread]; lot.parked.Load() && lot.parked.CompareAndSwap(true, false) {
			lot.wake <- struct{}{}
		}
	}
}

// work is the life of a thread.
func (m *Machine) work(thread int) {
	defer m.ended.Done()
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	debug.SetPanicOnFault(true)
	for runs := uint32(0); ; {
		runs = m.await(thread, runs)
		if m.schedule == nil {
			return
		}
		m.walk(thread)
	}
}

// await returns the count of runs when it is no longer what was seen.
func (m *Machine) await(thread int, seen uint32) uint32 {
	for i := range looks {
		if runs := m.start.Load(); runs != seen {
			return runs
		}
		pause(i)
	}
	lot := &m.lots[thread]
	lot.parked.Store(true)
	// A run that began before parked was set has not seen it, but is seen here.
	if m.start.Load() == seen || !lot.parked.CompareAndSwap(true, false) {
		<-lot.wake
	}
	return m.start.Load()
}

// walk is a thread's part of a run: in each wave the shares of some neighbouring workers.
func (m *Machine) walk(thread int) {
	first, end := thread*m.workers/m.threads, (thread+1)*m.workers/m.threads
	for wave := range m.schedule[first] {
		if thread == 0 {
			m.poll()
		}
		for _, waves := range m.schedule[first:end] {
			m.wave(waves[wave])
		}
		m.barrier.wait()
	}
}

// poll looks whether the caller has cancelled the run.
func (m *Machine) poll() {
	select {
	case <-m.done:
		m.cancelled.Store(true)
	default:
	}
}

// wave computes the worker's share of the steps of one wave.
func (m *Machine) wave(steps []kernel.Func) {
	if m.cancelled.Load() {
		m.skipped.Store(true)
	}
	if m.fault.Load() || m.skipped.Load() {
		return
	}
	defer m.guard()
	for _, f := range steps {
		f(&m.run)
	}
}

// guard notes a fault on mapped memory, and lets all other panics pass.
func (m *Machine) guard() {
	p := recover()
	if p == nil {
		return
	}
	at, ok := p.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok || m.Mapped == nil || !m.Mapped(at.Addr()) {
		panic(p)
	}
	m.fault.Store(true)
}
