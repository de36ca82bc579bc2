package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pesti/exec"
	"pesti/exec/plan"
	"pesti/gguf/dense"
)

// A side is one of the two things that compare holds against each other: a plan that runs, or a
// folder of values.
type side interface {
	report() *sideReport
	vocab() int // logits of a row

	// tokens returns the ids that the side is about: its own, or those of the text. They are nil
	// where it has none of its own and the text is nil.
	tokens(text []byte) ([]int32, error)

	// eval returns what the side computes for ids[from:to], after those before.
	eval(ids []int32, from, to int) (*pass, error)

	close()
}

// A sideReport says what a side is, as --json prints it.
type sideReport struct {
	letter    string   // A or B
	Name      string   `json:"name"`                // of the MODEL, PLAN or FOLDER, as given
	But       []string `json:"but,omitempty"`       // options of compile that B has instead
	Precision string   `json:"precision,omitempty"` // of a plan, as what follows
	KV        string   `json:"kv,omitempty"`
	Passes    string   `json:"passes,omitempty"` // those left out
}

// String tells the side from the other, which may be of the same name.
func (r *sideReport) String() string {
	name := r.letter + " " + r.Name
	if len(r.But) > 0 {
		name += " (" + strings.Join(r.But, ", ") + ")"
	}
	return name
}

// line is the side with what its plan computes, for people.
func (r *sideReport) line() string {
	text := r.String()
	if r.Precision != "" {
		text += ": " + r.Precision + ", KV cache in " + r.KV
	}
	if r.Passes != "" {
		text += ", passes " + r.Passes
	}
	return oneLine(text) + "\n"
}

// A pass is what a side computes for some tokens: in every slice a row for each.
type pass struct {
	layers [][]float32 // the residual stream after each block
	logits []float32
}

// A runner is a plan as a side.
type runner struct {
	*source
	is     *sideReport // nil where it is no side
	engine *exec.Engine
	see    func(exec.Observation) // what becomes of the values
}

// newRunner starts the plan of a source, which is compiled.
func newRunner(ctx context.Context, s *source) (*runner, error) {
	r := &runner{source: s}
	s.observe = func(v exec.Observation) { r.see(v) }
	var err error
	r.engine, err = s.start(ctx)
	return r, err
}

func (r *runner) report() *sideReport { return r.is }

func (r *runner) close() {
	r.engine.Close()
	r.release()
}

func (r *runner) vocab() int {
	_, width, _ := r.plan.Logits() // the engine has seen it
	return int(width)
}

func (r *runner) tokens(text []byte) ([]int32, error) {
	if text == nil {
		return nil, nil
	}
	return promptIDs(r.source, text)
}

// eval runs one step, or as few as the plan allows. Where the plan hands out the logits of fewer
// tokens at a time, it runs a step again for the next ones, which computes the rest as before.
func (r *runner) eval(ids []int32, from, to int) (*pass, error) {
	var p pass
	for to-from > int(r.plan.Target.Ubatch) {
		end := from + int(r.plan.Target.Ubatch)
		if err := r.evalStep(ids, from, end, &p); err != nil {
			return nil, err
		}
		from = end
	}
	return &p, r.evalStep(ids, from, to, &p)
}

func (r *runner) evalStep(ids []int32, from, to int, p *pass) error {
	for first, last := from, 0; first < to; first = last {
		last = min(first+r.rows(from, to), to)
		seen := map[int]bool{}
		r.see = func(v exec.Observation) {
			n := v.Step.Layer
			if n < 0 || seen[n] || valueOf(v.Name) != fmt.Sprintf(residual, n) {
				return
			}
			seen[n] = true // what comes after is a selection of its rows
			if v.Rows == to-from && first > from {
				return // all of it came with the first rows
			}
			for len(p.layers) <= n {
				p.layers = append(p.layers, nil)
			}
			p.layers[n] = append(p.layers[n], v.Data...)
		}
		if err := r.step(ids, from, to, first, last); err != nil {
			return err
		}
		for row := range last - first {
			p.logits = append(p.logits, r.engine.Logits(row)...)
		}
	}
	return nil
}

// rows returns how many rows of logits a step of the tokens from ≤ t < to can hand out.
func (r *runner) rows(from, to int) int {
	return int(r.plan.ProgramFor(plan.Load{T: int64(to - from), Seqs: 1, Pos: int64(from)}).MaxR)
}

