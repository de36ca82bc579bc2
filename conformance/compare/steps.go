package compare

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"pesti/conformance/gorgoniaref"
	"pesti/conformance/metrics"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/gguf/numfmt"
	"pesti/graph"
	"pesti/ops"
)

// A CheckedStep is a value that a plan stores, compared with what gorgonia computes from the plan's own
// values before it. So the difference is that of one step, and not of all steps before.
type CheckedStep struct {
	Value    string `json:"value"`
	Program  string `json:"program"`
	Format   string `json:"format"`
	D        Number `json:"d"` // beyond what the format rounds; against gorgonia in float64 where Floor is set, else float32
	Position int    `json:"position"`
	Dim      int    `json:"dim"`
	Allowed  Number `json:"allowed"`
	Floor    Number `json:"float32_d,omitempty"` // d of gorgonia in float32, where it was computed
}

// stepValues are the values that a program's steps store, by name.
type stepValues map[string]*stepValue

// A stepValue is one value, with a row for each token.
type stepValue struct {
	format string
	data   []float32
	reads  []string // weights of the products that read a rounded value
}

// writtenSuffix follows the name of a cache in the name of the rows that were written to it.
const writtenSuffix = ".written"

// add appends the rows of a value that a step has stored.
func (s stepValues) add(p *plan.Plan, name string, v exec.Observation) {
	x := s[name]
	if x == nil {
		x = &stepValue{format: p.Buffer(v.Program, v.Buffer).Format}
		if x.format != "f32" {
			x.reads = weightsOn(v.Program, v.Step, v.Buffer)
		}
		s[name] = x
	}
	x.data = append(x.data, v.Data...)
}

// addCaches appends what the last pass of an engine wrote to the plan's caches.
func (s stepValues) addCaches(p *plan.Plan, e *exec.Engine) error {
	for i := range p.Buffers {
		b := &p.Buffers[i]
		if b.Class != plan.State {
			continue
		}
		rows, err := e.Written(b.Name)
		if err != nil {
			return err
		}
		x := s[b.Name+writtenSuffix]
		if x == nil {
			x = &stepValue{format: b.Format}
			s[b.Name+writtenSuffix] = x
		}
		x.data = append(x.data, rows.Data...)
	}
	return nil
}

// weightsOn returns the weights of the products that read a buffer as it is after a step.
func weightsOn(g *plan.Program, after *plan.Step, buffer int) (weights []string) {
	for _, st := range g.Steps() {
		if st.ID <= after.ID {
			continue
		}
		sig, _ := plan.LookupKernel(st.Kernel) // as Verify has seen
		reads, writes := false, false
		for _, a := range st.Args {
			if a.Weight == "" && a.Buffer == buffer {
				dir := sig.Operand(a.Role).Dir
				reads, writes = reads || dir.Reads(), writes || dir.Writes()
			}
		}
		for _, a := range st.Args {
			if reads && a.Kernel != "" {
				weights = append(weights, a.Weight)
			}
		}
		if writes {
			break
		}
	}
	return weights
}

