package plan_test

import (
	"bytes"
	"fmt"
	"log"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

// A plan is text. After an edit by hand, it is sealed again and then verified in full.
func ExampleVerify() {
	text := plan.Print(plantest.Plan(1))
	edited := bytes.Replace(text, []byte("eps=1e-06"), []byte("eps=1e-05"), 1)
	if _, err := plan.Parse(edited); err != nil {
		fmt.Println("changed and not sealed")
	}
	p, err := plan.Parse(plan.Seal(edited))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(plan.Verify(p))

	p.Programs[0].Waves[0].Steps[0].Kernel = "gemm"
	fmt.Println(plan.Verify(p))
	// Output:
	// changed and not sealed
	// <nil>
	// program decode: step 0 "embd": kernel is "gemm", expected a row of the signature table
}
