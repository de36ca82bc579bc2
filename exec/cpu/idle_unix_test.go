//go:build unix

package cpu

import (
	"sync/atomic"
	"testing"
	"time"

	"pesti/conformance/testenv"
	"pesti/exec/cpu/kernel"
)

// TestIdleBurnsNothing checks that threads without work park, however often they have run, and then
// use no processor time.
func TestIdleBurnsNothing(t *testing.T) {
	m := New(3)
	defer m.Close()
	var wrong atomic.Int64
	s := relay(3, 10, &wrong)
	for range 3 {
		if err := m.Run(nil, s, kernel.Run{T: 1}); err != nil {
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
		before := testenv.ProcessorTime()
		time.Sleep(idle)
		if spent := testenv.ProcessorTime() - before; spent > idle/2 {
			t.Errorf("%v of processor time in %v without work", spent, idle)
		}
	}
}
