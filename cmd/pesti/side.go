package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pesti/exec"
)

// A side is one of the two things that compare holds against each other: a plan that runs, or a
// folder of values.
type side interface {
	title() string
	vocab() int // logits of a row

	// tokens returns the ids that the side is about: its own, or those of the text. They are nil
	// where it has none of its own and the text is nil.
	tokens(text []byte) ([]int32, error)

	// most returns how many tokens eval takes at a time.
	most() int

	// eval returns what the side computes for ids[from:to], after those before.
	eval(ids []int32, from, to int) (*pass, error)

	close()
}

// A pass is what a side computes for some tokens: in every slice a row for each.
type pass struct {
	layers [][]float32 // the residual stream after each block
	logits []float32
}

// mostAtOnce bounds how many tokens' values are in memory at a time.
const mostAtOnce = 64

// A runner is a plan as a side.
type runner struct {
	*subject
	engine *exec.Engine
	see    func(exec.Observation) // what becomes of the values
}

// newRunner starts the plan of a subject, which is compiled.
func newRunner(ctx context.Context, s *subject) (*runner, error) {
	r := &runner{subject: s}
	s.observe = func(v exec.Observation) { r.see(v) }
	var err error
	r.engine, err = s.start(ctx)
	return r, err
}

func (r *runner) title() string { return r.name }

func (r *runner) close() {
	r.engine.Close()
	r.file.Close()
}

func (r *runner) vocab() int {
	_, width, _ := r.plan.Logits() // the engine has seen it
	return int(width)
}

func (r *runner) most() int {
	return int(min(r.plan.Target.Ubatch, r.plan.Target.Rows, mostAtOnce))
}

func (r *runner) tokens(text []byte) ([]int32, error) {
	if text == nil {
		return nil, nil
	}
	return promptIDs(r.subject, text)
}

func (r *runner) eval(ids []int32, from, to int) (*pass, error) {
	var p pass
	r.see = func(v exec.Observation) {
		n := v.Step.Layer
		if n < 0 || valueOf(v.Name) != fmt.Sprintf(residual, n) {
			return
		}
		for len(p.layers) <= n {
			p.layers = append(p.layers, nil)
		}
		if p.layers[n] == nil {
			p.layers[n] = slices.Clone(v.Data)
		}
	}
	if err := r.step(ids, from, to, to-from); err != nil {
		return nil, err
	}
	for row := range to - from {
		p.logits = append(p.logits, r.engine.Logits(row)...)
	}
	return &p, nil
}

// step runs ids[from:to], of which the logits of the last rows are wanted.
func (r *runner) step(ids []int32, from, to, rows int) error {
	n := to - from
	b := exec.Batch{Tokens: ids[from:to], Seq: make([]int32, n)}
	for t := range n {
		b.Pos = append(b.Pos, int32(from+t))
		if t >= n-rows {
			b.Rows = append(b.Rows, int32(t))
		}
	}
	if err := r.engine.Step(&b); err != nil {
		return about(r.name, err)
	}
	return nil
}

// valueOf returns the name of a value without the mark of pass sink_rows for one of which only the
// rows are computed whose logits are wanted.
func valueOf(name string) string { return strings.Replace(name, ".rows", "", 1) }

// A folder is a side that dump, or the oracle, has written.
type folder struct {
	path   string
	ids    []int32
	layers [][]float32
	logits []float32
}

// openFolder reads tokens.npy, logits.npy and the layer_NN.npy that are there. All have a row for
// each token.
func openFolder(dir string) (*folder, error) {
	f := &folder{path: dir}
	path := filepath.Join(dir, "tokens.npy")
	tokens, err := loadNpy(path)
	if err != nil {
		return nil, err
	}
	if f.ids, err = tokens.ids(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.logits, err = f.rows("logits.npy"); err != nil {
		return nil, err
	}
	for n := 0; ; n++ {
		name := fmt.Sprintf(layerFile, n)
		if _, err := os.Stat(filepath.Join(dir, name)); os.IsNotExist(err) {
			return f, nil
		}
		layer, err := f.rows(name)
		if err != nil {
			return nil, err
		}
		f.layers = append(f.layers, layer)
	}
}

// rows reads a file of a row for each token.
func (f *folder) rows(name string) ([]float32, error) {
	path := filepath.Join(f.path, name)
	a, err := loadNpy(path)
	if err != nil {
		return nil, err
	}
	if len(a.shape) != 2 || a.shape[0] != len(f.ids) {
		return nil, fmt.Errorf("%s: shape %v, expected a row for each of the %d tokens of tokens.npy", path, a.shape, len(f.ids))
	}
	data, err := a.floats()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

func (f *folder) title() string                  { return f.path }
func (f *folder) vocab() int                     { return len(f.logits) / len(f.ids) }
func (f *folder) tokens([]byte) ([]int32, error) { return f.ids, nil }
func (f *folder) most() int                      { return mostAtOnce }
func (f *folder) close()                         {}

func (f *folder) eval(ids []int32, from, to int) (*pass, error) {
	part := func(data []float32) []float32 {
		width := len(data) / len(f.ids)
		return data[from*width : to*width]
	}
	p := &pass{logits: part(f.logits)}
	for _, data := range f.layers {
		p.layers = append(p.layers, part(data))
	}
	return p, nil
}
