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
// The name "demo" stands for a small model that the program contains. The zero Options compile for
// the best instruction set of this machine and all usable cores, with precision fast. The zero
// Params decode greedily, up to the model's end of generation or the end of the context.
//
// A [Model] may be used from any number of goroutines, a [Session] from one at a time. The tokens
// of a sequence do not depend on what else runs at the same time.
//
// [Compile] returns plans and graphs. To save a plan, write plan.Print of package exec/plan to a file;
// [OpenPlan] opens it again. Packages exec, lower and frontend offer the parts of this
// package separately. Apart from packages of this module, it depends only on the standard library
// and golang.org/x. In this module, only commands and tests import it.
package pesti

import (
	"log/slog"

	"pesti/exec"
	"pesti/frontend/tokenizer"
	"pesti/lower"
)

// Demo is the name of the model that the program contains.
const Demo = "demo"

// Options configure Open, OpenPlan and Compile.
type Options struct {
	// Compile has the options of the compiler, such as Ctx, Sequences, Ubatch, Precision and KV. If
	// ISA or Threads is zero, it defaults to the best instruction set of this machine or to the
	// number of usable cores. OpenPlan ignores Compile.
	Compile lower.Options

	// Engine has the options of the executor, such as a device's driver and a profile.
	Engine exec.Options

	// Weights is the path of a sidecar with the model's matrices in FP8, "" for none. If it is "",
	// OpenPlan uses the file that the plan names.
	Weights string

	// Tokenizer is the model's tokenizer if the caller has loaded it already; nil loads it. A tokenizer with other
	// tokens than the model's file is an error.
	Tokenizer *tokenizer.Tokenizer

	// Log, if it is set, receives warnings about the model.
	Log *slog.Logger

	// Progress, if it is set, is called while a model is opened and a prompt is evaluated, from the
	// goroutine that called Open or runs the generation. It must not call methods of the model.
	Progress func(Progress)
}

// A Progress reports the progress of opening a model or of evaluating a prompt.
type Progress struct {
	Stage string // "load", "compile", "pack" or "prompt"
	Done  int    // evaluated tokens of the prompt
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
