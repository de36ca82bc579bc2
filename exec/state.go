package exec

import (
	"fmt"

	"pesti/exec/plan"
)

// State returns the memory of one layer's cache of keys or values, such as "blk.3.cache_k": pages
// of 16 positions in the plan's cache format, in the layout that the signature of "attention" in
// exec/plan describes. On the CPU it is a view that later steps change, on a device a copy.
func (e *Engine) State(name string) ([]byte, error) {
	for i := range e.plan.Buffers {
		if b := &e.plan.Buffers[i]; b.Class == plan.State && b.Name == name {
			scope := e.plan.Scope(nil)
			elems, err := scope.Eval(b.Elems)
			if err != nil {
				return nil, fmt.Errorf("plan: %w", err)
			}
			_, data, err := e.backend.contents(nil, i, 1, int(elems))
			return data, err
		}
	}
	return nil, fmt.Errorf("state %q: the plan has none of that name", name)
}
