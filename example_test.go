package pesti_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"pesti"
	"pesti/exec/plan"
	"pesti/lower"
)

// Stream a text, and stop when there is enough of it.
func ExampleModel_Generate() {
	model, err := pesti.Open(pesti.Demo, pesti.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tokens := 0
	for piece, err := range model.Generate(ctx, "Once upon a time", pesti.Params{MaxTokens: 50}) {
		if errors.Is(err, context.Canceled) {
			fmt.Println(piece.Text, "… canceled")
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece.Text)
		if tokens++; tokens == 16 {
			cancel() // from any goroutine
		}
	}
	// Output:
	// , there was a clever little girl named Hazel. She lived in a cosy cottage … canceled
}

// Continue several prompts at the same time. Their forward passes take turns.
func ExampleModel_Generate_severalSequences() {
	model, err := pesti.Open(pesti.Demo, pesti.Options{Compile: lower.Options{Sequences: 2, Ctx: 128}})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	prompts := []string{"Once upon a time", "One day, a cat"}
	texts := make([]string, len(prompts))
	var all sync.WaitGroup
	for i, prompt := range prompts {
		all.Go(func() {
			for piece, err := range model.Generate(context.Background(), prompt, pesti.Params{MaxTokens: 5}) {
				if err != nil {
					log.Fatal(err)
				}
				texts[i] += piece.Text
			}
		})
	}
	all.Wait()
	fmt.Println(texts[0])
	// Output:
	// , there was a clever
}

// Compile a model and read the plan, the fused graph and what the passes did.
func ExampleCompile() {
	c, err := pesti.Compile(pesti.Demo, pesti.Options{Compile: lower.Options{ISA: "portable", Ctx: 128}})
	if err != nil {
		log.Fatal(err)
	}
	decode := c.Plan.Programs[0] // for a token at a time
	fmt.Println("layers run in waves:", len(decode.Waves) > 0, "- bytes of arena:", c.Plan.Device(0).Memory.Arena > 0)
	fmt.Println("nodes before and after fusion:", len(c.Built.Nodes) > len(c.Fused.Nodes))
	fmt.Println("first note is of pass", c.Notes[0].Pass)
	// Output:
	// layers run in waves: true - bytes of arena: true
	// nodes before and after fusion: true
	// first note is of pass canonicalize
}

// Compile a model, save the plan, and open it again. Opening a plan does not compile.
func ExampleOpenPlan() {
	dir, err := os.MkdirTemp("", "plans")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	c, err := pesti.Compile(pesti.Demo, pesti.Options{Compile: lower.Options{Ctx: 128}}) // or a GGUF file
	if err != nil {
		log.Fatal(err)
	}
	path := filepath.Join(dir, "demo.plan")
	if err := os.WriteFile(path, plan.Print(c.Plan), 0o666); err != nil {
		log.Fatal(err)
	}
	model, err := pesti.OpenPlan(path, "", pesti.Options{}) // "": the model that the plan names
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	for piece, err := range model.Generate(context.Background(), "Once upon a time", pesti.Params{MaxTokens: 5}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece.Text)
	}
	// Output:
	// , there was a clever
}

// Compare the logits of two models, here of one model in two precisions.
func ExampleModel_Logits() {
	var logits [2][]float32
	for i, precision := range []string{"exact", "fast"} {
		model, err := pesti.Open(pesti.Demo, pesti.Options{Compile: lower.Options{Precision: precision, Ctx: 128}})
		if err != nil {
			log.Fatal(err)
		}
		ids, err := model.Tokenize("Once upon a time")
		if err != nil {
			log.Fatal(err)
		}
		if logits[i], err = model.Logits(context.Background(), ids); err != nil {
			log.Fatal(err)
		}
		model.Close()
	}
	mostLikely := func(x []float32) int { return slices.Index(x, slices.Max(x)) }
	fmt.Println("the same most likely token:", mostLikely(logits[0]) == mostLikely(logits[1]))
	// Output:
	// the same most likely token: true
}
