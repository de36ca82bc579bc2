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
	"pesti/graph/page"
	"pesti/lower"
)

// A stageDump writes the stages of a compilation to a folder: a text file for each, and one page.
type stageDump struct {
	save   func(path string, write func(io.Writer) error) error
	dir    string
	stages []page.Stage
	err    error // the first error
}

// newStageDump creates the folder if it does not exist.
func (a *app) newStageDump(ctx context.Context, dir string) (*stageDump, error) {
	save := func(path string, write func(io.Writer) error) error { return a.writeFile(ctx, path, write) }
	return &stageDump{save: save, dir: dir}, cannot("made", dir, os.MkdirAll(dir, 0o777))
}

// stage writes one stage: "graph", a graph pass, or a program and its lowering pass.
func (d *stageDump) stage(name, text string) {
	s := page.Stage{Group: page.Shared, Name: name, Doc: "as built from the model file; T is tokens, S sequences, R rows of logits, C positions of context", Text: text, Lines: "nodes"}
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

// stageText is the pattern of the names of the stages' files.
var stageText = regexp.MustCompile(`^[0-9]{2,}-(?:[a-z]+\.)?([a-z_0-9]+)\.txt$`)

// clear removes the texts of an earlier dump. Otherwise the text of a pass that changes nothing this time would
// look like a stage of this compilation.
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
		if _, ok := lower.PassDoc(m[1]); !ok && m[1] != page.Shared {
			continue
		}
		path := filepath.Join(d.dir, e.Name())
		if err := os.Remove(path); err != nil {
			return cannot("removed", path, err)
		}
	}
	return nil
}

// page writes the page of all stages.
func (d *stageDump) page(p *plan.Plan) error {
	var b bytes.Buffer
	if err := page.Write(&b, p.Model.Name, page.WithPlan(d.stages, p)); err != nil {
		return err
	}
	d.write("index.html", b.Bytes())
	return d.err
}
