package compare

import (
	"math"
	"strings"
	"testing"

	"pesti/exec"
	"pesti/exec/plan"
	"pesti/lower"
)

// A run that needs more memory than available is refused with the numbers before anything is
// computed.
func TestCheckFit(t *testing.T) {
	in := demoInput(t, lower.Options{Precision: "exact"})
	for _, c := range []struct {
		tokens int
		free   int64
		words  string // of the error, "" for none
	}{
		{10, 0, "checking 10 tokens against gorgonia needs about "},
		{100, 1 << 30, ""},
		{512, 1 << 28, ""},
		// 10 · 4 heads · 512² · 8 bytes, 2 · 512 · 1536 · 8, (3 · 256² + 3 · 256 · 512) · 8, and for three
		// programs 512 · 1536 · 4.
		{512, 1 << 26, "512 tokens against gorgonia needs about 105.5 MiB of memory (its attention 80.0 MiB, logits 12.0 MiB and weights 4.5 MiB, the plan's logits 9.0 MiB), expected at most the 64.0 MiB of this machine's 128.0 MiB"},
	} {
		g, err := newReference(in, "demo", make([]int32, c.tokens))
		if err != nil {
			t.Fatal(err)
		}
		err = g.checkFit(exec.RAM{Total: 2 * c.free, Available: c.free})
		if c.free == 0 {
			err = g.checkFit(exec.RAM{Total: 1, Available: 0})
		}
		if c.words == "" && err != nil || c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)) {
			t.Errorf("%d tokens in %d bytes: %v, want %q", c.tokens, c.free, err, c.words)
		}
		if err := g.checkFit(exec.RAM{}); err != nil {
			t.Errorf("where the system does not tell: %v", err)
		}
	}
}

// Values of steps count twice: the plan's, and gorgonia's of each value that exceeds a bound, which may be all.
func TestCheckFitSteps(t *testing.T) {
	in := demoInput(t, lower.Options{Activations: "mixed"})
	g, err := newReference(in, "demo", make([]int32, 100))
	if err != nil {
		t.Fatal(err)
	}
	most := int64(0)
	for i := range in.Plan.Programs {
		bytes, err := stepBytes(in.Plan, &in.Plan.Programs[i], 100)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, bytes)
	}
	err = g.checkFit(exec.RAM{Total: 1 << 20, Available: 1 << 19})
	if want := " and steps " + plan.HumanBytes(2*most); most == 0 || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, expected %q", err, want)
	}
}

func TestCheckAllowed(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		row  []float64
		want float64
	}{
		{[]float64{0, 0}, 1e-3},
		{[]float64{3, -50}, 1e-3}, // as in real models
		{[]float64{100, 99}, 1e-3},
		{[]float64{200, 1}, 2e-3},
		{[]float64{1, -1e4}, 0.1},
		{[]float64{inf, 1}, 1e-3}, // an infinite logit must not allow every difference
		{[]float64{1e4, nan}, 1e-3},
	} {
		if got := Bounds.Exact.allowed(c.row); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("with logits %v, %v is allowed, want %v", c.row, got, c.want)
		}
	}
}
