package exec

import (
	"fmt"

	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
)

// State returns the memory of one layer's cache of keys or values, such as "blk.3.cache_k": pages
// of 16 positions in the plan's cache format, in the layout that the signature of "attention" in
// exec/plan describes. On the CPU it is a view that later steps change, on a device a copy.
func (e *Engine) State(name string) ([]byte, error) {
	b := e.plan.SharedBuffer(plan.State, name)
	if b == nil {
		return nil, fmt.Errorf("state %q: the plan has none of that name", name)
	}
	scope := e.plan.Scope(nil)
	elems, err := scope.Eval(b.Elems)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	_, data, err := e.backend.contents(nil, b.ID, 1, int(elems))
	return data, err
}

// Written returns what the last forward pass wrote to one layer's cache of keys or values, such as
// "blk.3.cache_k": a row for each token of the batch, rounded as the cache stores it. Only caches on the
// processor are read.
func (e *Engine) Written(name string) (Value, error) {
	for g, st := range e.plan.Steps() {
		sig, _ := plan.LookupKernel(st.Kernel) // as Verify has seen
		for _, a := range st.Args {
			if b := e.plan.Buffer(g, a.Buffer); b == nil || b.Class != plan.State || b.Name != name || !sig.Operand(a.Role).Dir.Writes() {
				continue
			}
			binding := e.binding(g, st, 0, 1)
			for _, a := range st.Args {
				if a.Weight == "" {
					format, data := e.buffer(g, a.Buffer, 0)
					binding.Operands[a.Role] = kernel.Operand{Format: format, Data: data}
				}
			}
			c, err := kernel.BindCacheReader(&binding, a.Role)
			if err != nil {
				return Value{}, fmt.Errorf("state %q: %w", name, err)
			}
			v := Value{e.last.T, c.Width, make([]float32, e.last.T*c.Width)}
			for t := range v.Rows {
				c.Read(v.Data[t*c.Width:(t+1)*c.Width], int(e.seq[t]), int(e.pos[t]))
			}
			return v, nil
		}
	}
	return Value{}, fmt.Errorf("state %q: no step of the plan writes it", name)
}
