package exec

import (
	"fmt"

	"pesti/exec/cpu"
	"pesti/exec/plan"
)

// checkFit refuses a plan that needs more memory than is available: it would push the weights,
// which every token reads, out of memory again and again, or end somebody's process.
func checkFit(p *plan.Plan, ram cpu.RAM) error {
	n := plan.MemoryUseOf(p)
	if ram.Total == 0 || n.Total() <= ram.Available {
		return nil
	}
	h := plan.HumanBytes
	return &kindError{ErrOutOfMemory, fmt.Sprintf("plan: needs %s of memory (weights %s, packed %s, KV cache %s, arena %s, input and output %s), expected at most the %s of this machine's %s that are available; compile for a smaller context, fewer sequences or a smaller ubatch, or take a smaller model",
		h(n.Total()), h(n.Weights), h(n.Packed), h(n.State), h(n.Arena), h(n.IO), h(ram.Available), h(ram.Total))}
}
