package pass_test

import (
	"slices"
	"strings"
	"testing"

	"pesti/graph"
	"pesti/graph/pass"
	"pesti/graph/pass/passtest"
)

func TestGolden(t *testing.T) {
	any := func(*graph.Value) bool { return true }
	passtest.Golden(t, append(pass.Graph(), pass.SplitTensor(2, any)), nil)
}

func TestUnknownAttributes(t *testing.T) {
	any := func(*graph.Value) bool { return true }
	passtest.UnknownAttributes(t, append(pass.Graph(), pass.SplitTensor(2, any)))
}

func TestOrder(t *testing.T) { passtest.Order(t, pass.Graph(), pass.GraphOrder()) }

func TestOrderMatters(t *testing.T) {
	passtest.OrderMatters(t, pass.Graph(), pass.GraphOrder())
	passtest.OrderFiles(t, pass.GraphOrder())
}

func TestParseSet(t *testing.T) {
	for _, c := range []struct {
		list, off, on, err string
	}{
		{list: "", on: "cse"},
		{list: "none", off: "cse"},
		{list: "-cse", off: "cse", on: "dce"},
		{list: "-cse,-fuse_qkv", off: "fuse_qkv", on: "fuse_gated_mlp"},
		{list: "cse", err: `found "cse", expected none or a list of -`},
		{list: "-cse,", err: `found ""`},
		{list: "-nothing", err: `found "-nothing"`},
		{list: "all", err: `found "all"`},
	} {
		s, err := pass.ParseSet(c.list, pass.Graph())
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: error %v, want one with %q", c.list, err, c.err)
				continue
			}
			_, listed, _ := strings.Cut(err.Error(), "expected none or a list of ")
			for _, p := range pass.Graph() { // each once
				if strings.Count(", "+listed+",", ", -"+p.Name+",") != 1 {
					t.Errorf("%q: error %v, want -%s in its list, once", c.list, err, p.Name)
				}
			}
			continue
		}
		if err != nil || c.off != "" && !s.Has(c.off) || c.on != "" && s.Has(c.on) {
			t.Errorf("%q: %v, error %v, want %q off and %q on", c.list, s, err, c.off, c.on)
		}
	}
	if _, err := pass.ParseSet("-must", []pass.Pass{{Name: "must", Required: true}}); err == nil {
		t.Error("a required pass was switched off")
	}
}

func TestNotesNamePasses(t *testing.T) {
	var names []string
	for _, p := range pass.Graph() {
		names = append(names, p.Name)
	}
	for _, o := range pass.GraphOrder() {
		if !slices.Contains(names, o.Before) || !slices.Contains(names, o.After) {
			t.Errorf("constraint %v names an unknown pass", o)
		}
	}
}
