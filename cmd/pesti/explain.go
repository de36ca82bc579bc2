package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"pesti/exec/plan"
	"pesti/lower"
)

// explain prints where each pass applied, or why it declined, and the fallbacks. Layers with the same result
// share a line.
func explain(w io.Writer, res *lower.Result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(n *lower.MergedNote, what string) {
		layers := ""
		if len(n.Layers) > 1 {
			layers = fmt.Sprintf("%d layers, %s", len(n.Layers), spans(n.Layers))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", n.Elem.Pass, oneLine(n.Elem.Place), layers, oneLine(what))
	}
	for _, p := range res.Explain() {
		for i := range p.Notes {
			n, what := &p.Notes[i], "applied"
			if !n.Elem.Applied {
				what = "not applied: " + n.Elem.Why
			}
			line(n, what)
		}
		switch {
		case len(p.Notes) > 0:
		case p.Off:
			fmt.Fprintf(t, "%s\t\t\tswitched off\n", p.Pass)
		default:
			fmt.Fprintf(t, "%s\t\t\tnothing to do\n", p.Pass)
		}
	}
	for _, n := range res.ExplainFallbacks() {
		line(&n, n.Elem.Why)
	}
	t.Flush() // write errors on standard error are not reported
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
