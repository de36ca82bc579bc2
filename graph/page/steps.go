package page

import (
	"cmp"
	"fmt"
	"strings"

	"pesti/exec/plan"
	"pesti/graph"
)

// Shared is the group of the stages that all programs share.
const Shared = "graph"

// WithPlan returns the stages of a compilation in the order of the page: the shared ones, then for
// each program of the plan its own stages and its steps, in a group with the program's name. It
// sets From.
func WithPlan(all []Stage, p *plan.Plan) []Stage {
	var stages []Stage
	last := -1 // index of the last shared stage
	for _, s := range all {
		if s.Group == Shared {
			s.From = last
			last = len(stages)
			stages = append(stages, s)
		}
	}
	for i := range p.Programs {
		g := &p.Programs[i]
		from := last
		for _, s := range all {
			if s.Group == g.Name {
				s.From = from
				from = len(stages)
				stages = append(stages, s)
			}
		}
		stages = append(stages, Stage{Group: g.Name, Name: "plan", Doc: "the steps that are executed, in waves", Text: stepsText(p, g), Lines: "steps", From: -1})
	}
	return stages
}

// stepsText prints the steps of a program in the notation of graph nodes, with values instead of
// buffers.
func stepsText(p *plan.Plan, g *plan.Program) string {
	holds := map[int]string{} // the current value of each buffer whose name is another value's
	value := func(id int) string {
		return valueName(cmp.Or(holds[id], p.Buffer(g, id).Name))
	}
	var b strings.Builder
	for i := range g.Waves {
		fmt.Fprintf(&b, "wave %d\n", i)
		for j := range g.Waves[i].Steps {
			st := &g.Waves[i].Steps[j]
			sig, _ := plan.LookupKernel(st.Kernel)
			var takes []string
			var writes []int
			for _, a := range st.Args {
				dir := sig.Operand(a.Role).Dir
				switch {
				case dir == plan.WeightIn:
					takes = append(takes, a.Role+"="+strings.TrimSpace(a.Kernel+" "+weightName(a.Weight)))
				case dir.Reads():
					takes = append(takes, a.Role+"="+value(a.Buffer))
				default:
					writes = append(writes, a.Buffer)
				}
			}
			var results []string
			for _, id := range writes {
				if delete(holds, id); len(writes) == 1 {
					holds[id] = st.Name
				}
				results = append(results, value(id))
			}
			if len(results) == 0 { // the step changes an operand, such as a cache
				results = []string{valueName(st.Name)}
			}
			on := ""
			if st.Device != 0 {
				on = fmt.Sprintf(" on %d", st.Device)
			}
			fmt.Fprintf(&b, "  %s = %s[%s] %s split %s/%d%s\n", strings.Join(results, ", "), st.Kernel, st.Rows, strings.Join(takes, ", "), st.Split.By, st.Split.Unit, on)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// valueName writes the name of a value, and weightName that of a weight, as graphs do.
func valueName(name string) string  { return (&graph.Value{Name: name, Def: &graph.Node{}}).String() }
func weightName(name string) string { return (&graph.Value{Name: name}).String() }
