package main

import (
	"context"
	"fmt"

	"pesti/conformance/gorgoniaref"
	"pesti/exec/cpu"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/graph"
)

// A trusted is the unfused graph of a model, for tokens that gorgonia's tape machine computes.
type trusted struct {
	*source
	ctx    context.Context
	graph  *graph.Graph
	ids    []int32
	layers int
}

// newTrusted builds the graph. It refuses more tokens than memory is available for.
func newTrusted(ctx context.Context, s *source, ids []int32) (*trusted, error) {
	m, err := frontend.Load(s.file)
	if err != nil {
		return nil, err
	}
	n := int64(len(ids))
	g, err := m.Graph(frontend.Bounds{Tokens: n, Sequences: 1, Rows: n, Context: n})
	if err != nil {
		return nil, err
	}
	t := &trusted{s, ctx, g, ids, m.Params.Blocks}
	return t, t.checkFit(cpu.DetectRAM())
}

// checkFit refuses what needs more memory than is available, the logits of every program of the plan
// included.
func (t *trusted) checkFit(ram cpu.RAM) error {
	need, err := gorgoniaref.NeedOf(t.graph, t.names(t.layers))
	if err != nil {
		return err
	}
	_, width, err := t.plan.Logits()
	if err != nil {
		return about(t.name, err)
	}
	ours := int64(len(t.plan.Programs)) * int64(len(t.ids)) * width * 4
	total := need.Total() + ours
	if ram.Total == 0 || total <= ram.Available {
		return nil
	}
	h := plan.HumanBytes
	return fmt.Errorf("%s: holding %d tokens against gorgonia needs about %s of memory (its attention %s, logits %s and weights %s, the plan's logits %s), expected at most the %s of this machine's %s that are available; take a shorter prompt",
		t.name, len(t.ids), h(total), h(need.Attention), h(need.Logits), h(need.Weights), h(ours), h(ram.Available), h(ram.Total))
}

// names returns those of the residual streams up to the last of the layers, and of the logits where
// that is their number.
func (t *trusted) names(last int) []string {
	var names []string
	for layer := range min(last+1, t.layers) {
		names = append(names, fmt.Sprintf(residual, layer))
	}
	if last == t.layers {
		names = append(names, logitsName)
	}
	return names
}

// run computes these values, by gorgoniaref.Run or its like.
func (t *trusted) run(run func(context.Context, *graph.Graph, gorgoniaref.Weights, []int32, []string, func(gorgoniaref.Value) error) error, last int, visit func(gorgoniaref.Value) error) error {
	weights := gorgoniaref.FromFile(t.file)
	if t.beside != nil {
		weights = gorgoniaref.WithSidecar(t.file, t.beside)
	}
	return run(t.ctx, t.graph, weights, t.ids, t.names(last), visit)
}
