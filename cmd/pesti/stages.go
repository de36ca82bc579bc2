package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"pesti/exec/plan"
	"pesti/graph"
	"pesti/graph/page"
	"pesti/lower"
)

// A stageDump writes the stages of a compilation into a folder: a file for each and one page.
type stageDump struct {
	save   func(path string, write func(io.Writer) error) error
	dir    string
	stages []page.Stage
	err    error // the first
}

// newStageDump makes the folder, if it is not there.
func (a *app) newStageDump(ctx context.Context, dir string) (*stageDump, error) {
	save := func(path string, write func(io.Writer) error) error { return a.writeFile(ctx, path, write) }
	return &stageDump{save: save, dir: dir}, cannot("made", dir, os.MkdirAll(dir, 0o777))
}

// graphStages is the group of the stages that all programs share.
const graphStages = "graph"

// stage writes one stage: "graph", a graph pass, or a program and its lowering pass.
func (d *stageDump) stage(name, text string) {
	s := page.Stage{Group: graphStages, Name: name, Doc: "as built from the model file; T is tokens, S sequences, R rows of logits, C positions of context", Text: text, Lines: "nodes"}
	if program, pass, found := strings.Cut(name, "."); found {
		s.Group, s.Name = program, pass
	}
	if doc, ok := lower.PassDoc(s.Name); ok {
		s.Doc = doc
	}
	if len(d.stages) == 0 {
		d.err = d.clear()
	}
	d.write(fmt.Sprintf("%02d-%s.txt", len(d.stages), name), []byte(text))
	d.stages = append(d.stages, s)
}

func (d *stageDump) write(name string, text []byte) {
	err := d.save(filepath.Join(d.dir, name), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	d.err = cmp.Or(d.err, err)
}

// stageText is the form of the names of the stages' files.
var stageText = regexp.MustCompile(`^[0-9]{2,}-(?:[a-z]+\.)?([a-z_0-9]+)\.txt$`)

// clear removes the texts of an earlier dump: those of passes that change nothing this time would
// look like stages of this compilation.
func (d *stageDump) clear() error {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return cannot("read", d.dir, err)
	}
	for _, e := range entries {
		m := stageText.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		if _, ok := lower.PassDoc(m[1]); !ok && m[1] != graphStages {
			continue
		}
		path := filepath.Join(d.dir, e.Name())
		if err := os.Remove(path); err != nil {
			return cannot("removed", path, err)
		}
	}
	return nil
}

// page writes the page of all stages. Behind the passes of each program come its steps.
func (d *stageDump) page(p *plan.Plan) error {
	var stages []page.Stage
	last := -1 // of the stages that all programs share
	for _, s := range d.stages {
		if s.Group == graphStages {
			s.From = last
			last = len(stages)
			stages = append(stages, s)
		}
	}
	for i := range p.Programs {
		g := &p.Programs[i]
		from := last
		for _, s := range d.stages {
			if s.Group == g.Name {
				s.From = from
				from = len(stages)
				stages = append(stages, s)
			}
		}
		stages = append(stages, page.Stage{Group: g.Name, Name: "plan", Doc: "the steps that are executed, in waves", Text: stepsText(p, g), Lines: "steps", From: -1})
	}
	var b bytes.Buffer
	if err := page.Write(&b, p.Model.Name, stages); err != nil {
		return err
	}
	d.write("index.html", b.Bytes())
	return d.err
}

// stepsText prints the steps of a program as graphs print nodes, with values in place of buffers.
func stepsText(p *plan.Plan, g *plan.Program) string {
	holds := map[int]string{} // the value that is in a buffer, where it is not what the buffer is named after
	value := func(id int) string {
		name := holds[id]
		switch n := id - len(p.Buffers); {
		case name != "":
		case n >= 0:
			name = g.Buffers[n].Name
		default:
			name = p.Buffers[id].Name
		}
		return valueName(name)
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
			if len(results) == 0 { // it changes what it takes, such as a cache
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
