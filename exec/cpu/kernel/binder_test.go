package kernel

import (
	"strings"
	"testing"

	"pesti/exec/plan"
)

// TestParamErrors checks that Bind tells a missing parameter from one of another type.
func TestParamErrors(t *testing.T) {
	for want, params := range map[string][]plan.Param{
		"parameter n is missing, expected type int64":                nil,
		"parameter n is 4 of type float64, expected type int64: its": {floatParam("n", 4)},
	} {
		c := newCall("copy", "T", "one", 1, params...)
		c.put("x", make([]float32, 4))
		c.put("y", make([]float32, 4))
		if _, err := Bind(&Binding{Step: &c.step, Operands: c.ops, Workers: 1}, []string{"portable"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected %q", err, want)
		}
	}
}
