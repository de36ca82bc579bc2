package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"pesti/exec"
	"pesti/exec/plan"
	"pesti/exec/profile"
)

// This file prints the counts of the virtual device, which does not measure time.

// countReport compares the engine's profile with the GPU of --gpu.
func (p *profileFlags) countReport(e *exec.Engine) (*profile.CountReport, error) {
	gpu, _ := profile.LookupGPU(p.gpu.word) // the flag takes only known names
	return e.Profile().CountReport(e.Plan(), gpu)
}

// printCounts prints a report as text.
func printCounts(w io.Writer, r *profile.CountReport, steps bool) error {
	g := &r.GPU
	fmt.Fprintf(w, "predicted for %s: memory %.0f GB/s, f32 %.1f, tensor int8 %.0f, f16 %.0f T/s, %d SMs at %.2f GHz\n", g.Name,
		g.Bandwidth/1e9, g.Flops/1e12, g.TensorInts/1e12, g.TensorFloats/1e12, g.SMs, g.Clock/1e9)
	for i := range r.Programs {
		c := &r.Programs[i]
		fmt.Fprintf(w, "\n%s: %s; kernels are predicted to take %.1f µs, which without launches is %.0f tokens/s; memory allows %.0f, for %s that are needed\n",
			c.Program, strings.TrimSuffix(runsText(c.Runs, c.Tokens), ","), 1e6*c.Total.Predicted, c.TokensS, c.MemoryTS, plan.HumanBytes(c.Total.Needed))
		rows := append([]profile.Counted{c.Total}, c.Kernels...)
		for _, t := range countTables {
			if err := printCountTable(w, &t, rows); err != nil {
				return err
			}
		}
		if !steps {
			continue
		}
		rows = append([]profile.Counted(nil), c.Steps...)
		for i := range rows {
			s := &rows[i]
			s.Name = fmt.Sprintf("wave %d  step %d  %s  %s", s.Wave, s.Step, oneLine(s.Name), s.Kernel)
		}
		if err := printCountTable(w, &stepTable, rows); err != nil {
			return err
		}
	}
	return nil
}

// A countTable is a printed table of counts, with a row for each kernel or step.
type countTable struct {
	title   string
	columns []countColumn
}

type countColumn struct {
	title string
	cell  func(*profile.Counted) string
}

// predicted are the columns about time.
var predicted = []countColumn{
	{"launches", func(c *profile.Counted) string { return fmt.Sprint(c.Launches) }},
	{"µs", func(c *profile.Counted) string { return fmt.Sprintf("%.2f", 1e6*c.Predicted) }},
	{"share", func(c *profile.Counted) string { return fmt.Sprintf("%.1f %%", 100*c.Share) }},
	{"bound", func(c *profile.Counted) string { return c.By }},
	{"memory µs", func(c *profile.Counted) string { return fmt.Sprintf("%.2f", 1e6*c.Memory) }},
	{"fetched", func(c *profile.Counted) string { return plan.HumanBytes(c.Fetched) }},
	{"stored", func(c *profile.Counted) string { return plan.HumanBytes(c.Stored) }},
}

var (
	countTables = []countTable{
		{"kernel", predicted},
		{"memory that threads access", []countColumn{
			{"read", func(c *profile.Counted) string { return plan.HumanBytes(c.Global.Read) }},
			{"written", func(c *profile.Counted) string { return plan.HumanBytes(c.Global.Written) }},
			{"sectors", func(c *profile.Counted) string { return perRequest(&c.Global) }},
			{"shared read", func(c *profile.Counted) string { return plan.HumanBytes(c.Shared.Read) }},
			{"written", func(c *profile.Counted) string { return plan.HumanBytes(c.Shared.Written) }},
			{"passes", func(c *profile.Counted) string { return perRequest(&c.Shared) }},
			{"local", func(c *profile.Counted) string { return plan.HumanBytes(c.Local.Read + c.Local.Written) }},
			{"constant", func(c *profile.Counted) string { return plan.HumanBytes(c.Constant.Read) }},
		}},
		{"instructions of warps", append([]countColumn{
			{"all", func(c *profile.Counted) string { return fmt.Sprint(c.Instructions.All()) }},
		}, classColumns()...)},
	}
	stepTable = countTable{"step", append([]countColumn{
		{"needed", func(c *profile.Counted) string { return plan.HumanBytes(c.Needed) }},
	}, predicted...)}
)

// classColumns has a column for each class of instructions, with its share.
func classColumns() []countColumn {
	var list []countColumn
	for class, name := range profile.Classes() {
		list = append(list, countColumn{name, func(c *profile.Counted) string {
			return fmt.Sprintf("%.0f %%", 100*c.ClassShare(class))
		}})
	}
	return list
}

// perRequest prints the number of parts of a request, and the smallest possible number.
func perRequest(t *profile.Traffic) string {
	if t.Requests == 0 {
		return "–"
	}
	parts, least := t.PerRequest()
	return fmt.Sprintf("%.2f of %.2f", parts, least)
}

func printCountTable(w io.Writer, table *countTable, rows []profile.Counted) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range table.columns {
		fmt.Fprintf(t, "%s\t", c.title)
	}
	fmt.Fprintf(t, "  %s\n", table.title)
	for i := range rows {
		for _, c := range table.columns {
			fmt.Fprintf(t, "%s\t", c.cell(&rows[i]))
		}
		fmt.Fprintf(t, "  %s\n", rows[i].Name)
	}
	return t.Flush()
}
