package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"pesti/exec/plan"
)

func (a *app) planDiff() *cobra.Command {
	var asJSON, all bool
	cmd := a.verb("diff FILE FILE", "Describe how two plans differ",
		`  pesti plan diff exact.plan fast.plan`,
		arity{2, 2, "two plans"}, a.interruptible(func(cmd *cobra.Command, args []string) error {
			var plans [2]*plan.Plan
			for i, name := range args {
				var err error
				if plans[i], err = loadPlan(name); err != nil {
					return err
				}
			}
			list := plan.Diff(plans[0], plans[1])
			shown, hidden := list, 0
			if !all {
				shown, hidden = plan.WithoutPlacement(list)
			}
			var err error
			if asJSON {
				if shown == nil {
					shown = []plan.Difference{} // so that JSON has a list and not null
				}
				err = a.printJSON(shown)
			} else {
				err = printDifferences(a.stdout, shown, hidden)
			}
			if err == nil && len(list) > 0 {
				err = fmt.Errorf("%s and %s differ", args[0], args[1])
			}
			return err
		}))
	cmd.Long = cmd.Short + `.

Differences that several layers share are one line, in which N stands for the layer. --all also prints
differences in the placement of buffers and steps, which mostly follow from the others.
The exit code is 0 if the plans are equal and 1 if they differ.`
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, sizes in bytes")
	cmd.Flags().BoolVar(&all, "all", false, "print differences of placement too")
	return cmd
}

// printDifferences prints differences as text, each section under its name. Programs with equal
// differences share a section.
func printDifferences(w io.Writer, list []plan.Difference, hidden int) error {
	var heads, bodies []string
	for len(list) > 0 {
		n := slices.IndexFunc(list, func(d plan.Difference) bool { return d.Section != list[0].Section })
		if n < 0 {
			n = len(list)
		}
		head, body := oneLine(list[0].Section), differenceTable(list[:n])
		if i := slices.Index(bodies, body); i >= 0 {
			heads[i] += ", " + head
		} else {
			heads, bodies = append(heads, head), append(bodies, body)
		}
		list = list[n:]
	}
	if hidden > 0 {
		heads, bodies = append(heads, "placement"), append(bodies, fmt.Sprintf("  %d more, printed with --all\n", hidden))
	}
	for i := range heads {
		if _, err := fmt.Fprintf(w, "%s\n%s", heads[i], bodies[i]); err != nil {
			return err
		}
	}
	return nil
}

// differenceTable returns a line for each difference of a section.
func differenceTable(list []plan.Difference) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i := range list {
		d := &list[i]
		if d.Place == "" {
			fmt.Fprintf(t, "  %s\n", oneLine(d.String()))
			continue
		}
		layers := ""
		if len(d.Layers) > 1 {
			layers = fmt.Sprintf("%d layers alike, %s", len(d.Layers), spans(d.Layers))
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", oneLine(d.Place), layers, oneLine(d.String()))
	}
	t.Flush() // a strings.Builder does not fail
	return b.String()
}

// spans lists ascending numbers: "0–4, 6".
func spans(n []int) string {
	var parts []string
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		if j > i {
			parts = append(parts, fmt.Sprintf("%d–%d", n[i], n[j]))
		} else {
			parts = append(parts, fmt.Sprint(n[i]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
