package pesti

import "pesti/lower"

// A Compiled is the plan of a model, with the intermediate graphs and what each pass did. Package graph/draw draws
// the graphs. The caller owns it and may change it.
type Compiled = lower.Result

// Compile compiles a model file, or Demo, and runs nothing. It may be called from any goroutine.
//
// The text of the plan is plan.Print(c.Plan), of package exec/plan. Written to a file, it opens again with
// OpenPlan, and in "pesti run". It names the model by its absolute path, unless o.Compile.File has another
// path, and likewise the sidecar, see o.Compile.SidecarFile.
//
// The plan has no digest of the weights, since that needs all of them to be read. Only "pesti plan verify
// --model" compares it. To store it, set c.Plan.Model.WeightsDigest to what [gguf.File.WeightsDigest] returns.
func Compile(name string, o Options) (*Compiled, error) {
	s, err := OpenSource(name, o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Compile()
}
