package pesti

import (
	"cmp"
	"fmt"
	"path/filepath"

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

// A Compiled is the plan of a model, with the intermediate graphs. Package graph/draw draws them.
// The caller owns it and may change it.
type Compiled struct {
	Plan  *plan.Plan
	Built *graph.Graph // as the frontend built it
	Fused *graph.Graph // after the graph passes
	Notes []pass.Note  // where each pass applied, or why it declined
}

// Compile compiles a model file, or Demo, and runs nothing. It may be called from any goroutine.
//
// The text of the plan is plan.Print(c.Plan), of package exec/plan. Written to a file, it opens again with
// OpenPlan, and in "pesti run". It names the model by its absolute path, unless o.Compile.File has another
// path, and likewise the sidecar, see o.Compile.SidecarFile.
//
// The plan has no digest of the weights, since that needs all of them to be read. Only "pesti plan verify
// --model" compares it. To store it, set c.Plan.Model.WeightsDigest to "sha256:" and the sum, in
// hexadecimal, that [gguf.File.HashData] returns.
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
	return compile(name, f, weights, &o)
}

// openFile opens a model file.
func openFile(name string, o *Options) (*gguf.File, error) {
	o.progress("load", 0, 0)
	if name == Demo {
		return gguf.Parse(Demo, demo.GGUF())
	}
	return gguf.Open(name)
}

// openWeights opens the sidecar with a model's matrices in FP8, or returns nil if path is "".
func openWeights(path string, model *gguf.File) (*sidecar.File, error) {
	if path == "" {
		return nil, nil
	}
	return sidecar.Open(path, model)
}

// compile compiles an open model with the defaults of this package. name is the path of f, or Demo.
func compile(name string, f *gguf.File, weights *sidecar.File, o *Options) (*Compiled, error) {
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
	if options.File == "" && name != Demo {
		if options.File, err = filepath.Abs(name); err != nil {
			return nil, err
		}
	}
	if weights != nil {
		options.Sidecar = weights
		if options.SidecarFile == "" {
			if options.SidecarFile, err = filepath.Abs(o.Weights); err != nil {
				return nil, err
			}
		}
	}
	r, err := lower.Compile(m, options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, translate(err))
	}
	return &Compiled{Plan: r.Plan, Built: r.Built, Fused: r.Fused, Notes: r.Notes}, nil
}
