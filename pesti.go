// Package pesti compiles GGUF models to execution plans and runs them:
//
//	model, err := pesti.Open("model.gguf", pesti.Options{})
//	if err != nil { … }
//	defer model.Close()
//	for piece, err := range model.Generate(ctx, "Once upon a time", pesti.Params{MaxTokens: 50}) {
//		if err != nil { … }
//		fmt.Print(piece.Text)
//	}
//
// In place of a file, "demo" is a small model that the program contains. The zero Options compile for the
// best instruction set of this machine and all usable cores, with precision fast. The zero Params decode
// greedily, up to the model's end of generation or the end of the context.
//
// A [Model] may be used from any number of goroutines, a [Session] from one at a time. Whatever runs at the
// same time, the tokens of a sequence are the same.
//
// The package hands out plans and graphs (see [Compile]). Packages exec, lower and frontend have the same
// parts one by one. It imports those packages, and with them the standard library and golang.org/x alone;
// nothing in this module imports it but the command line and tests.
package pesti

import (
	"log/slog"

	"pesti/exec"
	"pesti/frontend/tokenizer"
	"pesti/lower"
)

// Demo is the name of the model that the program contains.
const Demo = "demo"

// Options are what the caller of Open, OpenPlan or Compile may choose.
type Options struct {
	// Compile has the options of the compiler, such as Ctx, Sequences, Ubatch, Precision and KV. Where ISA
	// and Threads are zero, they are the best instruction set of this machine and the number of usable cores.
	// A plan that is compiled already takes none of them.
	Compile lower.Options

	// Engine has the options of the executor, such as a device's driver and a profile.
	Engine exec.Options

	// Weights is the path of a file with the matrices of the model in FP8, "" for none. OpenPlan takes the
	// file that the plan names where it is "".
	Weights string

	// Tokenizer is the tokenizer of the model, where the caller has read it already; nil: it is read.
	Tokenizer *tokenizer.Tokenizer

	// Log receives warnings about the model, where it is set.
	Log *slog.Logger

	// Progress, where it is set, is called while a model is opened and a prompt is evaluated, from the
	// goroutine that called Open or runs the generation. It must not call methods of the model.
	Progress func(Progress)
}

// A Progress says what a model is doing.
type Progress struct {
	Stage string // "load", "compile", "pack" or "prompt"
	Done  int    // tokens of the prompt that were evaluated
	Total int    // tokens of the prompt, 0 for other stages
}

func (o *Options) progress(stage string, done, total int) {
	if o.Progress != nil {
		o.Progress(Progress{stage, done, total})
	}
}

func (o *Options) warn(file string, texts []string) {
	if o.Log == nil {
		return
	}
	for _, text := range texts {
		o.Log.Warn(text, "file", file)
	}
}
