package lower

import (
	"cmp"
	"slices"

	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/graph"
	"pesti/graph/pass"
	"pesti/lower/cpu"
	"pesti/lower/cuda"
	"pesti/lower/target"
)

// A partition is a graph whose nodes are assigned to devices, with the passes that assigned them.
type partition struct {
	graph  *graph.Graph
	passes []pass.Pass
	notes  []pass.Note
}

// deviceTargets returns the deviceTarget of each device for a program of the target. The host gets
// a corresponding program template.
func (o *Options) deviceTargets(p target.Program, rounded *target.Rounding) deviceTargets {
	l := slices.Repeat(deviceTargets{{target: o.target, program: p, isa: o.ISA, rounded: rounded}}, o.Devices)
	if o.Host == nil {
		return l
	}
	host := deviceTarget{target: cpu.Target(), program: cpu.HostProgram(p), isa: o.Host.ISA}
	if rounded != nil {
		host.rounded = &host.target.Integers[slices.Index(host.target.RoundingNames(), rounded.Name)]
	}
	return slices.Insert(l, 0, host)
}

// completeHost fills in the defaults of a host, and drops a host without layers.
func (o *Options) completeHost(p *frontend.Params) error {
	if o.Host == nil {
		return nil
	}
	h := *o.Host
	h.ISA, h.Threads = cmp.Or(h.ISA, plan.ISAs[0]), cmp.Or(h.Threads, 1)
	layers := len(p.Layers)
	switch {
	case !slices.Contains(plan.ISAs, h.ISA):
		return optionErrorf("the processor's instruction set is %q, expected one of %v", h.ISA, plan.ISAs)
	case h.Threads < 1 || h.Threads > plan.MaxThreads:
		return optionErrorf("{Threads} is %d, expected 1 to %d", h.Threads, plan.MaxThreads)
	case o.Target != plan.CUDA:
		return optionErrorf("{GPULayers} is %d, expected {Target} %s with it", h.GPULayers, plan.CUDA)
	case h.GPULayers < 1:
		return optionErrorf("{GPULayers} is %d, expected at least 1, or {Target} cpu for none", h.GPULayers)
	case o.Split != "layers":
		return optionErrorf("{Split} is %s, expected layers, since {GPULayers} leaves some of them on the processor", o.Split)
	case h.GPULayers > layers: // all layers and the output are on devices
		o.Host = nil
		return nil
	case o.Devices > h.GPULayers:
		return optionErrorf("{Devices} is %d, expected at most %d, the layers that {GPULayers} leaves to them", o.Devices, h.GPULayers)
	}
	o.Host = &h
	return nil
}

// partition assigns a copy of a graph to the devices of the options. It does not change a graph for
// one device.
func (o *Options) partition(g *graph.Graph, layers int, off pass.Set) (*partition, error) {
	devices, onHost := o.Devices, -1
	if o.Host != nil {
		devices, onHost = devices+1, layers-o.Host.GPULayers
	}
	if devices == 1 {
		return &partition{graph: g}, nil
	}
	split := pass.SplitLayers(devices, onHost)
	if o.Split == "tensor" {
		split = pass.SplitTensor(o.Devices, cuda.Reads)
	}
	d := &partition{graph: g.Clone(), passes: []pass.Pass{pass.Fold(), split}}
	var err error
	d.notes, err = pass.Run(d.graph, d.passes, pass.Options{Off: off, Verify: o.Verify, After: o.after("")})
	if err != nil {
		return nil, optionErrorf("{Devices} %d: %w", o.Devices, err)
	}
	return d, nil
}
