package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"pesti/exec/plan"
	"pesti/lower"
)

// explain prints where each pass applied, or why it declined, in the order of the passes. Layers
// with the same result share a line.
func explain(w io.Writer, res *lower.Result, off string) {
	set, _ := lower.ParsePasses(off) // Compile has checked the list
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	printed := map[string]bool{}
	for _, p := range res.Passes {
		if printed[p.Name] { // a pass may run again
			continue
		}
		printed[p.Name] = true
		lines := alikeNotes(res.Notes, p.Name)
		for _, l := range lines {
			what := "applied"
			if !l.Applied {
				what = "not applied: " + l.Why
			}
			layers := ""
			if len(l.layers) > 1 {
				layers = fmt.Sprintf("%d layers, %s", len(l.layers), spans(l.layers))
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.Name, oneLine(l.Place), layers, oneLine(what))
		}
		switch {
		case len(lines) > 0:
		case !p.Required && set.Has(p.Name):
			fmt.Fprintf(t, "%s\t\t\tswitched off\n", p.Name)
		default:
			fmt.Fprintf(t, "%s\t\t\tnothing to do\n", p.Name)
		}
	}
	for _, l := range alikeNotes(fallbackNotes(res), "fallback") {
		layers := ""
		if len(l.layers) > 1 {
			layers = fmt.Sprintf("%d layers, %s", len(l.layers), spans(l.layers))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", l.Pass, oneLine(l.Place), layers, oneLine(l.Why))
	}
	t.Flush() // write errors on standard error are not reported
}

// fallbackNotes returns a note for each fallback step.
func fallbackNotes(res *lower.Result) []lower.Note {
	notes := make([]lower.Note, len(res.Fallbacks))
	for i, f := range res.Fallbacks {
		notes[i] = lower.Note{Pass: "fallback", Place: f.Step, Why: fmt.Sprintf("program %s, kernel %s for op %s: %s", f.Program, f.Kernel, f.Op, f.Why)}
	}
	return notes
}

// sayFallbacks prints the number of steps that run reference kernels, with their ops and the
// reasons.
func (a *app) sayFallbacks(res *lower.Result) {
	if len(res.Fallbacks) == 0 {
		return
	}
	where := ""
	if res.Plan.Target.Backend == plan.CUDA {
		where = ", which run on the host"
	}
	a.say("%d steps are fallbacks to reference kernels%s:", len(res.Fallbacks), where)
	for _, g := range res.FallbackGroups() {
		a.say("  %d for %s: %s", g.Steps, strings.Join(g.Ops, ", "), g.Why)
	}
}

// A layersNote is a note for places that differ only in their layer.
type layersNote struct {
	lower.Note
	layers []int // none for a place outside all layers
}

// anyLayer is the prefix of a place in several layers.
const anyLayer = "blk.N."

// alikeNotes returns the notes of one pass. Equal notes of several layers are merged.
func alikeNotes(notes []lower.Note, name string) []layersNote {
	var lines []layersNote
	at := map[lower.Note]int{}
	for _, n := range notes {
		if n.Pass != name {
			continue
		}
		var layer int
		if _, err := fmt.Sscanf(n.Place, "blk.%d.", &layer); err != nil {
			lines = append(lines, layersNote{Note: n})
			continue
		}
		prefix := fmt.Sprintf("blk.%d.", layer)
		n.Place = strings.Replace(n.Place, prefix, anyLayer, 1)
		n.Why = strings.ReplaceAll(n.Why, prefix, anyLayer)
		i, ok := at[n]
		if !ok {
			i = len(lines)
			at[n] = i
			lines = append(lines, layersNote{Note: n})
		}
		if !slices.Contains(lines[i].layers, layer) {
			lines[i].layers = append(lines[i].layers, layer)
		}
	}
	for i := range lines {
		slices.Sort(lines[i].layers)
		if l := &lines[i]; len(l.layers) == 1 {
			prefix := fmt.Sprintf("blk.%d.", l.layers[0])
			l.Place = strings.Replace(l.Place, anyLayer, prefix, 1)
			l.Why = strings.ReplaceAll(l.Why, anyLayer, prefix)
		}
	}
	return lines
}
