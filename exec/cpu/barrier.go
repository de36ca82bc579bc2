package cpu

import (
	"runtime"
	"sync/atomic"
)

// A barrier lets no thread pass before all have arrived (a central barrier whose sense is a
// counter; Mellor-Crummey & Scott, 1991). Its words lie on cache lines of their own.
type barrier struct {
	threads int32
	_       [60]byte
	arrived atomic.Int32
	_       [60]byte
	passed  atomic.Uint32 // how often the barrier has opened
	_       [60]byte
}

func (b *barrier) wait() {
	// Read before arriving: the barrier cannot open until this thread has arrived.
	before := b.passed.Load()
	if b.arrived.Add(1) == b.threads {
		b.arrived.Store(0)
		b.passed.Add(1)
		return
	}
	for i := 0; b.passed.Load() == before; i++ {
		pause(i)
	}
}

// How a thread waits: it looks again at once a number of times, about as long as a wave of a small
// model takes, then lets others have the processor between looks.
const (
	spins = 1 << 12      // looks before the first yield
	looks = spins + 1<<8 // looks before a thread without work parks
	other = 1 << 6       // each so many yields also lets other goroutines run
)

// pause is called after the i-th look.
func pause(i int) {
	switch {
	case i < spins:
	case i%other == 0:
		runtime.Gosched()
	default:
		yield()
	}
}
