package page

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pesti/exec/plan/plantest"
)

// TestWithPlan checks that shared stages come first, then each program's stages and steps, and that
// each stage derives from the one before in its group, or from the last shared one.
func TestWithPlan(t *testing.T) {
	p := plantest.Plan(1)
	program := p.Programs[0].Name
	var got []string
	stages := WithPlan([]Stage{{Group: Shared, Name: "graph"}, {Group: program, Name: "lower"}, {Group: Shared, Name: "fuse"}, {Group: program, Name: "place"}}, p)
	for _, s := range stages[:5] {
		got = append(got, fmt.Sprint(s.Group, ".", s.Name, " of ", s.From))
	}
	want := []string{"graph.graph of -1", "graph.fuse of 0", program + ".lower of 1", program + ".place of 2", program + ".plan of -1"}
	if !slices.Equal(got, want) {
		t.Errorf("stages are %q, want %q", got, want)
	}
	text := stages[4].Text
	for i, w := range p.Programs[0].Waves {
		if !strings.Contains(text, fmt.Sprintf("wave %d\n", i)) {
			t.Errorf("the steps lack wave %d:\n%s", i, text)
		}
		for _, st := range w.Steps {
			if !strings.Contains(text, fmt.Sprintf(" = %s[%s] ", st.Kernel, st.Rows)) {
				t.Errorf("the steps lack %s:\n%s", st.Name, text)
			}
		}
	}
	if !strings.Contains(text, "@") || !strings.Contains(text, "%") {
		t.Errorf("the steps name no values or weights:\n%s", text)
	}
}
