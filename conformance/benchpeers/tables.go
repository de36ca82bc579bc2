package main

import (
	"fmt"
	"strings"

	"pesti/exec/load"
)

// tables returns the report as Markdown: the targets by model, every test, and start and memory.
func tables(r *report) string {
	parts := []string{strings.Join(circumstances(r), "\n") + "\n"}
	for _, table := range []func(*report) [][]string{headline, everything, startAndMemory} {
		parts = append(parts, markdown(table(r)))
	}
	return strings.Join(parts, "\n")
}

// circumstances returns lines that say what was measured, where and when.
func circumstances(r *report) []string {
	against := "; llama.cpp was not measured"
	if r.Theirs != nil {
		against = fmt.Sprintf(" and %s (%s)", r.Theirs.Name, r.Theirs.Version)
	}
	for _, p := range r.Others {
		against += fmt.Sprintf(" and %s (%s)", p.Name, p.Version)
	}
	governor := ""
	if r.Machine.Governor != "" {
		governor = ", governor " + r.Machine.Governor
	}
	return []string{
		fmt.Sprintf("%s%s.", r.Ours.Version, against),
		fmt.Sprintf("%s, %d processors%s, %s; %d threads, medians of %d alternating rounds, %s.",
			r.Machine.Processor, r.Machine.CPUs, governor, r.Machine.System, r.Threads, r.Repeats, r.Begun.Format("2006-01-02")),
		loadLine(&r.Load),
	}
}

// loadLine says how busy the machine was with other programs.
func loadLine(l *load.Load) string {
	switch busy, known := l.Busy(); {
	case !known:
		return "The load of other programs is not known."
	case busy:
		return fmt.Sprintf("**The machine was busy**, so ratios are not reliable: other programs used %.2f processors (load average %s at the start, %s at the end).", *l.Others, l.Begin, l.End)
	default:
		return fmt.Sprintf("Other programs used %.2f processors (load average %s at the start, %s at the end).", *l.Others, l.Begin, l.End)
	}
}

// headline is the table of targets by model.
func headline(r *report) [][]string {
	rows := [][]string{{"model", "decode tg128: ratio", "required · goal", "", "prefill pp512: ratio", "required · goal", "", "decode tg128: fraction of memory roofline", "required · goal", ""}}
	for i := range r.Models {
		m := &r.Models[i]
		known := lookup(m.File)
		row := []string{known.label}
		for _, t := range []test{decodeTest, prefillTest} {
			want, ratio := targetOf(m, t), ratioOf(m, t)
			row = append(row, ratioText(ratio), targetText(want), r.verdict(want.verdict(ratio)))
		}
		share := 0.0
		if t := m.find(decodeTest); t != nil {
			share = t.allowed().OfRead
		}
		rows = append(rows, append(row, ratioText(share), targetText(known.bandwidth()), r.verdict(known.bandwidth().verdict(share))))
	}
	return rows
}

// firstPeer returns the name of the first peer.
func (r *report) firstPeer() string {
	if r.Theirs == nil {
		return "llama.cpp"
	}
	return r.Theirs.Name
}

// everything is the table of tests.
func everything(r *report) [][]string {
	head := []string{"model", "test", "pesti, tok/s", r.firstPeer() + ", tok/s", "ratio", "required · goal", ""}
	for _, p := range r.Others {
		head = append(head, p.Name+", tok/s", "pesti ÷ "+p.Name)
	}
	rows := [][]string{append(head, "read, GB/s", "memory roofline, tok/s", "fraction")}
	for i := range r.Models {
		m := &r.Models[i]
		for j := range m.Tests {
			t := &m.Tests[j]
			want := targetOf(m, t.test)
			row := []string{lookup(m.File).label, t.String(), speedText(t.Ours.median()), speedText(t.Theirs.median()),
				ratioText(t.ratio()), targetText(want), r.verdict(want.verdict(t.ratio()))}
			for k := range r.Others {
				other := t.other(k)
				row = append(row, speedText(other.median()), ratioText(t.against(other)))
			}
			rows = append(rows, append(row, speedText(median(t.Read)/1e9), speedText(t.allowed().ReadTS), ratioText(t.allowed().OfRead)))
		}
	}
	return rows
}

// startAndMemory is the table of values for which less is better.
func startAndMemory(r *report) [][]string {
	rows := [][]string{{"model", "start to first token, pesti, s", r.firstPeer() + ", s", "ratio", "at most", "",
		"peak resident, pesti, MiB", r.firstPeer() + ", MiB", "file + KV + arena + 64, MiB", ""}}
	for i := range r.Models {
		m := &r.Models[i]
		ours, theirs := m.peaks()
		bound := m.Size + m.Needs + spareMemory
		ratio := m.Start.ratio()
		rows = append(rows, []string{lookup(m.File).label,
			secondsText(m.Start.Ours.median()), secondsText(m.Start.Theirs.median()), ratioText(ratio), fmt.Sprint(startRatio), r.verdict(atMost(ratio, startRatio)),
			mibText(ours), mibText(theirs), mibText(bound), atMost(float64(ours), float64(bound))})
	}
	return rows
}

// atMost rates x by an upper bound. 0 means that it was not measured.
func atMost(x, bound float64) string {
	switch {
	case x == 0:
		return "-"
	case x > bound:
		return "**above**"
	default:
		return "ok"
	}
}

// Numbers in the form of the tables. A value that was not measured is a dash.

func speedText(x float64) string { return orDash(x, "%.1f") }

func secondsText(x float64) string { return orDash(x, "%.2f") }

func ratioText(x float64) string { return orDash(x, "%.2f") }

func mibText(bytes int64) string { return orDash(float64(bytes)/(1<<20), "%.0f") }

func orDash(x float64, format string) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf(format, x)
}

func targetText(t target) string {
	switch {
	case t.required == 0:
		return "-"
	case t.goal == 0:
		return fmt.Sprintf("%.3g", t.required)
	default:
		return fmt.Sprintf("%g · %g", t.required, t.goal)
	}
}

// markdown formats rows. The first is the header.
func markdown(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}
