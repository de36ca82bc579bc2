package lower

import (
	"fmt"
	"slices"

	"pesti/gguf/layers"
)

// A MergedNote is a note for one place, or for the places in several layers that differ only in their layer.
type MergedNote = layers.Merged[Note]

// A PassNotes says what one pass did.
type PassNotes struct {
	Pass  string
	Off   bool         // switched off by Options.Passes
	Notes []MergedNote // where it applied, and where and why it declined; none if there was nothing to do
}

// Explain returns what each pass of the largest program did, in the order of the passes. A pass that ran
// several times is one element.
func (r *Result) Explain() []PassNotes {
	off, _ := ParsePasses(r.Plan.Passes) // Compile has checked the list
	var all []PassNotes
	for _, p := range r.Passes {
		if slices.ContainsFunc(all, func(n PassNotes) bool { return n.Pass == p.Name }) {
			continue
		}
		var notes []Note
		for _, n := range r.Notes {
			if n.Pass == p.Name {
				notes = append(notes, n)
			}
		}
		all = append(all, PassNotes{p.Name, !p.Required && off.Has(p.Name), mergeNotes(notes)})
	}
	return all
}

// ExplainFallbacks returns a note for each fallback of all programs, with the step as its place. The reason has
// the program, the kernel and the op.
func (r *Result) ExplainFallbacks() []MergedNote {
	notes := make([]Note, len(r.Fallbacks))
	for i, f := range r.Fallbacks {
		notes[i] = Note{Pass: "fallback", Place: f.Step, Why: fmt.Sprintf("program %s, kernel %s for op %s: %s", f.Program, f.Kernel, f.Op, f.Why)}
	}
	return mergeNotes(notes)
}

func mergeNotes(notes []Note) []MergedNote {
	return layers.Merge(notes, func(n *Note) []*string { return []*string{&n.Place, &n.Why} })
}
