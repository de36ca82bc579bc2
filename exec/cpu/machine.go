// Package cpu runs bound programs on the processor. It contains the workers and their threads, the
// barrier between waves, memory outside the Go heap, and the roofline of the machine. Package
// kernel computes the steps; package exec chooses the program and binds its operands.
//
// It imports exec/cpu/kernel alone, and does not depend on plans, models or files.
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

// ErrFault reports that a run accessed mapped memory which no longer exists, because another
// process truncated the file.
var ErrFault = errors.New("mapped memory is gone")

// ErrCanceled reports that the caller canceled a run before all waves were computed.
var ErrCanceled = errors.New("the run was canceled")

// A Machine is a set of workers that run schedules, one at a time. They run on at most as many
// operating system threads as there are processors, since more threads would wait for each other to
// be scheduled at every wave. If there are more workers than threads, a thread does the shares of
// several workers one after another. Thread 0 is the goroutine that calls Run. Between runs, the
// other threads spin for a short time and then park.
type Machine struct {
	// Mapped reports whether an address belongs to a mapped file. It is set before the first run. A
	// fault at such an address becomes ErrFault; a fault elsewhere is a wild pointer and panics.
	Mapped func(addr uintptr) bool

	workers int
	threads int
	barrier barrier

	// The run in progress, written before start changes.
	schedule Schedule
	run      kernel.Run
	done     <-chan struct{} // closed when the caller cancels the run; see poll

	start atomic.Uint32 // counts runs
	_     [60]byte
	// fault means that a worker accessed missing memory, canceled that a thread saw that the run is
	// canceled, and skipped that a worker skipped its share for one of these reasons. The threads then
	// pass the remaining barriers without computing.
	fault, canceled, skipped atomic.Bool
	_                        [52]byte
	lots                     []lot
	ended                    sync.WaitGroup
}

// A lot parks a thread that has had nothing to run for some time.
type lot struct {
	parked atomic.Bool
	wake   chan struct{} // the thread that sets parked to false sends to it
	_      [48]byte
}

// UsableCores returns the number of processors that this process may use at the same time.
func UsableCores() int { return runtime.GOMAXPROCS(0) }

// New returns a machine with a number of workers and starts its threads. Close ends them.
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

// Workers returns the number of workers, which is the number of shares in a schedule.
func (m *Machine) Workers() int { return m.workers }

// Run runs a schedule, which has a share for each worker, and returns when all workers are done.
// After done is closed, workers finish the current wave and no worker begins the next, and Run returns
// ErrCanceled; a nil channel never cancels. It allocates nothing. Only one call may run at a time.
func (m *Machine) Run(done <-chan struct{}, s Schedule, r kernel.Run) error {
	if len(s) == 0 || len(s[0]) == 0 {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))

	m.schedule, m.run, m.done = s, r, done
	m.fault.Store(false)
	m.canceled.Store(false)
	m.skipped.Store(false)
	m.poll()
	m.release()
	m.walk(0)
	switch {
	case m.fault.Load():
		return ErrFault
	case m.skipped.Load():
		return ErrCanceled
	}
	return nil
}

// Close ends the threads. The machine must not be running.
func (m *Machine) Close() {
	m.schedule = nil
	m.release()
	m.ended.Wait()
}

// release starts the threads on a new schedule.
func (m *Machine) release() {
	m.start.Add(1)
	for thread := 1; thread < m.threads; thread++ {
		if lot := &m.lots[thread]; lot.parked.Load() && lot.parked.CompareAndSwap(true, false) {
			lot.wake <- struct{}{}
		}
	}
}

// work is the loop of a thread.
func (m *Machine) work(thread int) {
	defer m.ended.Done()
	runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
	debug.SetPanicOnFault(true)
	for runs := uint32(0); ; {
		runs = m.await(thread, runs)
		if m.schedule == nil {
			return
		}
		m.walk(thread)
	}
}

// await waits until the count of runs differs from seen, and returns it.
func (m *Machine) await(thread int, seen uint32) uint32 {
	for i := range looks {
		if runs := m.start.Load(); runs != seen {
			return runs
		}
		pause(i)
	}
	lot := &m.lots[thread]
	lot.parked.Store(true)
	// A run that began before parked was set did not see it, so look for such a run here.
	if m.start.Load() == seen || !lot.parked.CompareAndSwap(true, false) {
		<-lot.wake
	}
	return m.start.Load()
}

// walk is a thread's part of a run: in each wave, the shares of its consecutive workers.
func (m *Machine) walk(thread int) {
	first, end := thread*m.workers/m.threads, (thread+1)*m.workers/m.threads
	for wave := range m.schedule[first] {
		for _, waves := range m.schedule[first:end] {
			m.wave(waves[wave])
		}
		m.barrier.wait(m.poll)
	}
}

// poll checks whether the caller has canceled the run. It runs before the first wave, and between waves while all
// threads wait, so that all workers compute the next wave or none.
func (m *Machine) poll() {
	select {
	case <-m.done:
		m.canceled.Store(true)
	default:
	}
}

// wave computes the worker's share of the steps of one wave.
func (m *Machine) wave(steps []kernel.Func) {
	if m.canceled.Load() {
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

// guard records a fault on mapped memory, and passes on all other panics.
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
