package cpu

import (
	"runtime"
	"sync/atomic"
)

// A barrier lets no worker pass before all have arrived (a central barrier whose sense is a
// counter; Mellor-Crummey & Scott, 1991). Its words lie on cache lines of their own.
type barrier struct {
	workers int32
	_       [60]byte
	arrived atomic.Int32
	_       [60]byte
	passed  atomic.Uint32 // how often the barrier has opened
	_       [60]byte
}

func (b *barrier) wait(back *backoff) {
	// Read before arriving: the barrier cannot open until this worker has arrived.
	before := b.passed.Load()
	if b.arrived.Add(1) == b.workers {
		b.arrived.Store(0)
		b.passed.Add(1)
		return
	}
	for i := 0; b.passed.Load() == before; i++ {
		back.pause(i)
	}
}

// A backoff says how a worker waits for others: it looks again at once a number of times, then
// lets others have the processor between looks.
type backoff struct {
	spins int // looks before the first yield
	idle  int // looks before a worker without work parks
	every int // each so many yields also lets other goroutines run
}

// newBackoff returns a backoff for workers that may have a processor each, or not. A worker that
// has none runs only when another goroutine is told to yield.
func newBackoff(workers int) backoff {
	if workers > runtime.GOMAXPROCS(0) {
		return backoff{spins: 64, idle: 128, every: 1}
	}
	return backoff{spins: 1 << 14, idle: 1<<14 + 256, every: 64}
}

// pause is called after the i-th look.
func (b *backoff) pause(i int) {
	switch {
	case i < b.spins:
	case i%b.every == 0:
		runtime.Gosched()
	default:
		yield()
	}
}
