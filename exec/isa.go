package exec

import (
	"slices"

	"pesti/exec/cpu/isa"
	"pesti/exec/cpu/kernel"
)

// BuiltISAs returns the instruction sets that this build has kernels for, "portable" among them.
func BuiltISAs() []string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, r := range kernel.Table() {
		add(r.ISA)
	}
	for _, m := range kernel.Matmuls() {
		add(m.ISA)
	}
	return names
}

// BestISA returns the best instruction set that this machine has and this build has kernels for, up
// to most if that is not "". An unknown name is an error.
func BestISA(most string) (string, error) {
	best, err := isa.Best(most)
	if err != nil {
		return "", err
	}
	usable, err := isa.UpTo(best)
	if err != nil {
		return "", err
	}
	built := BuiltISAs()
	for _, name := range slices.Backward(usable) {
		if slices.Contains(built, name) {
			return name, nil
		}
	}
	return usable[0], nil // portable, which requires nothing
}
