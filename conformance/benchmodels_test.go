package conformance

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/testenv"
	"pesti/lower"
)

// benchModelTolerance is the bound of squareError of two layers: llama.cpp rounds activations to 8 bits.
// Measured are 3.4e-4 to 6.6e-4.
const benchModelTolerance = 2e-3

// TestProveBenchModels writes models of benchmodels with two layers, generates tokens with them, and
// compares these and the logits with llama.cpp.
func TestProveBenchModels(t *testing.T) {
	testenv.Prove(t)
	testenv.Vocabularies(t)
	for _, name := range strings.Fields(benchModels(t, "-list")) {
		t.Run(name, func(t *testing.T) {
			m := openFile(t, name, strings.TrimSpace(benchModels(t, "-layers", "2", "-o", t.TempDir(), name)))
			prompt := m.encode(t, "Once upon a time there was a")
			o := lower.Options{Precision: "exact", Ubatch: 16, Threads: 2}
			ids := m.greedy(t, prompt, 8, o)
			theirs := askLlamaCpp(t, m.path, ids)
			for i := len(prompt); i < len(ids); i++ {
				row := theirs[i-1]
				if best := slices.Index(row, slices.Max(row)); int32(best) != ids[i] {
					t.Errorf("token %d is %d, llama.cpp's is %d", i, ids[i], best)
				}
			}
			e := squareError(m.logits(t, ids, o), theirs)
			t.Logf("tokens %v, normalized mean square error %.1e", ids[len(prompt):], e)
			if !(e <= benchModelTolerance) {
				t.Errorf("normalized mean square error %.1e, expected at most %.0e", e, benchModelTolerance)
			}
		})
	}
}

// benchModels runs the command and returns what it prints.
func benchModels(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"run", "./benchmodels"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("benchmodels %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}
