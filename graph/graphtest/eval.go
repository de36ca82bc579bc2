package graphtest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"pesti/gguf"
	"pesti/graph"
	"pesti/ops"
)

// FromFile returns a function that reads weights from a file.
func FromFile(f *gguf.File) func(*graph.Value) ([]float32, error) {
	return func(w *graph.Value) ([]float32, error) {
		t, ok := f.Tensor(w.Name)
		if !ok {
			return nil, fmt.Errorf("%s: has no tensor %q", f.Path, w.Name)
		}
		return f.Values(t, 0, t.Rows())
	}
}

// LastLogits interprets one step of one sequence's tokens and returns the logits of the last token.
func LastLogits(g *graph.Graph, weights func(*graph.Value) ([]float32, error), ids []int32) ([]float32, error) {
	step := Step{Tokens: ids, Seq: make([]int32, len(ids)), Rows: []int32{int32(len(ids) - 1)}}
	for p := range ids {
		step.Pos = append(step.Pos, int32(p))
	}
	values, err := ops.Eval(g, &ops.Env{Weights: weights, Inputs: step.Inputs()}, "logits")
	if err != nil {
		return nil, err
	}
	return values["logits"].F32, nil
}

// Eval interprets steps one after another on the same caches and returns the outputs of g for each
// step, by name. Caches are float16 if f16 is set.
func Eval(g *graph.Graph, weights func(*graph.Value) ([]float32, error), steps []Step, f16 bool) ([]map[string]*ops.Value, error) {
	var names []string
	for _, v := range g.Outputs {
		names = append(names, v.Name)
	}
	env := &ops.Env{Weights: weights, F16: f16}
	all := make([]map[string]*ops.Value, len(steps))
	for i := range steps {
		env.Inputs = steps[i].Inputs()
		var err error
		if all[i], err = ops.Eval(g, env, names...); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Perturbed returns weights with a relative error of about eps in each element. The change of a
// result that such weights cause is a measure for the effect of rounding there. It is needed for
// sums that cancel and for rows of one element, whose magnitude is no measure.
func Perturbed(weights func(*graph.Value) ([]float32, error), eps float64, seed uint64) func(*graph.Value) ([]float32, error) {
	return func(w *graph.Value) ([]float32, error) {
		x, err := weights(w)
		if err != nil {
			return nil, err
		}
		rng := rand.New(rand.NewPCG(seed, uint64(len(x))))
		y := make([]float32, len(x))
		for i := range x {
			y[i] = float32(float64(x[i]) * (1 + eps*rng.NormFloat64()))
		}
		return y, nil
	}
}

// Near returns nil if got and want are equal up to rounding: no element differs by more than tol
// times the largest finite element of its row, and elements that are not finite are equal. others
// are the same rows with perturbed weights; ten times their largest difference from the row is
// allowed in addition.
func Near(got, want []float32, rows int, tol float64, others ...[]float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d elements, expected %d", len(got), len(want))
	}
	if len(want) == 0 {
		return nil
	}
	width := len(want) / rows
	for m := range rows {
		row := want[m*width : (m+1)*width]
		allowed := tol * largest(row, nil)
		for _, o := range others {
			allowed = max(allowed, 10*largest(row, o[m*width:]))
		}
		for i, y := range row {
			x := got[m*width+i]
			if x == y || x != x && y != y {
				continue // equal infinities, or both NaN
			}
			if d := math.Abs(float64(x) - float64(y)); !(d <= allowed) {
				return fmt.Errorf("row %d, element %d is %g, expected %g: %.2g apart, expected at most %.2g", m, i, x, y, d, allowed)
			}
		}
	}
	return nil
}

// largest returns the largest finite element of row, or the largest difference from other.
func largest(row, other []float32) float64 {
	most := 0.0
	for i, x := range row {
		d := float64(x)
		if other != nil {
			d -= float64(other[i])
		}
		if d = math.Abs(d); d <= math.MaxFloat32 {
			most = max(most, d)
		}
	}
	return most
}
