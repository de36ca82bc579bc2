package plan_test

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

// TestDiffSeesEveryField changes one field of a copy of a plan at a time. The diff reports it if
// and only if the text form changes. A plan does not differ from itself.
func TestDiffSeesEveryField(t *testing.T) {
	for name, build := range map[string]func() *plan.Plan{"small": func() *plan.Plan { return plantest.Plan(1) }, "awkward": awkward} {
		a, b := build(), build()
		if name == "small" { // one of its two programs is enough
			a.Programs, b.Programs = a.Programs[:1], b.Programs[:1]
		}
		if list := plan.Diff(a, b); len(list) > 0 {
			t.Fatalf("%s: differs from itself: %v", name, &list[0])
		}
		fields, text := 0, plan.Print(a)
		eachField(reflect.ValueOf(b).Elem(), "plan", func(path string, v reflect.Value) {
			fields++
			old := reflect.ValueOf(v.Interface())
			change(v)
			list := plan.Diff(a, b)
			if found, want := len(list) > 0, !bytes.Equal(plan.Print(b), text); found != want {
				t.Errorf("%s: %s: %v → %v is a difference: %v, want %v, as of the texts", name, path, old, v, found, want)
			} else if found && list[0].Section == "order" {
				t.Errorf("%s: %s: %v → %v is taken for another order", name, path, old, v)
			}
			v.Set(old)
		})
		if fields < 60 {
			t.Errorf("%s: changed only %d fields", name, fields)
		}
	}
}

// eachField calls f for everything in v that is neither a struct nor a list.
func eachField(v reflect.Value, path string, f func(string, reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			eachField(v.Field(i), path+"."+v.Type().Field(i).Name, f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachField(v.Index(i), fmt.Sprintf("%s[%d]", path, i), f)
		}
	default:
		f(path, v)
	}
}

func change(v reflect.Value) {
	switch {
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.CanInt():
		v.SetInt(v.Int() ^ 1)
	default: // a parameter
		v.Set(reflect.ValueOf(fmt.Sprintf("%v changed", v.Interface())))
	}
}

// Another order of a list whose order has a meaning is a difference, too.
func TestDiffSeesOrder(t *testing.T) {
	for name, edit := range map[string]func(p *plan.Plan){
		"weights":  func(p *plan.Plan) { slices.Reverse(p.Weights) },
		"buffers":  func(p *plan.Plan) { slices.Reverse(p.Buffers) },
		"programs": func(p *plan.Plan) { slices.Reverse(p.Programs) },
		"waves":    func(p *plan.Plan) { slices.Reverse(p.Programs[0].Waves) },
		"operands": func(p *plan.Plan) { slices.Reverse(p.Programs[0].Waves[0].Steps[0].Args) },
	} {
		a, b := plantest.Plan(1), plantest.Plan(1)
		edit(b)
		if bytes.Equal(plan.Print(a), plan.Print(b)) {
			continue // there is only one
		}
		if len(plan.Diff(a, b)) == 0 {
			t.Errorf("%s in another order: no difference", name)
		}
	}
}

// TestDiffWords compares the diff's text with a golden file.
func TestDiffWords(t *testing.T) {
	var b strings.Builder
	for _, c := range []struct {
		name string
		a, b func() *plan.Plan
	}{
		{"one layer more", func() *plan.Plan { return plantest.Plan(1) }, func() *plan.Plan { return plantest.Plan(3) }},
		{"values to dump", func() *plan.Plan { return plantest.Plan(3) }, func() *plan.Plan { return plantest.DumpingPlan(3) }},
		{"a kernel in one layer", func() *plan.Plan { return plantest.Plan(3) }, func() *plan.Plan { return edited(1) }},
		{"a kernel in two layers", func() *plan.Plan { return plantest.Plan(3) }, func() *plan.Plan { return edited(0, 2) }},
		{"no programs", func() *plan.Plan { return plantest.Plan(1) }, func() *plan.Plan {
			p := plantest.Plan(1)
			p.Programs = nil
			return p
		}},
	} {
		fmt.Fprintf(&b, "# %s\n", c.name)
		list := plan.Diff(c.a(), c.b())
		placement := 0
		for i := range list {
			if d := &list[i]; d.Placement {
				placement++
			} else {
				fmt.Fprintf(&b, "%s | %s %v | %s\n", d.Section, d.Place, d.Layers, d)
			}
		}
		fmt.Fprintf(&b, "%d of placement\n", placement)
	}
	const path = "testdata/diff.golden"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the words differ from %s; if on purpose, run the test with -update. Got:\n%s", path, &b)
	}
}

// edited returns a plan whose matmuls have another kernel in some layers.
func edited(layers ...int) *plan.Plan {
	p := plantest.Plan(3)
	for i := range p.Programs {
		for j := range p.Programs[i].Waves {
			for k := range p.Programs[i].Waves[j].Steps {
				st := &p.Programs[i].Waves[j].Steps[k]
				for l := range st.Args {
					if a := &st.Args[l]; a.Kernel != "" && slices.Contains(layers, st.Layer) {
						a.Kernel += ".other"
					}
				}
			}
		}
	}
	return p
}

func TestWithoutPlacement(t *testing.T) {
	a, b := plan.Difference{What: "a", Layers: []int{1, 2}}, plan.Difference{What: "b"}
	moved := func(layers ...int) plan.Difference {
		return plan.Difference{What: "offset", Layers: layers, Placement: true}
	}
	for _, c := range []struct {
		list, want []plan.Difference
		placement  int
	}{
		{nil, nil, 0},
		{[]plan.Difference{a, b}, []plan.Difference{a, b}, 0},
		{[]plan.Difference{moved()}, nil, 1},
		{[]plan.Difference{moved(0), a, moved(3, 4, 9), b, moved()}, []plan.Difference{a, b}, 5},
	} {
		if rest, placement := plan.WithoutPlacement(c.list); !reflect.DeepEqual(rest, c.want) || placement != c.placement {
			t.Errorf("%+v: %+v and %d of placement, want %+v and %d", c.list, rest, placement, c.want, c.placement)
		}
	}
}
