package exec_test

import (
	"strings"
	"testing"

	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/cpu"
	"pesti/exec/plan"
	"pesti/lower"
)

// A plan runs where it just fits, and is refused where a byte is missing, with all numbers.
func TestOpenFits(t *testing.T) {
	m := load(t, tiny.Config{})
	p := compile(t, m, lower.Options{}).Plan
	need := plan.NeedOf(p)
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
		for _, size := range []int64{total, need.Weights, need.Packed, need.State, need.Arena, need.IO, available, 3 << 30} {
			if !strings.Contains(err.Error(), plan.HumanBytes(size)) {
				t.Errorf("%v: expected it to say %s", err, plan.HumanBytes(size))
			}
		}
	}
}
