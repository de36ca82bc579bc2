package main

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

	"github.com/spf13/cobra"

	"pesti/conformance/compare"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/gguf/dense"
)

func (a *app) dump() *cobra.Command {
	var dir, model string
	var prompt *promptFlags
	var flags *compileFlags
	cmd := a.verb("dump MODEL|PLAN -p TEXT -o DIR", "Write the values inside each layer for a prompt",
		`  pesti dump model.gguf -p "The quick brown fox" -o values`,
		arity{1, 1, "MODEL or PLAN"}, func(cmd *cobra.Command, args []string) error {
			if dir == "" {
				return usagef("expected -o DIR, the folder to write")
			}
			s, err := a.open(cmd.Context(), args[0], model, flags)
			if err != nil {
				return err
			}
			defer s.release()
			ids, err := prompt.tokens(s)
			if err != nil {
				return err
			}
			return a.dumpValues(cmd.Context(), s, ids, dir)
		})
	cmd.Long = cmd.Short + `.

DIR gets tokens.npy, logits.npy, the residual stream after each block as layer_00.npy and so on, and
what --values asks for. Files of an earlier dump are replaced; a DIR with other .npy files is refused,
since they would pass for values of the same tokens.`
	prompt = addPromptFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&dir, "output", "o", "", "`DIR` to write .npy files to")
	f.StringVar(&model, "model", "", "`MODEL` of a PLAN, where it is not where the plan says")
	flags = addCompileFlags(cmd, "exact")
	flags.addDevice(cmd)
	flags.addValues(cmd, "`PATTERN` of values to write besides, such as 'blk.3.*'")
	return cmd
}

// dumpValues evaluates ids and writes to dir what the plan shows.
func (a *app) dumpValues(ctx context.Context, s *source, ids []int32, dir string) error {
	s.options.Outputs = append(s.options.Outputs, "blk.*.out")
	s.options.Rows = int64(len(ids)) // all of a step
	if _, err := s.compile(); err != nil {
		return err
	}
	if err := s.checkLength(len(ids)); err != nil {
		return err
	}
	values, layers, err := shownValues(s)
	if err != nil {
		return err
	}
	if err := checkFolder(dir, values); err != nil {
		return err
	}
	engine, err := s.start(ctx)
	if err != nil {
		return err
	}
	defer engine.Close()
	a.loaded()
	if err := evaluate(ctx, a, engine, ids, values); err != nil {
		return about(s.name, err)
	}
	files := []namedFile{{compare.TokensFile, dense.New(ids, len(ids)).WriteNpy}}
	for _, v := range values {
		files = append(files, namedFile{v.file, func(w io.Writer) error { return dense.New(v.data, v.shape()...).WriteNpy(w) }})
	}
	if err := a.writeFolder(ctx, dir, files); err != nil {
		return err
	}
	return printDump(a.stdout, layers, values[0])
}

// checkFolder refuses to write values to a folder where others are, if it is there: they would pass
// for values of the same tokens, and who reads the folder would take layers of another model.
func checkFolder(dir string, values []*shownValue) error {
	names, err := compare.NpyFiles(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		if name != compare.TokensFile && !slices.ContainsFunc(values, func(v *shownValue) bool { return v.file == name }) {
			return usagef("%s: holds %s, which this dump does not write; remove it, or name another folder", dir, name)
		}
	}
	return err
}

// A shownValue is one that the plan hands out, with the rows of all tokens.
type shownValue struct {
	name, file string
	dims       []string // of a row, in the plan's words; C is the positions of a sequence
	rows       int
	data       []float32
}

// positions is the dim whose extent is the context, of which ids use the first part.
const positions = "C"

// shape returns the number of rows, then the dims of a row.
func (v *shownValue) shape() []int {
	shape, rest := []int{v.rows}, v.width()
	for _, dim := range v.dims[:max(len(v.dims)-1, 0)] {
		n, err := strconv.Atoi(dim)
		if err != nil || n < 1 || rest%n != 0 {
			break // no plain extent: the rest stays one dim
		}
		shape, rest = append(shape, n), rest/n
	}
	return append(shape, rest)
}

