package lower

import (
	"fmt"

	"pesti/exec/plan"
	"pesti/graph"
	"pesti/lower/target"
)

// addTop appends the io buffers of the top-k logits if the device that computes the logits also
// finds the greatest.
func (s *shared) addTop(p *plan.Plan, g *graph.Graph, o *Options) error {
	for _, v := range g.Outputs {
		if v.Name != "logits" || o.target.Top == "" || p.Device(v.Def.Device).Backend != o.Target {
			continue
		}
		_, most := plan.CUDATopParts(target.Width(v))
		s.top = min(plan.MaxTopK, most)
		if s.top < 1 {
			return nil // too large a vocabulary
		}
		for _, b := range []plan.Buffer{
			{Name: plan.Argmax, Format: "i32", Elems: "R"},
			{Name: plan.TopIDs, Format: "i32", Elems: fmt.Sprintf("R*%d", s.top)},
			{Name: plan.TopLogits, Format: "f32", Elems: fmt.Sprintf("R*%d", s.top)},
		} {
			b.Class, b.Device = plan.IO, v.Def.Device
			id, err := addBuffer(p, b)
			if err != nil {
				return err
			}
			s.io[b.Name] = id
		}
	}
	return nil
}

// top appends the steps that find the greatest logits: one for the argmax, which is enough for
// greedy decoding, and one for the top-k that samplers use.
func (s *scheduler) top(logits *graph.Value) error {
	if s.states.top == 0 {
		return nil
	}
	n := target.Width(logits)
	parts, _ := plan.CUDATopParts(n)
	for _, t := range []struct {
		name string
		k    int64
		out  []plan.Arg
	}{
		{plan.Argmax, 1, []plan.Arg{{Role: "ids", Buffer: s.states.io[plan.Argmax]}}},
		{"top", s.states.top, []plan.Arg{{Role: "ids", Buffer: s.states.io[plan.TopIDs]}, {Role: "values", Buffer: s.states.io[plan.TopLogits]}}},
	} {
		sig, ok := plan.LookupKernel(s.devices.at(logits.Def).target.Top)
		if !ok {
			return fmt.Errorf("kernel %s is not in the signature table", s.devices.at(logits.Def).target.Top)
		}
		st := plan.Step{
			Name: t.name, Layer: -1, Kernel: sig.Name, Rows: string(graph.R), Split: plan.Split{By: sig.Splits[0], Unit: 1},
			Params:  []plan.Param{{Name: "n", Value: n}, {Name: "k", Value: t.k}, {Name: "parts", Value: parts}},
			Scratch: -1, Device: logits.Def.Device,
			Args: append([]plan.Arg{{Role: "x", Buffer: s.buffer[logits]}}, t.out...),
		}
		st.Args = append(st.Args, s.states.implicitArgs(s.p, &st, sig)...)
		if err := s.append(st, sig, s.earliest(&st, sig)); err != nil {
			return err
		}
	}
	return nil
}
