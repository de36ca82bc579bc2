package cpu

import (
	"runtime"
	"sync/atomic"
)

// A barrier blocks each thread until all have arrived (a central barrier whose sense is a counter;
// Mellor-Crummey & Scott, 1991). Its words are on separate cache lines.
type barrier struct {
	threads int32
	_       [60]byte
	arrived atomic.Int32
	_       [60]byte
	passed  atomic.Uint32 // how often the barrier has opened
	_       [60]byte
}

// wait calls last in the thread that arrives last, before the others may go on.
func (b *barrier) wait(last func()) {
	// Read before arriving: the barrier cannot open until this thread has arrived.
	before := b.passed.Load()
	if b.arrived.Add(1) == b.threads {
		last()
		b.arrived.Store(0)
		b.passed.Add(1)
		return
	}
	for i := 0; b.passed.Load() == before; i++ {
		pause(i)
	}
}

// A waiting thread polls without a pause for about as long as a wave of a small model takes, and
// then yields between polls.
const (
	spins = 1 << 12      // polls before the first yield
	looks = spins + 1<<8 // polls before a thread without work parks
	other = 1 << 6       // every this many yields, other goroutines run too
)

// pause is called after the i-th poll.
func pause(i int) {
	switch {
	case i < spins:
	case i%other == 0:
		runtime.Gosched()
	default:
		yield()
	}
}
