package plan_test

import (
	"testing"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

func TestDigest(t *testing.T) {
	p := plantest.Plan(1)
	want := plan.Digest(p)
	p.Model.File, p.Model.WeightsDigest = "elsewhere.gguf", "sha256:77"
	if got := plan.Digest(p); got != want || p.Model.File != "elsewhere.gguf" {
		t.Errorf("the digest depends on where the model lies, or the plan was changed")
	}
	p.Programs[0].Waves[0].Steps[0].Name = "other"
	if plan.Digest(p) == want {
		t.Errorf("the digest does not depend on the name of a step")
	}
}
