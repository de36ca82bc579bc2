package lower

import (
	"testing"

	"pesti/conformance/demo"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
)

// compileCUDA compiles the embedded model for CUDA devices.
func compileCUDA(t *testing.T, o Options) *plan.Plan {
	t.Helper()
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	o.Target = plan.CUDA
	res, err := Compile(m, o)
	if err != nil {
		t.Fatal(err)
	}
	return res.Plan
}

// TestCUDA sees that nothing of a supported model is left to the host, that a layer of a token alone
// takes five launches, and that the text of such a plan gives it back.
func TestCUDA(t *testing.T) {
	for _, precision := range []string{"exact", "fast"} {
		for _, isa := range plan.CUDAISAs {
			p := compileCUDA(t, Options{Precision: precision, ISA: isa})
			s := plan.Summarise(p)
			if s.Fallbacks != 0 || s.LaunchesPerLayer != 5 {
				t.Errorf("%s: %d fallbacks, %d launches a layer, expected 0 and 5\n%s", precision, s.Fallbacks, s.LaunchesPerLayer, plan.Print(p))
			}
			if p.Fusions.QKV == 0 || p.Fusions.QKV != p.Fusions.SwiGLU || p.Fusions.QKV != p.Fusions.Attention {
				t.Errorf("%s: fusions %+v, expected as many of each", precision, p.Fusions)
			}
			if _, err := plan.Parse(plan.Print(p)); err != nil {
				t.Errorf("%s: the text does not parse: %v", precision, err)
			}
		}
	}
}

// TestCUDAWithoutPasses sees that every basic op runs somewhere, on the host where there is no kernel,
// and that a plan says so.
func TestCUDAWithoutPasses(t *testing.T) {
	p := compileCUDA(t, Options{Precision: "exact", Passes: "none"})
	if s := plan.Summarise(p); s.Fallbacks == 0 {
		t.Errorf("no fallbacks in a plan without passes\n%s", plan.Print(p))
	}
}
