package exec

import (
	"fmt"

	"pesti/exec/cpu"
	"pesti/exec/plan"
)

// needs returns the error of a plan that needs more memory than is available. on names the place of
// the memory, limit the available amount, and advice how to make the plan smaller.
func needs(use plan.MemoryUse, on, limit, advice string) error {
	h, tables := plan.HumanBytes, ""
	if use.Tables > 0 {
		tables = ", tables " + h(use.Tables)
	}
	return &kindError{ErrOutOfMemory, fmt.Sprintf("plan: needs %s of memory%s (weights %s, packed %s, KV cache %s, arena %s, input and output %s%s), expected at most %s; %s",
		h(use.Total()), on, h(use.Weights), h(use.Packed), h(use.State), h(use.Arena), h(use.IO), tables, limit, advice)}
}

// checkFit refuses a plan that needs more host memory than is available. Such a plan would evict
// the weights, which every token reads, again and again, or make the system kill a process. A zero
// ram means the machine's memory.
func checkFit(use plan.MemoryUse, ram cpu.RAM, on, advice string) error {
	if ram.Total == 0 {
		ram = cpu.DetectRAM()
	}
	if limit := OverRAM(ram, use.Total()); limit != "" {
		return needs(use, on, limit, advice)
	}
	return nil
}

// OverRAM returns "" if a number of bytes is available, otherwise the limit as text, which errors
// print after "expected at most".
func OverRAM(ram RAM, bytes int64) string {
	if ram.Holds(bytes) {
		return ""
	}
	return fmt.Sprintf("the %s of this machine's %s that are available", plan.HumanBytes(ram.Available), plan.HumanBytes(ram.Total))
}
