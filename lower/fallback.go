package lower

import (
	"cmp"
	"slices"
	"strings"

	"pesti/exec/plan"
	"pesti/graph"
)

// A Fallback is a step that runs a reference kernel because none of the target's own kernels fits.
// On CUDA it runs on the host.
type Fallback struct {
	Program, Step, Kernel string
	Op                    string // the op without a kernel; the step computes it or a part of its expansion
	Why                   string
}

// A FallbackGroup holds the fallbacks with one reason.
type FallbackGroup struct {
	Why   string
	Ops   []string // in alphabetical order
	Steps int      // of all programs
}

// FallbackGroups returns the fallbacks of a compilation by reason, in descending order of steps.
func (r *Result) FallbackGroups() []FallbackGroup {
	var groups []FallbackGroup
	for _, f := range r.Fallbacks {
		at := slices.IndexFunc(groups, func(g FallbackGroup) bool { return g.Why == f.Why })
		if at < 0 {
			at = len(groups)
			groups = append(groups, FallbackGroup{Why: f.Why})
		}
		g := &groups[at]
		g.Steps++
		if i, found := slices.BinarySearch(g.Ops, f.Op); !found {
			g.Ops = slices.Insert(g.Ops, i, f.Op)
		}
	}
	slices.SortStableFunc(groups, func(a, b FallbackGroup) int {
		return cmp.Or(b.Steps-a.Steps, strings.Compare(a.Why, b.Why))
	})
	return groups
}

// A reason is why no kernel fits a node's op, or the op that the node is a part of.
type reason struct{ op, why string }

// fellBack records a step that runs a reference kernel.
func (s *scheduler) fellBack(st *plan.Step, n *graph.Node, why string) {
	if !plan.IsReference(st.Kernel) {
		return
	}
	r, ok := s.reasons[n]
	if !ok {
		r = reason{n.Op.Name, why}
	}
	s.fallbacks = append(s.fallbacks, Fallback{Program: s.name, Step: st.Name, Kernel: st.Kernel, Op: r.op, Why: r.why})
}
