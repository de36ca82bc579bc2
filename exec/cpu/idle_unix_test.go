//go:build unix

package cpu

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pesti/exec/cpu/kernel"
)

// TestIdleBurnsNothing sees that threads without work park, however often they have run, and then
// take no processor time.
func TestIdleBurnsNothing(t *testing.T) {
	m := New(3)
	defer m.Close()
	var wrong atomic.Int64
	s := relay(3, 10, &wrong)
	for range 3 {
		if err := m.Run(s, kernel.Run{T: 1}); err != nil {
			t.Fatal(err)
		}
		for thread := 1; thread < m.threads; thread++ {
			for deadline := time.Now().Add(10 * time.Second); !m.lots[thread].parked.Load(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("thread %d does not park", thread)
				}
			}
		}
		const idle = 100 * time.Millisecond
		before := processorTime(t)
		time.Sleep(idle)
		if spent := processorTime(t) - before; spent > idle/2 {
			t.Errorf("%v of processor time in %v without work", spent, idle)
		}
	}
}

// processorTime returns what the process has spent on all processors.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
