package draw

import (
	"fmt"
	"slices"

	"pesti/exec/plan"
)

// timeStyles are the colors of boxes by share of the program's time, from red to pale. Each
// applies from the share in leastShares on.
var timeStyles = []kind{
	{name: "20 % of the time or more", fill: "#EF8A72", line: "#8E2213"},
	{name: "10 %", fill: "#F6B08F", line: "#9C4221"},
	{name: "5 %", fill: "#FACFAF", line: "#A5622B"},
	{name: "2 %", fill: "#FCE6CD", line: "#A58250"},
	{name: "1 %", fill: "#FCF2E1", line: "#A09070"},
	{name: "less", fill: "#F7F7F5", line: "#9A9A96"},
}

// leastShares are the shares that timeStyles begin at.
var leastShares = []float64{0.2, 0.1, 0.05, 0.02, 0.01, 0}

// times sets the time of each step of a program in the boxes from base on.
func (pic *picture) times(g *plan.Program, base int, o Options) error {
	if o.Times == nil {
		return nil
	}
	seconds := o.Times[g.Name]
	boxes := pic.boxes[base:]
	if len(seconds) != len(boxes) {
		return fmt.Errorf("program %q has %d steps, but there are times of %d steps, expected the times of a run of this program", g.Name, len(boxes), len(seconds))
	}
	total := 0.0
	for _, s := range seconds {
		total += s
	}
	for i := range boxes {
		boxes[i].seconds = seconds[i]
		if total > 0 {
			boxes[i].share = seconds[i] / total
		}
	}
	return nil
}

// colorByTime colors boxes by time and writes the time into each. A folded box has the time of all
// its layers.
func (pic *picture) colorByTime() {
	for i := range pic.boxes {
		b := &pic.boxes[i]
		at := slices.IndexFunc(leastShares, func(least float64) bool { return b.share >= least })
		b.kind = timeStyles[max(at, 0)].name
		b.lines = append(slices.Clip(b.lines), fmt.Sprintf("%.1f %% of the time, %.3g ms", 100*b.share, 1e3*b.seconds))
	}
}