// step runs ids[from:to], of which the logits of ids[first:last] are wanted.
func (r *runner) step(ids []int32, from, to, first, last int) error {
	if err := r.engine.Step(batchOf(ids, from, to, first, last)); err != nil {
		return about(r.name, err)
	}
	return nil
}

// batchOf returns the step of ids[from:to], of one sequence ids from position 0 on, of which the
// logits of ids[first:last] are wanted.
func batchOf(ids []int32, from, to, first, last int) *exec.Batch {
	b := &exec.Batch{Tokens: ids[from:to], Seq: make([]int32, to-from)}
	for t := from; t < to; t++ {
		b.Pos = append(b.Pos, int32(t))
	}
	for t := first; t < last; t++ {
		b.Rows = append(b.Rows, int32(t-from))
	}
	return b
}

// valueOf returns the name of a value without the mark of pass sink_rows for one of which only the
// rows are computed whose logits are wanted.
func valueOf(name string) string { return strings.Replace(name, ".rows", "", 1) }

// A folder is a side that dump, or the oracle, has written. Its rows are read when they are compared.
type folder struct {
	is     *sideReport
	path   string
	ids    []int32
	layers []*dense.Npy
	logits *dense.Npy
	files  []*dense.Npy // all that are open
}

// openFolder opens tokens.npy, logits.npy and the layer_NN.npy, all or none of which are there. All
// have a row for each token.
func openFolder(is *sideReport) (*folder, error) {
	f := &folder{is: is, path: is.Name}
	err := f.open()
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *folder) open() error {
	tokens, err := f.file(tokensFile)
	if err != nil {
		return err
	}
	ids, err := dense.Ints(tokens, 0, tokens.Len())
	if err != nil {
		return err
	}
	for i, id := range ids {
		if id < 0 || id > math.MaxInt32 {
			return fmt.Errorf("%s: element %d is %d, expected a token id", tokens.Path, i, id)
		}
		f.ids = append(f.ids, int32(id))
	}
	if f.logits, err = f.rows("logits.npy"); err != nil {
		return err
	}
	names, err := npyFiles(f.path)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, layerPrefix) })
	for n := range names {
		name := fmt.Sprintf(layerFile, n)
		if !slices.Contains(names, name) {
			return fmt.Errorf("%s: is not there, expected it beside %s; dump all layers, or remove those", filepath.Join(f.path, name), names[len(names)-1])
		}
		layer, err := f.rows(name)
		if err != nil {
			return err
		}
		f.layers = append(f.layers, layer)
	}
	return nil
}

// npyFiles returns the names of the files in dir that end in .npy, sorted.
func npyFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, cannot("read", dir, err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".npy") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// file opens a file of the folder.
func (f *folder) file(name string) (*dense.Npy, error) {
	a, err := dense.OpenNpy(filepath.Join(f.path, name))
	if err == nil {
		f.files = append(f.files, a)
	}
	return a, err
}

// rows opens a file of a row for each token.
func (f *folder) rows(name string) (*dense.Npy, error) {
	a, err := f.file(name)
	if err == nil && (len(a.Shape) != 2 || a.Shape[0] != len(f.ids)) {
		err = fmt.Errorf("%s: shape %v, expected a row for each of the %d tokens of tokens.npy", a.Path, a.Shape, len(f.ids))
	}
	return a, err
}

func (f *folder) report() *sideReport            { return f.is }
func (f *folder) vocab() int                     { return f.logits.Shape[1] }
func (f *folder) tokens([]byte) ([]int32, error) { return f.ids, nil }

func (f *folder) close() {
	for _, a := range f.files {
		a.Close()
	}
}

func (f *folder) eval(ids []int32, from, to int) (*pass, error) {
	part := func(a *dense.Npy) ([]float32, error) {
		return dense.Floats[float32](a, from*a.Shape[1], (to-from)*a.Shape[1])
	}
	p := &pass{}
	var err error
	if p.logits, err = part(f.logits); err != nil {
		return nil, err
	}
	for _, a := range f.layers {
		layer, err := part(a)
		if err != nil {
			return nil, err
		}
		p.layers = append(p.layers, layer)
	}
	return p, nil
}
