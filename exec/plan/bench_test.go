package plan_test

import (
	"testing"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

func BenchmarkVerify(b *testing.B) {
	p := plantest.Plan(24)
	b.ReportAllocs()
	for b.Loop() {
		if err := plan.Verify(p); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	text := plan.Print(plantest.Plan(24))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := plan.Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrint(b *testing.B) {
	p := plantest.Plan(24)
	for b.Loop() {
		plan.Print(p)
	}
}
