package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"pesti/exec"
	"pesti/exec/plan"
	"pesti/gguf/dense"
)

// A Dump collects a plan's output values for some tokens: the logits, the residual stream after
// each block, and all others.
type Dump struct {
	IDs    []int32
	Logits *DumpedValue
	Layers []*DumpedValue
	Values []*DumpedValue // all values, the logits first

	plan *plan.Plan
}

// A DumpedValue is one value, with one or more rows for each token.
type DumpedValue struct {
	Name string
	File string   // its name in a folder
	dims []string // dims of a row as the plan has them; C is the positions of a sequence
	rows int
	data []float32
}

// An OutputError reports that a plan does not return a needed value.
type OutputError struct{ Value string }

func (e *OutputError) Error() string {
	return fmt.Sprintf("the plan does not return %s, expected the residual stream after every block", e.Value)
}

// An OtherFileError reports a folder with values of another dump.
type OtherFileError struct{ Dir, File string }

func (e *OtherFileError) Error() string {
	return fmt.Sprintf("%s: holds %s, which this dump does not write; remove it, or name another folder", e.Dir, e.File)
}

// NewDump returns an empty dump for a plan, or an OutputError. A plan that lower compiles with the output
// "blk.*.out" returns what it needs.
func NewDump(p *plan.Plan) (*Dump, error) {
	d := &Dump{Logits: &DumpedValue{Name: logitsName, File: LogitsFile}, plan: p}
	d.Values = append(d.Values, d.Logits)
	byName := map[string]*DumpedValue{}
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if b.Class == plan.IO && b.Format == "f32" && b.Name != logitsName && b.Name != plan.TopLogits {
			v := &DumpedValue{Name: b.Name, File: b.Name + ".npy", dims: strings.Split(b.Elems, "*")[1:]}
			byName[b.Name] = v
			d.Values = append(d.Values, v)
		}
	}
	blocks := 0
	for _, st := range p.Programs[0].Steps() {
		blocks = max(blocks, st.Layer+1)
	}
	for n := range blocks {
		v := byName[ResidualName(n)]
		if v == nil {
			return nil, &OutputError{ResidualName(n)}
		}
		v.File = LayerFile(n)
		d.Layers = append(d.Layers, v)
	}
	return d, nil
}

// CheckFolder returns an OtherFileError if a folder exists and has .npy files that the dump does
// not write, since a reader of the folder would treat them as values of the same tokens.
func (d *Dump) CheckFolder(dir string) error {
	names, err := NpyFiles(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		if name != TokensFile && !slices.ContainsFunc(d.Values, func(v *DumpedValue) bool { return v.File == name }) {
			return &OtherFileError{dir, name}
		}
	}
	return err
}

// Evaluate runs the tokens as one sequence from position 0 on, on an engine of the plan, and collects the
// values. progress may be nil.
func (d *Dump) Evaluate(ctx context.Context, e *exec.Engine, ids []int32, progress func(Progress)) error {
	d.IDs = ids
	target := &d.plan.Target
	step := int(min(target.Ubatch, target.Rows))
	for from, to := 0, 0; from < len(ids); from = to {
		if err := ctx.Err(); err != nil {
			return err
		}
		tell(progress, "dump", from, len(ids), "tokens")
		to = min(from+step, len(ids))
		if err := e.Forward(ctx, BatchOf(ids, from, to, from, to)); err != nil {
			return err
		}
		for _, v := range d.Values {
			rows, err := e.Value(v.Name)
			if err != nil {
				return err
			}
			v.add(rows, len(ids), int(target.Ctx))
		}
	}
	return nil
}

// A DumpFile is a file of a folder of values.
type DumpFile struct {
	Name  string
	Write func(io.Writer) error
}

// Files returns the files of the folder, which OpenFolder reads.
func (d *Dump) Files() []DumpFile {
	files := []DumpFile{{TokensFile, func(w io.Writer) error { return dense.New(d.IDs, len(d.IDs)).WriteNpy(w) }}}
	for _, v := range d.Values {
		files = append(files, DumpFile{v.File, func(w io.Writer) error { return dense.New(v.data, v.shape()...).WriteNpy(w) }})
	}
	return files
}

// positions is the dim whose extent is the context. A dump has only the used positions.
const positions = "C"

// add appends the rows of a pass. ctx is the plan's context, used the number of used positions.
func (v *DumpedValue) add(rows exec.Value, used, ctx int) {
	data := rows.Data
	v.rows += rows.Rows
	if len(v.dims) == 0 || v.dims[len(v.dims)-1] != positions {
		v.data = append(v.data, data...)
		return
	}
	for ; len(data) >= ctx; data = data[ctx:] {
		v.data = append(v.data, data[:used]...)
	}
}

// shape returns the number of rows, then the dims of a row.
func (v *DumpedValue) shape() []int {
	shape, rest := []int{v.rows}, v.width()
	for _, dim := range v.dims[:max(len(v.dims)-1, 0)] {
		n, err := strconv.Atoi(dim)
		if err != nil || n < 1 || rest%n != 0 {
			break // not a plain extent, so the rest is one dim
		}
		shape, rest = append(shape, n), rest/n
	}
	return append(shape, rest)
}

func (v *DumpedValue) width() int { return len(v.data) / v.rows }

// Last returns the row of the last position.
func (v *DumpedValue) Last() []float32 { return v.data[len(v.data)-v.width():] }

// A DumpSummary describes a dump at its last position.
type DumpSummary struct {
	Layers []LayerSummary // the residual stream after each block
	Top    []TokenLogit   // the most likely tokens, the most likely first
}

// A LayerSummary is one row of the residual stream.
type LayerSummary struct {
	Norm  float64   // Euclidean
	First []float32 // elements
}

// A TokenLogit is a token with its logit.
type TokenLogit struct {
	ID    int
	Logit float32
}

// Summary describes the dump at the last position, with up to n elements of each layer and n tokens.
func (d *Dump) Summary(n int) *DumpSummary {
	s := &DumpSummary{}
	for _, v := range d.Layers {
		row, sum := v.Last(), 0.0
		for _, x := range row {
			sum += float64(x) * float64(x)
		}
		s.Layers = append(s.Layers, LayerSummary{math.Sqrt(sum), row[:min(n, len(row))]})
	}
	row := d.Logits.Last()
	for _, id := range Ranked(row, n) {
		s.Top = append(s.Top, TokenLogit{id, row[id]})
	}
	return s
}

// Ranked returns the indices of the n largest elements in descending order, equal elements by
// ascending index.
func Ranked(row []float32, n int) []int {
	ids := make([]int, len(row))
	for i := range ids {
		ids[i] = i
	}
	slices.SortFunc(ids, func(i, j int) int { return cmp.Or(cmp.Compare(row[j], row[i]), cmp.Compare(i, j)) })
	return ids[:min(n, len(ids))]
}
