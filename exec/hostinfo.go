package exec

import (
	"slices"
	"strings"

	"pesti/exec/cpu"
	"pesti/exec/cpu/isa"
	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
)

// A RAM is the memory of the machine: see cpu.RAM.
type RAM = cpu.RAM

// DetectRAM returns the memory of the machine, zero if the system does not report it.
func DetectRAM() RAM { return cpu.DetectRAM() }

// UsableCores returns the number of processors that this process may use at the same time.
func UsableCores() int { return cpu.UsableCores() }

// DefaultThreads returns the default number of workers to compile for and to start: one for each
// usable core, up to plan.MaxThreads.
func DefaultThreads() int { return min(UsableCores(), plan.MaxThreads) }

// Resident returns the resident bytes of this process, and their peak; 0 and 0 if the system does
// not report them.
func Resident() (now, peak int64) { return cpu.Resident() }

// An InstructionSet is an instruction set with kernels, and whether this machine has it: see
// isa.Set.
type InstructionSet = isa.Set

// InstructionSets returns all instruction sets, from the least to the best.
func InstructionSets() []InstructionSet { return isa.Detect() }

// UsableISAs returns the names of the instruction sets that kernels for the given one may use. It is an
// error if this machine does not have that set.
func UsableISAs(name string) ([]string, error) { return isa.UpTo(name) }

// A KernelVariants is a kernel with the instruction sets for which it has a variant, the best last.
type KernelVariants struct {
	Name string
	ISAs []string
}

// Best returns the instruction set of the variant that is bound if the given sets are usable.
func (v *KernelVariants) Best(usable []string) string {
	best := ""
	for _, name := range v.ISAs {
		if slices.Contains(usable, name) {
			best = name
		}
	}
	return best
}

// CPUKernels returns the kernels of the processor. The products gemv and gemm of each weight type have the
// same variants, and are one entry.
func CPUKernels() (all []KernelVariants) {
	add := func(name, isa string) {
		for i := range all {
			if all[i].Name == name {
				all[i].ISAs = append(all[i].ISAs, isa)
				return
			}
		}
		all = append(all, KernelVariants{name, []string{isa}})
	}
	for _, k := range kernel.Table() {
		add(k.Name, k.ISA)
	}
	for _, k := range kernel.Matmuls() {
		if rest, ok := strings.CutPrefix(k.Name, "gemv."); ok {
			add("gemv|gemm."+rest, k.ISA)
		}
	}
	return all
}
