package plan_test

import (
	"reflect"
	"testing"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

func TestParseReadsWhatPrintWrote(t *testing.T) {
	p := plantest.Plan(2)
	q, err := plan.Parse(plan.Print(p))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(p, q) {
		t.Error("the plan that was read differs from the one that was printed")
	}
}
