package lower

import (
	"testing"

	"pesti/conformance/testenv"
	"pesti/exec/plan"
	"pesti/frontend"
)

// TestWavesAreTheLongestChain sees that no program has more waves than its longest chain of steps of
// which each reads what the one before it wrote, where what every worker computes for itself needs no
// wave of its own. Waves that only keep steps from writing over each other would be more.
func TestWavesAreTheLongestChain(t *testing.T) {
	check := func(name string, m *frontend.Model) {
		t.Run(name, func(t *testing.T) {
			for _, precision := range []string{"fast", "exact"} {
				p := compile(t, m, Options{Precision: precision, Threads: 2})
				for i := range p.Programs {
					prog := &p.Programs[i]
					if chain := longestChain(t, prog); len(prog.Waves) != chain {
						t.Errorf("%s, %s: %d waves, the longest chain has %d", precision, prog.Name, len(prog.Waves), chain)
					}
				}
			}
		})
	}
	for _, c := range shapes {
		check(c.Arch, tinyModel(t, c))
	}
	check("qwen", realModel(t, testenv.Qwen))
}

// longestChain returns the number of waves that what steps read and write asks for.
func longestChain(t *testing.T, prog *plan.Program) int {
	type writer struct {
		wave int
		each bool
	}
	last := map[int]writer{} // of each buffer
	longest := 0
	for _, w := range prog.Waves {
		for _, st := range w.Steps {
			sig, ok := plan.LookupKernel(st.Kernel)
			if !ok {
				t.Fatalf("step %s: kernel %s is not known", st.Name, st.Kernel)
			}
			wave := 1
			for _, a := range st.Args {
				if before, ok := last[a.Buffer]; ok && sig.Operand(a.Role).Dir.Reads() {
					if before.each {
						wave = max(wave, before.wave)
					} else {
						wave = max(wave, before.wave+1)
					}
				}
			}
			for _, a := range st.Args {
				if a.Buffer >= 0 && sig.Operand(a.Role).Dir.Writes() {
					last[a.Buffer] = writer{wave, st.Split.By == "each"}
				}
			}
			longest = max(longest, wave)
		}
	}
	return longest
}
