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
	return plus(n.Weights, plus(n.Packed, plus(n.State, plus(n.Tables, plus(n.Arena, n.IO)))))
}

// MemoryUseOf returns the memory that a plan needs on all its devices, and on the host for steps
// that run there instead of on their CUDA device. The plan must verify.
func MemoryUseOf(p *Plan) MemoryUse {
	var n MemoryUse
	for d := range p.NumDevices() {
		use := DeviceMemoryUse(p, d)
		n = MemoryUse{
			Packed: plus(n.Packed, use.Packed), State: plus(n.State, use.State), Tables: plus(n.Tables, use.Tables),
			Arena: plus(n.Arena, use.Arena), IO: plus(n.IO, use.IO),
		}
	}
	n.Weights = fileBytes(p, func(*Weight) bool { return true })
	return n
}

// DeviceMemoryUse returns the memory that a plan needs on one of several devices. A CUDA device
// holds the weights that its steps read; the processor reads its weights in the file or packs them.
func DeviceMemoryUse(p *Plan, device int) MemoryUse {
	d := p.Device(device)
	m := &d.Memory
	use := MemoryUse{Packed: m.Packed, State: m.State, Tables: m.Tables, Arena: m.Arena, IO: m.IO}
	if d.Backend != CUDA {
		use.Weights = fileBytes(p, func(w *Weight) bool { return w.LiesOn(device) })
		return use
	}
	use.Packed = 0
	for _, w := range DeviceWeights(p) {
		if w.LiesOn(device) {
			use.Packed = plus(use.Packed, w.DeviceBytes())
		}
	}
	return use
}

// fileBytes returns the bytes of the selected weights that become resident because CPU kernels read
// them in the file: all of a mapped weight, and the copied rows of a staged one.
func fileBytes(p *Plan, selects func(*Weight) bool) (bytes int64) {
	reads := FileReads(p)
	for i := range p.Weights {
		w := &p.Weights[i]
		r := reads[w.Name]
		if r == (FileRead{}) || !selects(w) { // a packed copy replaces the mapping
			continue
		}
		if staged, ok := p.StagedBytes(w, r); ok {
			bytes = plus(bytes, staged)
		} else {
			bytes = plus(bytes, w.Size)
		}
	}
	return bytes
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
