package lower

import (
	"pesti/graph"
	"pesti/graph/pass"
	"pesti/lower/cuda"
)

// A division is a graph whose nodes are on several devices, and how it came to that.
type division struct {
	graph  *graph.Graph
	passes []pass.Pass
	notes  []pass.Note
}

// divide puts a copy of a graph on the devices that the options ask for; one for one device is left as it is.
func (o *Options) divide(g *graph.Graph, off pass.Set) (*division, error) {
	if o.Devices == 1 {
		return &division{graph: g}, nil
	}
	split := pass.SplitLayers(o.Devices, -1)
	if o.Split == "tensor" {
		split = pass.SplitTensor(o.Devices, cuda.Reads)
	}
	d := &division{graph: g.Clone(), passes: []pass.Pass{pass.Fold(), split}}
	var err error
	d.notes, err = pass.Run(d.graph, d.passes, pass.Options{Off: off, Verify: o.Verify, After: o.after("")})
	if err != nil {
		return nil, optionErrorf("--devices %d: %w", o.Devices, err)
	}
	return d, nil
}
