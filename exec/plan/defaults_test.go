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

// fits reports whether a parameter has no default, or one of its type and in its range.
func fits(p plan.ParamSpec) bool {
	switch v := p.Default.(type) {
	case nil:
		return true
	case int64:
		_, same := p.Kind.(int64)
		return same && v >= p.Min
	case float64:
		_, same := p.Kind.(float64)
		return same && v >= p.Range[0] && v <= p.Range[1]
	case string:
		_, same := p.Kind.(string)
		return same && slices.Contains(p.Words, v)
	}
	return false
}

// TestDefaultTypes checks the default of each parameter in the table of signatures.
func TestDefaultTypes(t *testing.T) {
	integer := plan.ParamSpec{Name: "n", Kind: int64(0), Min: 1}
	number := plan.ParamSpec{Name: "x", Kind: 0.0, Range: [2]float64{-1, 1}}
	word := plan.ParamSpec{Name: "w", Kind: "", Words: []string{"pairs"}}
	for _, c := range []struct {
		spec plan.ParamSpec
		want bool
	}{
		{integer, true}, {integer.Optional(int64(1)), true}, {integer.Optional(int64(0)), false}, {integer.Optional(1), false}, {integer.Optional(1.0), false},
		{number.Optional(1.0), true}, {number.Optional(1.5), false}, {number.Optional(int64(1)), false}, {number.Optional(1), false},
		{word.Optional("pairs"), true}, {word.Optional("other"), false}, {word.Optional(1.0), false},
	} {
		if fits(c.spec) != c.want {
			t.Errorf("default %v (%T) of a parameter of type %T: fits is %v, expected %v", c.spec.Default, c.spec.Default, c.spec.Kind, !c.want, c.want)
		}
	}
	for _, sig := range plan.Kernels() {
		for _, p := range sig.Params {
			if !fits(p) {
				t.Errorf("kernel %s: the default of %s is %v of type %T, expected a value of type %T in its range", sig.Name, p.Name, p.Default, p.Default, p.Kind)
			}
		}
	}
}
