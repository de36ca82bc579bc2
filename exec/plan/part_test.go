package plan_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

// matrix returns the first weight of a plan that has two dims.
func matrix(t *testing.T, p *plan.Plan) *plan.Weight {
	t.Helper()
	at := slices.IndexFunc(p.Weights, func(w plan.Weight) bool { return len(w.Dims) == 2 })
	if at < 0 {
		t.Fatal("the plan has no matrix")
	}
	return &p.Weights[at]
}

// TestParts checks that the text form states the part of a tensor that a weight is, and that the
// part must lie in the tensor.
func TestParts(t *testing.T) {
	for _, axis := range []int{0, 1} {
		p := plantest.Plan(1)
		w := matrix(t, p)
		if w.Tensor() != w.Name || !slices.Equal(w.TensorDims(), w.Dims) {
			t.Errorf("a whole tensor is %s%v", w.Tensor(), w.TensorDims())
		}
		whole := slices.Clone(w.Dims)
		whole[axis] *= 3
		w.Part = plan.Part{Of: "odd name", Dims: whole, Axis: axis, From: w.Dims[axis]}
		if err := plan.Verify(p); err != nil {
			t.Fatal(err)
		}
		if w.Tensor() != "odd name" || !slices.Equal(w.TensorDims(), whole) {
			t.Errorf("a part is of %s%v, expected %v", w.Tensor(), w.TensorDims(), whole)
		}
		text := plan.Print(p)
		if again, err := plan.Parse(text); err != nil || !reflect.DeepEqual(p, again) {
			t.Errorf("%v: differs when it is read again", err)
		}
		if want := []string{"rows", "columns"}[axis] + ` of @"odd name"[`; !strings.Contains(string(text), want) {
			t.Errorf("no %s in the text", want)
		}
		for _, c := range []struct {
			want string
			harm func(p *plan.Part)
		}{
			{"expected rows or columns of a tensor of 2 dims", func(p *plan.Part) { p.Axis = 2 }},
			{"expected rows or columns of a tensor of 2 dims", func(p *plan.Part) { p.Axis = -1 }},
			{"expected rows or columns of a tensor of 2 dims", func(p *plan.Part) { p.Dims = p.Dims[:1] }},
			{"expected a part of it", func(p *plan.Part) { p.From = -1 }},
			{"expected a part of it", func(p *plan.Part) { p.From = 2*p.From + 1 }},
			{"expected a part of it", func(p *plan.Part) { p.From = 1<<63 - 1 }},
			{"expected a part of it", func(p *plan.Part) { p.Dims = slices.Clone(p.Dims); p.Dims[p.Axis] = -1 << 63 }},
			{"expected a part of it", func(p *plan.Part) { p.Dims = slices.Clone(p.Dims); p.Dims[1-p.Axis]++ }},
		} {
			before := w.Part
			c.harm(&w.Part)
			if err := plan.Verify(p); err == nil || !strings.Contains(err.Error(), "weight "+w.Name+": ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: %v, expected %s", &w.Part, err, c.want)
			}
			w.Part = before
		}
	}
}
