package lower

import (
	"testing"

	"pesti/conformance/testenv"
	"pesti/exec/plan"
	"pesti/frontend"
)

// TestWavesAreTheLongestChain checks that no program has more waves than its longest chain of
// dependent steps, in which steps that every worker computes whole take no wave. Waves that only
// prevent overwriting are not needed.
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

// longestChain returns the number of waves that the data dependences of the steps require.
func longestChain(t *testing.T, prog *plan.Program) int {
	type writer struct {
		wave int
		each bool
	}
	last := map[int]writer{} // last writer of each buffer
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
