package lower

import (
	"math"
	"slices"

	"pesti/graph/pass"
	"pesti/lower/memplan"
	"pesti/lower/target"
)

// A Note says what a pass did at a place, or why it did not: see pass.Note.
type Note = pass.Note

// ParsePasses reads the value of Options.Passes.
func ParsePasses(list string) (pass.Set, error) { return pass.ParseSet(list, Passes()) }

// PassDoc returns the description of the pass with a name, and whether there is one.
func PassDoc(name string) (doc string, ok bool) {
	for _, p := range Passes() {
		if p.Name == name {
			return p.Doc, true
		}
	}
	return "", false
}

// TargetNames returns the valid values of Options.Target.
func TargetNames() []string { return target.Names(Targets()) }

// Planners returns the valid values of Options.Planner.
func Planners() []string { return memplan.Planners() }

// ProgramNames returns the names of all programs that plans can have, of any target.
func ProgramNames() []string {
	var names []string
	for _, t := range Targets() {
		for _, p := range t.Programs(target.Bounds{Ubatch: math.MaxInt64, Sequences: 1, Tiles: true}) {
			if !slices.Contains(names, p.Name) {
				names = append(names, p.Name)
			}
		}
	}
	return names
}