// add appends rows of a step of the plan for ctx positions, of which used are in use.
func (v *shownValue) add(rows exec.Value, used, ctx int) {
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

func (v *shownValue) width() int { return len(v.data) / v.rows }

// last returns the row of the last position.
func (v *shownValue) last() []float32 { return v.data[len(v.data)-v.width():] }

// shownValues returns the values that the plan of s shows, the logits first, and those of them
// that are the residual streams, by layer.
func shownValues(s *source) (values, layers []*shownValue, err error) {
	logits := &shownValue{name: "logits", file: compare.LogitsFile}
	values = append(values, logits)
	byName := map[string]*shownValue{}
	for i := range s.plan.Buffers {
		b := &s.plan.Buffers[i]
		if b.Class == plan.IO && b.Format == "f32" && b.Name != logits.name && b.Name != plan.TopLogits {
			v := &shownValue{name: b.Name, file: b.Name + ".npy", dims: strings.Split(b.Elems, "*")[1:]}
			byName[b.Name] = v
			values = append(values, v)
		}
	}
	blocks := 0
	for i := range s.plan.Programs[0].Waves {
		for j := range s.plan.Programs[0].Waves[i].Steps {
			blocks = max(blocks, s.plan.Programs[0].Waves[i].Steps[j].Layer+1)
		}
	}
	for n := range blocks {
		v := byName[compare.ResidualName(n)]
		if v == nil {
			return nil, nil, fmt.Errorf("%s: the plan does not show %s, expected every block's; compile it with --values 'blk.*.out', or dump the model", s.name, compare.ResidualName(n))
		}
		v.file = compare.LayerFile(n)
		layers = append(layers, v)
	}
	return values, layers, nil
}

// evaluate runs ids as one sequence, in steps with the logits of every row, and fills values.
func evaluate(ctx context.Context, a *app, engine *exec.Engine, ids []int32, values []*shownValue) error {
	target := &engine.Plan().Target
	step := int(min(target.Ubatch, target.Rows))
	for from, to := 0, 0; from < len(ids); from = to {
		if err := ctx.Err(); err != nil {
			return err
		}
		a.progress("%d of %d tokens", from, len(ids))
		to = min(from+step, len(ids))
		if err := engine.Step(compare.BatchOf(ids, from, to, from, to)); err != nil {
			return err
		}
		for _, v := range values {
			t, err := engine.Value(v.name)
			if err != nil {
				return err
			}
			v.add(t, len(ids), int(target.Ctx))
		}
	}
	a.progress("")
	return nil
}

// printDump prints the last position: norm and first values of the residual stream after each
// block, and the most likely tokens.
func printDump(w io.Writer, layers []*shownValue, logits *shownValue) error {
	var b strings.Builder
	for n, v := range layers {
		row, sum := v.last(), 0.0
		for _, x := range row {
			sum += float64(x) * float64(x)
		}
		fmt.Fprintf(&b, "layer %02d norm %.4f first8", n, math.Sqrt(sum))
		for _, x := range row[:min(8, len(row))] {
			fmt.Fprintf(&b, " %.4f", x)
		}
		b.WriteByte('\n')
	}
	row := logits.last()
	ids := make([]int, len(row))
	for i := range ids {
		ids[i] = i
	}
	slices.SortFunc(ids, func(i, j int) int { return cmp.Or(cmp.Compare(row[j], row[i]), cmp.Compare(i, j)) })
	b.WriteString("top8")
	for _, id := range ids[:min(8, len(ids))] {
		fmt.Fprintf(&b, " %d:%.4f", id, row[id])
	}
	fmt.Fprintf(&b, "\nargmax %d\n", ids[0])
	_, err := io.WriteString(w, b.String())
	return err
}
