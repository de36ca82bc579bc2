package compare_test

import (
	"context"
	"fmt"
	"log"

	"pesti/conformance/compare"
	"pesti/conformance/demo"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/lower"
)

// Compare a model in precision fast with the same model in precision exact.
func Example() {
	file, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		log.Fatal(err)
	}
	model, err := frontend.Load(file)
	if err != nil {
		log.Fatal(err)
	}
	var operands []compare.Operand
	for _, options := range []lower.Options{{Precision: "exact"}, {Precision: "fast", Activations: "q8x2"}} {
		options.Ctx, options.Rows = 64, compare.StepTokens
		compiled, err := lower.Compile(model, options)
		if err != nil {
			log.Fatal(err)
		}
		plan, err := compare.OpenPlan(compare.Input{Plan: compiled.Plan, Model: file}, compare.Description{Name: options.Precision})
		if err != nil {
			log.Fatal(err)
		}
		defer plan.Close()
		operands = append(operands, plan)
	}
	ids := []int32{7, 300, 41, 9, 1000, 3, 3, 12}
	c, err := compare.Compare(context.Background(), operands[0], operands[1], ids, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("the same most likely token at %d of %d positions\n", c.SameTop, c.Tokens)
	fmt.Println("error:", c.CheckKL(1e-4))
	// Output:
	// the same most likely token at 8 of 8 positions
	// error: <nil>
}