// digest is equal for equal values.
func (s stepValues) digest() [sha256.Size]byte {
	h := sha256.New()
	var text []byte
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(h, "%q %s %q\n", name, s[name].format, s[name].reads)
		for part := range slices.Chunk(s[name].data, 1024) {
			text = text[:0]
			for _, x := range part {
				text = binary.LittleEndian.AppendUint32(text, math.Float32bits(x))
			}
			h.Write(text)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// stepBytes returns how large the stepValues are that a program stores for a number of tokens.
func stepBytes(p *plan.Plan, g *plan.Program, tokens int) (bytes int64, err error) {
	for _, st := range g.Steps() {
		scope := p.Scope(g).Of(st)
		scope.T, scope.R = int64(tokens), int64(tokens)
		sig, _ := plan.LookupKernel(st.Kernel) // as Verify has seen
		for _, a := range st.Args {
			o := sig.Operand(a.Role)
			var n int64
			switch {
			case o.Width != "" && o.Dir.Writes(): // the rows of a cache for the tokens
				n, err = scope.Eval("M*" + o.Width)
			case o.Dir == plan.Out:
				n, err = sig.Elems(scope, a.Role)
			}
			if err != nil {
				return 0, err
			}
			bytes += 4 * n
		}
	}
	return bytes, nil
}

// A forcing is the reference for the steps of one program.
type forcing struct {
	ref   *reference
	ids   []int32 // the first of the reference's, which the program has computed
	ours  stepValues
	graph *graph.Graph
	names []string              // of the values to compare, in the order of the graph
	bases map[string]*stepValue // by the name of a sum, its first operand
}

// newForcing returns the reference's graph with a node for each value that the plan rounds: the rounded
// activations that products read, and the rows of caches. Weights that products take in bf16 are rounded.
func newForcing(r *reference, ids []int32, ours stepValues) (*forcing, error) {
	f := &forcing{ref: r, ids: ids, ours: ours, graph: r.graph.Clone(), bases: map[string]*stepValue{}}
	g := f.graph
	same := graph.Attrs{"factor": 1.0}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		v := ours[name]
		var of *graph.Value
		var readers []*graph.Node
		for _, n := range g.Nodes {
			if n.Op == ops.Matmul && slices.Contains(v.reads, n.Operand("w").Name) && (of == nil || of == n.Operand("x")) {
				of, readers = n.Operand("x"), append(readers, n)
			}
			if n.Op == ops.KVWrite && n.Operand("cache").Name+writtenSuffix == name {
				of, readers = n.Operand("x"), []*graph.Node{n}
			}
		}
		if of == nil {
			continue
		}
		out, err := g.Insert(readers[0], ops.Scale, []*graph.Value{of}, same, name)
		if err != nil {
			return nil, err
		}
		g.ReplaceUsesIn(readers, of, out[0])
		for _, n := range readers {
			if n.Op == ops.Matmul && v.format == "bf16" {
				w := n.Operand("w")
				if w, err = g.Weight(w.Name+bf16Suffix, w.Type); err != nil {
					return nil, err
				}
				n.SetOperand("w", w)
			}
		}
	}
	g.Renumber()
	for _, n := range g.Nodes {
		v := n.Out[0]
		if ours[v.Name] == nil || v.Type.DType != graph.F32 || len(v.Type.Shape) != 2 {
			continue
		}
		f.names = append(f.names, v.Name)
		if n.Op == ops.Add {
			f.bases[v.Name] = ours[n.Operand("a").Name]
		}
	}
	return f, nil
}

// bf16Suffix follows the name of a weight that is rounded to bf16.
const bf16Suffix = ".bf16"

// weights returns the reference's weights, rounded where the name says so.
func (f *forcing) weights() gorgoniaref.Weights {
	weights := f.ref.weights
	return func(w *graph.Value, first, end int) ([]float32, error) {
		name, rounded := strings.CutSuffix(w.Name, bf16Suffix)
		if !rounded {
			return weights(w, first, end)
		}
		x, err := weights(&graph.Value{Name: name, Type: w.Type}, first, end)
		for i := range x {
			x[i] = numfmt.BF16ToF32(numfmt.F32ToBF16FTZ(x[i]))
		}
		return x, err
	}
}

// A forcer is gorgoniaref.Force or gorgoniaref.ForceFloat32.
type forcer func(context.Context, *graph.Graph, gorgoniaref.Weights, []int32, []string, func(gorgoniaref.Value) ([]float32, error)) error

// run calls visit with each value that gorgonia computes from the plan's values before it.
func (f *forcing) run(ctx context.Context, run forcer, visit func(v gorgoniaref.Value, ours *stepValue) error) error {
	return run(ctx, f.graph, f.weights(), f.ids, f.names, func(v gorgoniaref.Value) ([]float32, error) {
		ours := f.ours[v.Name]
		if len(ours.data) != len(v.Data) {
			return nil, fmt.Errorf("the plan does not compute the %d elements of %s", len(v.Data), v.Name)
		}
		return ours.data, visit(v, ours)
	})
}

// addSteps compares the values that the steps of a program have stored. gorgonia computes in float32,
// which takes half the time of float64. Where a value exceeds its bound, float64 decides, up to the first
// value that exceeds it there too: later ones are computed in float32 alone.
func (r *CheckReport) addSteps(ctx context.Context, ref *reference, ids []int32, program string, ours stepValues, progress func(Progress)) error {
	f, err := newForcing(ref, ids, ours)
	if err != nil {
		return err
	}
	var steps []CheckedStep
	exceed := map[string][]float32{}
	err = f.run(ctx, gorgoniaref.ForceFloat32, func(v gorgoniaref.Value, ours *stepValue) error {
		tell(progress, "gorgonia, steps of "+program, len(steps), len(f.names), "values")
		s := CheckedStep{Value: v.Name, Program: program, Format: ours.format, Allowed: r.Bound.Step}
		d := deviation(ours.data, v.Data, v.Cols, ours.format, f.bases[v.Name])
		if s.D, s.Position, s.Dim = Number(d.D), d.Row, d.Dim; s.D > s.Allowed {
			exceed[v.Name] = narrowed(v.Data)
		}
		steps = append(steps, s)
		return nil
	})
	if err == nil && len(exceed) > 0 {
		err = f.decide(ctx, steps, exceed)
	}
	r.Steps = append(r.Steps, steps...)
	return err
}

// narrowed returns the float32 of a computation in float32.
func narrowed(data []float64) []float32 {
	x := make([]float32, len(data))
	for i, v := range data {
		x[i] = float32(v)
	}
	return x
}

// decide computes in float64 the values up to the last one that exceeds its bound, or the first one that
// still does. exceed has them in float32: what that loses is added to their bounds.
func (f *forcing) decide(ctx context.Context, steps []CheckedStep, exceed map[string][]float32) error {
	i := 0
	err := f.run(ctx, gorgoniaref.Force, func(v gorgoniaref.Value, ours *stepValue) error {
		s := &steps[i]
		i++
		narrow, ok := exceed[v.Name]
		if !ok {
			return nil
		}
		delete(exceed, v.Name)
		d := deviation(ours.data, v.Data, v.Cols, ours.format, f.bases[v.Name])
		s.D, s.Position, s.Dim = Number(d.D), d.Row, d.Dim
		floor := deviation(narrow, v.Data, v.Cols, ours.format, f.bases[v.Name]).D
		s.Floor, s.Allowed = Number(floor), Number(metrics.Allowed(floor))
		if len(exceed) == 0 || s.D > s.Allowed {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// checkSteps returns an error for the first value, in the order of the graph, whose step differs.
func (r *CheckReport) checkSteps() error {
	i := slices.IndexFunc(r.Steps, CheckedStep.exceeds)
	if i < 0 {
		return nil
	}
	s := &r.Steps[i]
	return fmt.Errorf("%s: d of %s from what gorgonia computes of the plan's values before it is %.1e at position %d, dim %d, program %s, expected at most %.2g",
		r.Name, s.Value, s.D, s.Position, s.Dim, s.Program, s.Allowed)
}

func (s CheckedStep) exceeds() bool { return !(s.D <= s.Allowed) }

// WorstStep returns the first value whose step differs by more than is allowed, which is the one that Check
// names. If there is none, it returns the value that differs most, relative to what is allowed, or nil where
// steps were not compared.
func (r *CheckReport) WorstStep() *CheckedStep {
	var worst *CheckedStep
	for i := range r.Steps {
		s := &r.Steps[i]
		if s.exceeds() {
			return s
		}
		if worst == nil || s.D*worst.Allowed > worst.D*s.Allowed {
			worst = s
		}
	}
	return worst
}
