// Package cpu owns what runs a bound program on the processor: workers on threads of their own,
// the barrier between waves, and memory outside the Go heap. What the steps compute is package
// kernel's; which program runs on which operands is package exec's.
//
// It imports exec/cpu/kernel alone, and must not know plans, models or files.
package cpu

import (
	"context"
	"errors"
	"fmt"
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

// ErrInterrupted is the error of a run that Interrupt ended before its last wave. It is a
// context.Canceled, since that is what mostly leads to an interrupt.
var ErrInterrupted = fmt.Errorf("interrupted: %w", context.Canceled)

// A Machine is a set of workers that run schedules, one at a time. Worker 0 is the goroutine that
// calls Run; the others have an operating system thread each, which waits between runs: a short
// while spinning, then parked.
type Machine struct {
	workers int
	barrier barrier
	backoff backoff

	// The run in progress, written before start changes.
	schedule Schedule
	run      kernel.Run

	start atomic.Uint32 // counts runs
	_     [60]byte
	// A worker hit missing memory, or the caller wants no more: workers go through what is left
	// of their waves idle.
	fault, interrupted atomic.Bool
	_                  [56]byte
	lots               []lot
	ended              sync.WaitGroup
}

// A lot is where a worker parks when there is nothing to run for long.
type lot struct {
	parked atomic.Bool
	wake   chan struct{} // sent to by whoever set parked to false
	_      [48]byte
}

// New starts workers − 1 threads. Close ends them.
func New(workers int) *Machine {
	m := &Machine{workers: max(workers, 1), backoff: newBackoff(workers)}
	m.barrier.workers = int32(m.workers)
	m.lots = make([]lot, m.workers)
	for w := 1; w < m.workers; w++ {
		m.lots[w].wake = make(chan struct{}, 1)
		m.ended.Add(1)
		go m.work(w)
	}
	return m
}

// Workers returns the number of workers, with worker 0.
func (m *Machine) Workers() int { return m.workers }

// Run runs a schedule of as many workers as the machine has, and returns when all are done. It
// allocates nothing. Only one call may run at a time.
func (m *Machine) Run(s Schedule, r kernel.Run) error {
	if len(s) == 0 || len(s[0]) == 0 {
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))

	m.schedule, m.run = s, r
	m.fault.Store(false)
	m.release()
	m.walk(0)
	switch {
	case m.fault.Load():
		return ErrFault
	case m.interrupted.Load():
		return ErrInterrupted
	}
	return nil
}

// Interrupt lets the run in progress end after the wave it is in, and it and all later ones
// return ErrInterrupted. It may be called from any goroutine.
func (m *Machine) Interrupt() { m.interrupted.Store(true) }

// Close ends the threads. The machine must not be running.
func (m *Machine) Close() {
	m.schedule = nil
	m.release()
	m.ended.Wait()
}

// release lets the workers see a new schedule.
func (m *Machine) release() {
	m.start.Add(1)
	for w := 1; w < m.workers; w++ {
		if lot := &m.lots[w]; lot.parked.Load() && lot.parked.CompareAndSwap(true, false) {
			lot.wake <- struct{}{}
		}
	}
}

// work is the life of worker w.
func (m *Machine) work(w int) {
	defer m.ended.Done()
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	debug.SetPanicOnFault(true)
	for runs := uint32(0); ; {
		runs = m.await(w, runs)
		if m.schedule == nil {
			return
		}
		m.walk(w)
	}
}

// await returns the count of runs when it is no longer what was seen.
func (m *Machine) await(w int, seen uint32) uint32 {
	for i := range m.backoff.idle {
		if runs := m.start.Load(); runs != seen {
			return runs
		}
		m.backoff.pause(i)
	}
	lot := &m.lots[w]
	lot.parked.Store(true)
	// A run that began before parked was set has not seen it, but is seen here.
	if m.start.Load() == seen || !lot.parked.CompareAndSwap(true, false) {
		<-lot.wake
	}
	return m.start.Load()
}

// walk is worker w's part of a run.
func (m *Machine) walk(w int) {
	for _, steps := range m.schedule[w] {
		m.wave(steps)
		m.barrier.wait(&m.backoff)
	}
}

// wave computes the worker's share of the steps of one wave.
func (m *Machine) wave(steps []kernel.Func) {
	if m.fault.Load() || m.interrupted.Load() {
		return
	}
	defer m.guard()
	for _, f := range steps {
		f(&m.run)
	}
}

// guard notes a fault on mapped memory, and lets all other panics pass.
func (m *Machine) guard() {
	switch p := recover().(type) {
	case nil:
	case interface {
		runtime.Error
		Addr() uintptr
	}:
		m.fault.Store(true)
	default:
		panic(p)
	}
}
