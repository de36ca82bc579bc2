package compare

import (
	"context"
	"fmt"

	"pesti/conformance/gorgoniaref"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/graph"
)

// A reference computes the unfused graph of a model for some tokens on gorgonia.
type reference struct {
	in      Input
	name    string // of the input, in errors
	graph   *graph.Graph
	weights gorgoniaref.Weights
	ids     []int32
	layers  int
}

func newReference(in Input, name string, ids []int32) (*reference, error) {
	m, err := frontend.Load(in.Model)
	if err != nil {
		return nil, err
	}
	n := int64(len(ids))
	g, err := m.Graph(frontend.Bounds{Tokens: n, Sequences: 1, Rows: n, Context: n})
	if err != nil {
		return nil, err
	}
	weights := gorgoniaref.FromFile(in.Model)
	if s := in.Options.Sidecar; s != nil {
		weights = gorgoniaref.WithSidecar(in.Model, s)
	}
	return &reference{in, name, g, weights, ids, m.Params.Blocks}, nil
}

// checkFit returns an error if the run needs more memory than is available. The logits of every
// program of the plan count too. So do the values of its steps if they are compared, twice, because
// addSteps keeps gorgonia's value too if one exceeds its bound.
func (r *reference) checkFit(ram exec.RAM) error {
	need, err := gorgoniaref.NeedOf(r.graph, r.names(r.layers))
	if err != nil {
		return err
	}
	_, width, err := r.in.Plan.Logits()
	if err != nil {
		return &OperandError{r.name, err}
	}
	ours := int64(len(r.in.Plan.Programs)) * int64(len(r.ids)) * width * 4
	steps := int64(0)
	for i := range r.in.Plan.Programs {
		if boundOf(r.in.Plan).Step > 0 {
			bytes, err := stepBytes(r.in.Plan, &r.in.Plan.Programs[i], len(r.ids))
			if err != nil {
				return &OperandError{r.name, err}
			}
			steps = max(steps, 2*bytes)
		}
	}
	total := need.Total() + ours + steps
	limit := exec.OverRAM(ram, total)
	if limit == "" {
		return nil
	}
	h := plan.HumanBytes
	plans := "the plan's logits " + h(ours)
	if steps > 0 {
		plans += " and steps " + h(steps)
	}
	return fmt.Errorf("%s: checking %d tokens against gorgonia needs about %s of memory (its attention %s, logits %s and weights %s, %s), expected at most %s; take a shorter prompt",
		r.name, len(r.ids), h(total), h(need.Attention), h(need.Logits), h(need.Weights), plans, limit)
}

// names returns the names of the residual streams up to layer last, and of the logits if last is
// the number of layers.
func (r *reference) names(last int) []string {
	var names []string
	for layer := range min(last+1, r.layers) {
		names = append(names, ResidualName(layer))
	}
	if last == r.layers {
		names = append(names, logitsName)
	}
	return names
}

// A runner is gorgoniaref.Run or gorgoniaref.RunFloat32.
type runner func(context.Context, *graph.Graph, gorgoniaref.Weights, []int32, []string, func(gorgoniaref.Value) error) error

// run computes the values up to layer last.
func (r *reference) run(ctx context.Context, run runner, last int, visit func(gorgoniaref.Value) error) error {
	return run(ctx, r.graph, r.weights, r.ids, r.names(last), visit)
}
