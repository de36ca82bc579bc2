package pesti

import (
	"cmp"
	"fmt"

	"pesti/conformance/demo"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/gguf/sidecar"
	"pesti/graph"
	"pesti/graph/pass"
	"pesti/lower"
)

// A Compiled is a model as a plan, with the graphs on the way to it. Package graph/draw draws them. It is
// the caller's: nothing else refers to it.
type Compiled struct {
	Plan  *plan.Plan
	Built *graph.Graph // as the frontend built it
	Fused *graph.Graph // after the graph passes
	Notes []pass.Note  // what each pass did, or why not
}

// Compile compiles a model file, or Demo, and runs nothing. It may be called from any goroutine.
func Compile(name string, o Options) (*Compiled, error) {
	f, err := openFile(name, &o)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o.warn(name, f.Warnings())
	weights, err := openWeights(o.Weights, f)
	if err != nil {
		return nil, err
	}
	if weights != nil {
		defer weights.Close()
	}
	return compile(f, weights, &o)
}

// openFile opens a model file.
func openFile(name string, o *Options) (*gguf.File, error) {
	o.progress("load", 0, 0)
	if name == Demo {
		return gguf.Parse(Demo, demo.GGUF())
	}
	return gguf.Open(name)
}

// openWeights opens the file with the matrices of a model in FP8, nil where there is none.
func openWeights(path string, model *gguf.File) (*sidecar.File, error) {
	if path == "" {
		return nil, nil
	}
	return sidecar.Open(path, model)
}

// compile compiles an open model with the defaults of this package.
func compile(f *gguf.File, weights *sidecar.File, o *Options) (*Compiled, error) {
	o.progress("compile", 0, 0)
	m, err := frontend.Load(f)
	if err != nil {
		return nil, err
	}
	o.warn(f.Path, m.Warnings)
	options := o.Compile
	if options.ISA == "" && cmp.Or(options.Target, "cpu") == "cpu" {
		if options.ISA, err = exec.BestISA(""); err != nil {
			return nil, err
		}
	}
	options.Threads = cmp.Or(options.Threads, exec.DefaultThreads())
	if weights != nil {
		options.Sidecar = weights
	}
	r, err := lower.Compile(m, options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, translate(err))
	}
	return &Compiled{Plan: r.Plan, Built: r.Built, Fused: r.Fused, Notes: r.Notes}, nil
}
