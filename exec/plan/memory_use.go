package plan

// A MemoryUse is the memory that a plan takes to run, in bytes by kind, once its context is full.
type MemoryUse struct {
	Weights int64 // of the model file that steps read, which the system maps as they are read
	Packed  int64 // weights in a kernel's layout, and all that a device holds
	State   int64 // KV caches
	Tables  int64 // sines and counters
	Arena   int64 // values and scratch
	IO      int64 // inputs and outputs
}

// Total returns the sum, or the largest integer where it is more.
func (n *MemoryUse) Total() int64 {
	sum := int64(0)
	for _, bytes := range []int64{n.Weights, n.Packed, n.State, n.Tables, n.Arena, n.IO} {
		sum = saturated(sum, bytes)
	}
	return sum
}

// saturated returns a + b, neither of which is negative, or the largest integer where it is more.
func saturated(a, b int64) int64 { return a + min(b, maxInt-a) }

// mapUnit is how much of a mapped file becomes resident with a byte that is read, and what stands
// around it: Linux maps 64 KiB (fault_around_bytes, docs.kernel.org/filesystems/debugfs.html).
const mapUnit = 64 << 10

// MemoryUseOf returns the memory that a plan needs, which must verify. All of it follows from the plan, with one
// exception: where steps gather rows of a table in the file, and no product reads the table there, it is unknown
// which rows the tokens name. Such a table counts as mapUnit bytes for every other token of a full step, since in
// a text of 512 tokens about half are repetitions.
func MemoryUseOf(p *Plan) MemoryUse {
	m := &p.Memory
	n := MemoryUse{Weights: m.Weight, Packed: m.Packed, State: m.State, Tables: m.Tables, Arena: m.Arena, IO: m.IO}
	reads := FileReads(p)
	for _, w := range DeviceWeights(p) {
		n.Packed = saturated(n.Packed, w.DeviceBytes()-w.Packed)
	}
	for i := range p.Weights {
		w := &p.Weights[i]
		switch r := reads[w.Name]; {
		case r.Whole:
		case r.Rows:
			if pages, ok := mul(p.Target.Ubatch/2+p.Target.Ubatch%2, mapUnit); ok {
				n.Weights -= max(w.Size-pages, 0)
			}
		default: // it is not mapped where it is packed
			n.Weights -= w.Size
		}
	}
	return n
}

// DeviceMemoryUse returns the memory that the part of a plan on one of several devices needs. A CUDA device holds
// the weights that its steps read; the host has all of its weights, as the file or packed.
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

// addWeight adds a weight of which so many bytes are held where it has a layout.
func (n *MemoryUse) addWeight(w *Weight, packed int64) {
	if w.Layout == "" {
		n.Weights = saturated(n.Weights, w.Size)
	} else {
		n.Packed = saturated(n.Packed, packed)
	}
}

// A FileRead says what steps read of a weight as it lies in the file: all of it, or the rows that
// tokens name. Where a copy in another layout or on a device is read, it is neither.
type FileRead struct{ Whole, Rows bool }

// FileReads returns what steps read of each weight in the file.
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

// ReadsCopy reports whether a step reads a weight where it lies in another layout, if it does: products
// and what gathers rows do, anything else reads the file.
func ReadsCopy(st *Step, a *Arg) bool { return a.Kernel != "" || gathers(st.Kernel, a.Role) }

// gathers tells whether a kernel reads of an operand only the rows that tokens name.
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

// DeviceBytes returns the bytes that a weight takes on a device: its size in the file or in its layout, and the
// scales of its rows where it comes from a sidecar, which a layout has no room for.
func (w *Weight) DeviceBytes() int64 {
	switch {
	case w.Layout == "":
		return w.Size
	case w.Type == SidecarType:
		return w.Packed + 4*w.Dims[0]
	}
	return w.Packed
}
