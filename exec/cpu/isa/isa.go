// Package isa lists the instruction sets for which there are kernels, and detects which of them this
// machine supports. It imports no package of this module and reads no environment variables.
package isa

import (
	"fmt"
	"strings"

	"golang.org/x/sys/cpu"
)

// A Set is an instruction set and whether this machine supports it.
type Set struct {
	Name string
	Has  bool
	Why  string // what is missing if Has is false

	// Withheld means that the processor supports the set but the system does not allow it, as in some
	// containers.
	Withheld bool
}

// Detect returns the sets, the best one last. A kernel for a set may also use the sets before it.
func Detect() []Set {
	sets := []Set{{Name: "portable"}}
	add := func(name string, needs ...need) {
		sets = append(sets, Set{Name: name, Why: missing(needs)})
	}
	add("neondot", need{"the dot-product instructions of arm64", cpu.ARM64.HasASIMDDP})
	x := &cpu.X86
	add("avx2", need{"AVX2", x.HasAVX2}, need{"FMA", x.HasFMA}, need{"F16C", x.HasF16C})
	add("avx512vnni", need{"AVX-512 F", x.HasAVX512F}, need{"AVX-512 BW", x.HasAVX512BW},
		need{"AVX-512 VL", x.HasAVX512VL}, need{"AVX-512 VNNI", x.HasAVX512VNNI})
	tiles := []need{{"AVX-512 VNNI", x.HasAVX512VNNI}, {"AVX-512 BF16", x.HasAVX512BF16}, {"AMX tiles", x.HasAMXTile},
		{"AMX int8", x.HasAMXInt8}, {"AMX bf16", x.HasAMXBF16}}
	there := missing(tiles) == ""
	if there { // without AMX there is no permission to request
		tiles = append(tiles, need{"the system's permission for AMX", tilesAllowed()})
	}
	add("amx", tiles...)
	for i := range sets {
		sets[i].Has = sets[i].Why == ""
	}
	amx := &sets[len(sets)-1]
	amx.Withheld = there && !amx.Has
	return sets
}

// A need is a feature that a set requires.
type need struct {
	what string
	has  bool
}

func missing(needs []need) string {
	var names []string
	for _, n := range needs {
		if !n.has {
			names = append(names, n.what)
		}
	}
	if names == nil {
		return ""
	}
	return "lacks " + strings.Join(names, ", ")
}

// Best returns the best set that this machine supports. If most is not "", it is the best set not better
// than most. An unknown name is an error.
func Best(most string) (string, error) {
	sets := Detect()
	at := len(sets) - 1
	if most != "" {
		var err error
		if at, err = find(sets, most); err != nil {
			return "", err
		}
	}
	for !sets[at].Has { // portable is always there
		at--
	}
	return sets[at].Name, nil
}

// UpTo returns the names of the sets that code for the given set may use. It is an error if this machine
// does not support the set.
func UpTo(name string) ([]string, error) {
	sets := Detect()
	at, err := find(sets, name)
	if err != nil {
		return nil, err
	}
	if !sets[at].Has {
		return nil, fmt.Errorf("instruction set %s: this machine %s", name, sets[at].Why)
	}
	var names []string
	for _, s := range sets[:at+1] {
		if s.Has {
			names = append(names, s.Name)
		}
	}
	return names, nil
}

// Explain returns a line for each set that says whether this machine supports it, or what is missing.
func Explain() string {
	var b strings.Builder
	for _, s := range Detect() {
		found := "yes"
		if !s.Has {
			found = s.Why
		}
		fmt.Fprintf(&b, "%-11s %s\n", s.Name, found)
	}
	return b.String()
}

func find(sets []Set, name string) (int, error) {
	var names []string
	for i, s := range sets {
		if s.Name == name {
			return i, nil
		}
		names = append(names, s.Name)
	}
	return 0, fmt.Errorf("instruction set %q, expected one of %s", name, strings.Join(names, ", "))
}
