package plan_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

// TestDefaults adds a parameter with a default to a kernel, as a newer program would. An older plan
// parses, verifies and prints as before. A plan with the parameter is refused if the kernel lacks
// it or if the value is the default, and the error names the parameter.
func TestDefaults(t *testing.T) {
	old := plan.Print(plantest.Plan(2))
	sig, ok := plan.LookupKernel("norm")
	if !ok {
		t.Fatal("no kernel norm")
	}
	before := sig.Params
	restore := func() { sig.Params = before }
	defer restore()
	sig.Params = append(slices.Clip(before), plan.ParamSpec{Name: "shift", Kind: 0.0, Range: [2]float64{-1, 1}}.Optional(0.25))

	p, err := plan.Parse(old)
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Verify(p); err != nil {
		t.Fatalf("a plan without the parameter: %v", err)
	}
	if !bytes.Equal(plan.Print(p), old) {
		t.Error("a plan without the parameter prints to other bytes")
	}
	st := stepOn(t, p, "norm")
	own := st.Params
	st.Params = append(slices.Clip(own), plan.Param{Name: "shift", Value: 0.25})
	if err := plan.Verify(p); err == nil || !strings.Contains(err.Error(), "parameter shift is 0.25, which is its default: expected the step to omit it") {
		t.Errorf("a parameter with its default value: %v", err)
	}
	st.Params = own
	if got := st.Param("shift"); got != 0.25 {
		t.Errorf("the parameter reads as %v, want its default", got)
	}
	st.Params = append(slices.Clip(st.Params), plan.Param{Name: "shift", Value: 0.5})
	if got := st.Param("shift"); got != 0.5 {
		t.Errorf("the parameter reads as %v, want the step's", got)
	}
	if err := plan.Verify(p); err != nil {
		t.Fatalf("a plan with the parameter: %v", err)
	}
	q, err := plan.Parse(plan.Print(p))
	if err != nil {
		t.Fatal(err)
	}
	if got := stepOn(t, q, "norm").Param("shift"); got != 0.5 {
		t.Errorf("the parameter is %v after printing and parsing", got)
	}
	restore()
	if err := plan.Verify(q); err == nil || !strings.Contains(err.Error(), "parameter shift is unknown to kernel norm") {
		t.Errorf("a parameter that the kernel lacks: %v", err)
	}
}

// stepOn returns the first step that runs a kernel.
func stepOn(t *testing.T, p *plan.Plan, kernel string) *plan.Step {
	t.Helper()
	for i := range p.Programs {
		for j := range p.Programs[i].Waves {
			steps := p.Programs[i].Waves[j].Steps
			for k := range steps {
				if steps[k].Kernel == kernel {
					return &steps[k]
				}
			}
		}
	}
	t.Fatalf("no step on %s", kernel)
	return nil
}

// TestDefaultTypes checks that each default in the table of signatures has the type and the range of its parameter.
func TestDefaultTypes(t *testing.T) {
	for _, sig := range plan.Kernels() {
		for _, p := range sig.Params {
			if p.Default == nil {
				continue
			}
			fits := false
			switch v := p.Default.(type) {
			case int64:
				_, same := p.Kind.(int64)
				fits = same && v >= p.Min
			case float64:
				_, same := p.Kind.(float64)
				fits = same && v >= p.Range[0] && v <= p.Range[1]
			case string:
				_, same := p.Kind.(string)
				fits = same && slices.Contains(p.Words, v)
			}
			if !fits {
				t.Errorf("kernel %s: the default of %s is %v of type %T, expected a value of type %T in its range", sig.Name, p.Name, p.Default, p.Default, p.Kind)
			}
		}
	}
}
