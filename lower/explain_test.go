package lower

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pesti/conformance/tiny"
	"pesti/exec/plan"
	"pesti/graph/pass"
)

// TestExplain checks the explanation of a result that is written by hand.
func TestExplain(t *testing.T) {
	r := &Result{
		Plan:   &plan.Plan{Passes: "-fuse_qkv,-cse"},
		Passes: []pass.Pass{{Name: "fold"}, {Name: "cse", Required: true}, {Name: "fuse_qkv"}, {Name: "fold"}, {Name: "dce"}},
		Notes: []Note{
			{Pass: "fold", Place: "blk.1.a", Applied: true},
			{Pass: "dce", Place: "blk.0.a", Why: "blk.0.b is an output"},
			{Pass: "fold", Place: "out", Why: "two uses"},
			{Pass: "fold", Place: "blk.0.a", Applied: true}, // of the second run
			{Pass: "fold", Place: "blk.2.a", Why: "two uses"},
			{Pass: "none", Place: "out"}, // of a pass of another program
		},
		Fallbacks: []Fallback{
			{"decode", "blk.0.s", "ref.rope", "rope", "none fits blk.0.x"}, {"prefill", "blk.0.s", "ref.rope", "rope", "none fits blk.0.x"},
			{"decode", "blk.3.s", "ref.rope", "rope", "none fits blk.3.x"}, {"decode", "out", "ref.add", "add", "none"},
		},
	}
	want := []PassNotes{
		{"fold", false, []MergedNote{
			{Elem: Note{Pass: "fold", Place: "blk.N.a", Applied: true}, Layers: []int{0, 1}},
			{Elem: Note{Pass: "fold", Place: "out", Why: "two uses"}},
			{Elem: Note{Pass: "fold", Place: "blk.2.a", Why: "two uses"}, Layers: []int{2}},
		}},
		{"cse", false, nil}, // required, so that it cannot be off
		{"fuse_qkv", true, nil},
		{"dce", false, []MergedNote{{Elem: Note{Pass: "dce", Place: "blk.0.a", Why: "blk.0.b is an output"}, Layers: []int{0}}}},
	}
	if got := r.Explain(); !reflect.DeepEqual(got, want) {
		t.Errorf("found %+v, want %+v", got, want)
	}
	note := func(place, why string) Note { return Note{Pass: "fallback", Place: place, Why: why} }
	fallbacks := []MergedNote{
		{Elem: note("blk.N.s", "program decode, kernel ref.rope for op rope: none fits blk.N.x"), Layers: []int{0, 3}},
		{Elem: note("blk.0.s", "program prefill, kernel ref.rope for op rope: none fits blk.0.x"), Layers: []int{0}},
		{Elem: note("out", "program decode, kernel ref.add for op add: none")},
	}
	if got := r.ExplainFallbacks(); !reflect.DeepEqual(got, fallbacks) {
		t.Errorf("found %+v, want %+v", got, fallbacks)
	}
}

// TestExplainCompiled checks that all notes and fallbacks of a compilation are in its explanation, and which
// passes it calls off.
func TestExplainCompiled(t *testing.T) {
	for _, o := range []Options{{}, {Passes: "none"}, {Passes: "-fuse_qkv,-sink_rows"}} {
		r, err := Compile(tinyModel(t, tiny.Config{HeadDim: 32, Layers: 3}), o)
		if err != nil {
			t.Fatal(err)
		}
		off, err := ParsePasses(o.Passes)
		if err != nil {
			t.Fatal(err)
		}
		// places returns each place of merged notes once.
		places := func(merged []MergedNote) (names []string) {
			for _, m := range merged {
				name := m.Elem.Place
				if len(m.Layers) < 2 {
					names = append(names, name)
					continue
				}
				for _, n := range m.Layers {
					names = append(names, fmt.Sprintf("blk.%d.%s", n, name[len("blk.N."):]))
				}
			}
			slices.Sort(names)
			return slices.Compact(names)
		}
		for _, p := range r.Explain() {
			var want []string
			for _, n := range r.Notes {
				if n.Pass == p.Pass {
					want = append(want, n.Place)
				}
			}
			slices.Sort(want)
			want = slices.Compact(want)
			if got := places(p.Notes); !slices.Equal(got, want) {
				t.Errorf("%+v: pass %s has notes on %q, want %q", o, p.Pass, got, want)
			}
			required := slices.ContainsFunc(r.Passes, func(q pass.Pass) bool { return q.Name == p.Pass && q.Required })
			if p.Off != (off.Has(p.Pass) && !required) {
				t.Errorf("%+v: pass %s: off is %t", o, p.Pass, p.Off)
			}
		}
		var want []string
		for _, f := range r.Fallbacks {
			want = append(want, f.Step)
		}
		slices.Sort(want)
		want = slices.Compact(want)
		if got := places(r.ExplainFallbacks()); !slices.Equal(got, want) || (o.Passes == "") != (len(got) == 0) {
			t.Errorf("%+v: fallbacks are %q, want %q", o, got, want)
		}
	}
}
