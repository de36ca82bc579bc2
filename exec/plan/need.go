package plan

// A Need is the memory that a plan takes to run, in bytes by kind, once its context is full.
type Need struct {
	Weights int64 // of the model file that steps read, which the system maps as they are read
	Packed  int64 // weights in a kernel's layout
	State   int64 // KV caches
	Arena   int64 // values and scratch
	IO      int64 // inputs and outputs
}

// Total returns the sum.
func (n *Need) Total() int64 { return n.Weights + n.Packed + n.State + n.Arena + n.IO }

// mapUnit is how much of a mapped file becomes resident with a byte that is read, and what stands
// around it: Linux maps 64 KiB (fault_around_bytes, docs.kernel.org/filesystems/debugfs.html).
const mapUnit = 64 << 10

// NeedOf returns what a plan that verifies needs. All comes from the plan; only of a table from
// which steps gather rows, and which no product reads, it is not known which part tokens touch: it
// counts with mapUnit for every other token of a full step, since in a text half of 512 tokens
// are repeated ones.
func NeedOf(p *Plan) Need {
	m := &p.Memory
	n := Need{Weights: m.Weight, Packed: m.Packed, State: m.State, Arena: m.Arena, IO: m.IO}
	products := readWhole(p)
	for i := range p.Weights {
		if w := &p.Weights[i]; !products[w.Name] {
			n.Weights -= max(w.Size-(p.Target.Ubatch+1)/2*mapUnit, 0)
		}
	}
	return n
}

// readWhole returns the weights of which some step reads all.
func readWhole(p *Plan) map[string]bool {
	whole := map[string]bool{}
	for i := range p.Programs {
		for _, wave := range p.Programs[i].Waves {
			for j := range wave.Steps {
				st := &wave.Steps[j]
				for _, a := range st.Args {
					if a.Weight != "" && !gathers(st.Kernel, a.Role) {
						whole[a.Weight] = true
					}
				}
			}
		}
	}
	return whole
}

// gathers tells whether a kernel reads of an operand only the rows that tokens name.
func gathers(kernel, role string) bool {
	sig, ok := LookupKernel(kernel)
	if !ok {
		return false
	}
	o := sig.Operand(role)
	return o != nil && o.Gather
}
