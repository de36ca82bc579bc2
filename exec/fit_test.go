package exec_test

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/cpu"
	"pesti/exec/plan"
	"pesti/lower"
)

// A plan runs if it just fits, and is refused with all numbers if one byte is missing.
func TestOpenFits(t *testing.T) {
	m := load(t, tiny.Config{})
	p := compile(t, m, lower.Options{}).Plan
	need := plan.MemoryUseOf(p)
	total := need.Total()
	e, err := exec.Open(p, m.File, exec.Options{RAM: cpu.RAM{Total: 2 * total, Available: total}})
	if err != nil {
		t.Fatalf("%d bytes available: %v", total, err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for _, available := range []int64{total - 1, 0} {
		e, err := exec.Open(p, m.File, exec.Options{RAM: cpu.RAM{Total: 3 << 30, Available: available}})
		if err == nil {
			e.Close()
			t.Fatalf("%d bytes available: opened, expected an error", available)
		}
		if !errors.Is(err, exec.ErrOutOfMemory) {
			t.Errorf("%v: is not ErrOutOfMemory", err)
		}
		for _, size := range []int64{total, need.Weights, need.Packed, need.State, need.Arena, need.IO, available, 3 << 30} {
			if !strings.Contains(err.Error(), plan.HumanBytes(size)) {
				t.Errorf("%v: expected it to say %s", err, plan.HumanBytes(size))
			}
		}
	}
}

// A plan that needs more memory than any machine has is an error, whatever RAM the options state.
func TestOpenHuge(t *testing.T) {
	m := load(t, tiny.Config{})
	for _, total := range []int64{math.MaxInt64/2 + 1, math.MaxInt64} { // bytes of input and output
		p := compile(t, m, lower.Options{}).Plan
		for i := range p.Buffers {
			if b := &p.Buffers[i]; b.Name == "logits" {
				b.Size += total - p.Memory.IO
				p.Memory.IO = total
			}
		}
		if err := plan.Verify(p); err != nil {
			t.Fatal(err)
		}
		e, err := exec.Open(p, m.File, exec.Options{RAM: cpu.RAM{Total: math.MaxInt64, Available: math.MaxInt64}})
		if err == nil {
			e.Close()
			t.Fatalf("%d bytes of input and output: opened, expected an error", total)
		}
		if !errors.Is(err, exec.ErrOutOfMemory) {
			t.Errorf("%v: is not ErrOutOfMemory", err)
		}
		if !strings.Contains(err.Error(), "input and output") {
			t.Errorf("%v: expected it to say what needs how much", err)
		}
	}
}

// By default there are no more workers than processors.
func TestOpenThreads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	m := load(t, tiny.Config{})
	for _, c := range []struct{ plan, asked, want int }{{1, 0, 1}, {3, 0, 3}, {64, 0, 3}, {64, 5, 5}} {
		p := compile(t, m, lower.Options{Threads: c.plan}).Plan
		e, err := exec.Open(p, m.File, exec.Options{Threads: c.asked})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Threads(); got != c.want {
			t.Errorf("a plan for %d threads, %d asked for: %d workers, expected %d", c.plan, c.asked, got, c.want)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
