package exec_test

import (
	"context"
	"fmt"

	"pesti/exec"
	"pesti/exec/sample"
	"pesti/frontend"
	"pesti/frontend/tokenizer"
	"pesti/gguf"
	"pesti/lower"
)

// Open a model, compile it, run it, and stream the generated text.
func Example() {
	file := must(gguf.Open("../conformance/demo/demo.gguf"))
	defer file.Close()
	model := must(frontend.Load(file))
	compiled := must(lower.Compile(model, lower.Options{Threads: 2}))
	engine := must(exec.Open(compiled.Plan, file, exec.Options{}))
	defer engine.Close()
	session := must(exec.NewSession(engine))

	words := must(tokenizer.FromGGUF(file))
	next := must(words.Encode(context.Background(), []byte("Once upon a time"), tokenizer.Options{BOS: true}))
	params := sample.Default()
	params.Temp = 0 // the most likely token each time
	sampler := must(sample.New(params, words.Size()))
	var text tokenizer.Stream
	for step := range 16 {
		id := must(sampler.Sample(step, must(session.Feed(context.Background(), next))))
		fmt.Printf("%s", text.Write(words.Piece(id)))
		next = []int32{id}
	}
	// Output:
	// , there was a clever little girl named Hazel. She lived in a cosy cottage
}

// must panics on an error. Real programs handle errors.
func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
