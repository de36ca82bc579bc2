package plan

// A MemoryUse is the memory in bytes, by kind, that a plan needs to run with a full context.
type MemoryUse struct {
	Weights int64 // of the mapped model file; pages become resident when steps read them
	Packed  int64 // weights in a kernel's layout, and all weights of a device
	State   int64 // KV caches
	Tables  int64 // sines and counters
	Arena   int64 // values and scratch
	IO      int64 // inputs and outputs
}

// Total returns the sum, saturated at the largest int64.
func (n *MemoryUse) Total() int64 {
	sum := int64(0)
	for _, bytes := range []int64{n.Weights, n.Packed, n.State, n.Tables, n.Arena, n.IO} {
		sum = saturated(sum, bytes)
	}
	return sum
}

// saturated returns a + b of numbers that are not negative, saturated at the largest int64.
func saturated(a, b int64) int64 { return a + min(b, maxInt-a) }

// MemoryUseOf returns the memory that a plan needs. The plan must verify.
func MemoryUseOf(p *Plan) MemoryUse {
	m := &p.Memory
	n := MemoryUse{Weights: m.Weight, Packed: m.Packed, State: m.State, Tables: m.Tables, Arena: m.Arena, IO: m.IO}
	reads := FileReads(p)
	for _, w := range DeviceWeights(p) {
		n.Packed = saturated(n.Packed, w.DeviceBytes()-w.Packed)
	}
	for i := range p.Weights {
		w := &p.Weights[i]
		switch r := reads[w.Name]; r {
		case FileRead{}: // the packed copy replaces the mapping
			n.Weights -= w.Size
		default:
			if staged, ok := p.StagedBytes(w, r); ok {
				n.Weights += staged - w.Size
			}
		}
	}
	return n
}

// DeviceMemoryUse returns the memory that a plan needs on one of several devices. A CUDA device
// holds the weights that its steps read; the host maps or packs all of its weights.
func DeviceMemoryUse(p *Plan, device int) MemoryUse {
	d := p.Device(device)
	use := MemoryUse{State: d.Memory.State, Arena: d.Memory.Arena, IO: d.Memory.IO}
	if d.Backend == CUDA {
		use.Tables = d.Memory.Tables
		for _, w := range DeviceWeights(p) {
			if w.LiesOn(device) {
				use.addWeight(w, w.DeviceBytes())
			}
		}
		return use
	}
	for i := range p.Weights {
		if w := &p.Weights[i]; w.LiesOn(device) {
			use.addWeight(w, w.Packed)
		}
	}
	return use
}

// addWeight adds a weight, which takes packed bytes if it has a layout.
func (n *MemoryUse) addWeight(w *Weight, packed int64) {
	if w.Layout == "" {
		n.Weights = saturated(n.Weights, w.Size)
	} else {
		n.Packed = saturated(n.Packed, packed)
	}
}

// A FileRead says how steps read a weight in the file: whole, or only the rows that tokens name.
// Neither is set if they read a copy in another layout or on a device.
type FileRead struct{ Whole, Rows bool }

// FileReads returns how steps read each weight in the file.
func FileReads(p *Plan) map[string]FileRead {
	packed := map[string]bool{}
	for i := range p.Weights {
		packed[p.Weights[i].Name] = p.Weights[i].Layout != ""
	}
	reads := map[string]FileRead{}
	for _, st := range p.Steps() {
		for _, a := range st.Args {
			r := reads[a.Weight]
			switch {
			case a.Weight == "" || packed[a.Weight] && ReadsCopy(st, &a) || IsCUDAKernel(st.Kernel):
				continue
			case gathers(st.Kernel, a.Role):
				r.Rows = true
			default:
				r.Whole = true
			}
			reads[a.Weight] = r
		}
	}
	return reads
}

// StagedBytes returns the bytes of the rows that a batch of Ubatch tokens gathers from a weight in
// the file, and whether an engine copies these rows instead of mapping the weight. It does so if no
// other step reads the weight in the file and the weight has more rows than that.
func (p *Plan) StagedBytes(w *Weight, r FileRead) (int64, bool) {
	if !r.Rows || r.Whole || w.Part.Of != "" || w.Type == SidecarType || p.Target.Ubatch >= w.Dims[0] {
		return 0, false
	}
	return p.Target.Ubatch * (w.Size / w.Dims[0]), true
}

// ReadsCopy reports whether a step reads the packed copy of a weight that has a layout. Products
// and row gathers do; other kernels read the file.
func ReadsCopy(st *Step, a *Arg) bool { return a.Kernel != "" || gathers(st.Kernel, a.Role) }

// gathers reports whether a kernel reads only the rows of an operand that tokens name.
func gathers(kernel, role string) bool {
	sig, ok := LookupKernel(kernel)
	if !ok {
		return false
	}
	o := sig.Operand(role)
	return o != nil && o.Gather
}

// DeviceWeights are the weights that steps on a device read, in the plan's order.
func DeviceWeights(p *Plan) []*Weight {
	names := map[string]bool{}
	for _, st := range p.Steps() {
		if IsCUDAKernel(st.Kernel) {
			for _, a := range st.Args {
				names[a.Weight] = true
			}
		}
	}
	var list []*Weight
	for i := range p.Weights {
		if w := &p.Weights[i]; names[w.Name] {
			list = append(list, w)
		}
	}
	return list
}

// DeviceBytes returns the bytes that a weight takes on a device: its size in the file or in its
// layout, plus its row scales if it comes from a sidecar, since a layout has no room for them.
func (w *Weight) DeviceBytes() int64 {
	switch {
	case w.Layout == "":
		return w.Size
	case w.Type == SidecarType:
		return w.Packed + 4*w.Dims[0]
	}
	return w.Packed
}
