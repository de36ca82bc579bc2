package plan

import (
	"slices"
	"strings"
	"testing"
)

// The table is a contract, so it must at least be consistent in itself.
func TestKernelTable(t *testing.T) {
	names := map[string]bool{}
	for i := range kernels {
		sig := &kernels[i]
		if names[sig.Name] {
			t.Errorf("%s: two rows", sig.Name)
		}
		names[sig.Name] = true
		if got, ok := LookupKernel(sig.Name); !ok || got != sig {
			t.Errorf("%s: LookupKernel returns another row", sig.Name)
		}
		if len(sig.Splits) == 0 {
			t.Errorf("%s: no splits", sig.Name)
		}
		for _, split := range sig.Splits {
			if !slices.Contains([]string{"rows", "heads", "tokens", "each", "one"}, split) {
				t.Errorf("%s: split %q", sig.Name, split)
			}
		}
		roles := map[string]bool{}
		writes := false
		for _, o := range sig.Operands {
			if roles[o.Role] {
				t.Errorf("%s: role %s twice", sig.Name, o.Role)
			}
			writes = writes || o.Dir.Writes()
			if o.Alias != "" && (o.Dir != Out || !roles[o.Alias]) {
				t.Errorf("%s: %s takes the place of %q, want an earlier operand", sig.Name, o.Role, o.Alias)
			}
			roles[o.Role] = true
			if o.Matmul && o.Dir != WeightIn {
				t.Errorf("%s: %s names a matmul kernel, but is no weight", sig.Name, o.Role)
			}
			// Tokens index a table of "vocab" rows, or a part of one, in which the kernel looks for
			// them.
			table := strings.HasPrefix(o.Extent, "vocab,") || strings.HasPrefix(o.Extent, "rows,")
			if o.Gather != (o.Dir == WeightIn && table) {
				t.Errorf("%s: %s of extent %s: Gather is %t", sig.Name, o.Role, o.Extent, o.Gather)
			}
			// Integers become addresses, so an integer operand must be a checked input with an
			// element for each row, a counter, or a result of top-k.
			if i32 := slices.Contains(o.Formats, "i32"); i32 != (o.Input != "" || o.Table == Counters || o.Kept != "" || o.Role == "ids") {
				t.Errorf("%s: %s has formats %v and is io buffer %q, want an io buffer if and only if it is i32", sig.Name, o.Role, o.Formats, o.Input)
			}
			if o.Input != "" && !slices.ContainsFunc(inputs, func(in Input) bool {
				return in.Name == o.Input && (in.Elems == o.Extent || in.Elems == sig.Rows && o.Extent == "M")
			}) {
				t.Errorf("%s: %s is io buffer %q, want an input of %s", sig.Name, o.Role, o.Input, o.Extent)
			}
			for _, f := range o.Formats {
				if _, ok := LookupFormat(f); !ok && o.Dir != WeightIn {
					t.Errorf("%s: %s has unknown format %s", sig.Name, o.Role, f)
				}
			}
		}
		if !writes {
			t.Errorf("%s: writes nothing", sig.Name)
		}
		// A formula may use only the parameters of its own kernel.
		s := Scope{T: 1, R: 1, S: 1, C: 16, P: 1, Rows: "T", Params: sample(sig)}
		for _, f := range formulas(sig) {
			if _, err := s.Eval(f); err != nil {
				t.Errorf("%s: %v", sig.Name, err)
			}
		}
	}
}

func TestRules(t *testing.T) {
	scope := func(params ...Param) *Scope {
		return &Scope{T: 32, C: 100, P: 7, Rows: "T", Params: params}
	}
	n := func(name string, v int64) Param { return Param{name, v} }
	for _, c := range []struct {
		name  string
		rule  Rule
		scope *Scope
		ok    bool
	}{
		{"equal heads", headsDivide, scope(n("heads", 4), n("kv_heads", 4)), true},
		{"grouped heads", headsDivide, scope(n("heads", 14), n("kv_heads", 2)), true},
		{"uneven heads", headsDivide, scope(n("heads", 14), n("kv_heads", 4)), false},
		{"fewer heads than kv heads", headsDivide, scope(n("heads", 2), n("kv_heads", 4)), false},
		{"whole rotation", rotationFits, scope(n("rot", 64), n("head_dim", 64)), true},
		{"no rotation", rotationFits, scope(n("rot", 0), n("head_dim", 64)), true},
		{"odd rotation", rotationFits, scope(n("rot", 63), n("head_dim", 64)), false},
		{"rotation beyond the head", rotationFits, scope(n("rot", 66), n("head_dim", 64)), false},
		{"base", rotationTurns, scope(n("rot", 64), Param{"base", 1e-18}), true},
		{"base near 0", rotationTurns, scope(n("rot", 64), Param{"base", 1e-19}), false},
		{"base of no rotation", rotationTurns, scope(n("rot", 0), Param{"base", 0.0}), true},
		{"groups", groupDivides, scope(n("n", 896), n("group", 64)), true},
		{"uneven groups", groupDivides, scope(n("n", 896), n("group", 60)), false},
		{"pages for the context", cacheHolds, scope(n("positions", 112), n("ring", 0)), true},
		{"a page too few", cacheHolds, scope(n("positions", 96), n("ring", 0)), false},
		{"no whole page", cacheHolds, scope(n("positions", 120), n("ring", 0)), false},
		{"ring just fits", cacheHolds, scope(n("positions", 48), n("window", 17), n("ring", 1)), true},
		{"ring too short", cacheHolds, scope(n("positions", 48), n("window", 18), n("ring", 1)), false},
		{"ring with a huge window", cacheHolds, scope(n("positions", 48), n("window", maxInt), n("ring", 1)), false},
		{"ring as long as the context", cacheHolds, scope(n("positions", 112), n("window", 100), n("ring", 1)), true},
		{"neither ring nor not", cacheHolds, scope(n("positions", 112), n("ring", 2)), false},
		{"ring with a window", ringHasWindow, scope(n("positions", 48), n("window", 1), n("ring", 1)), true},
		{"ring without one", ringHasWindow, scope(n("positions", 48), n("window", 0), n("ring", 1)), false},
	} {
		if err := c.rule(c.scope); (err == nil) != c.ok {
			t.Errorf("%s: %v, want ok %v", c.name, err, c.ok)
		}
	}
}

func TestParseMatmul(t *testing.T) {
	for _, layout := range []string{"", "panel16"} {
		want := MatmulKernel{"gemv", "q5_0", layout, "q8x2"}
		if got, ok := ParseMatmul(MatmulName("gemv", "q5_0", layout, "q8x2")); !ok || got != want {
			t.Errorf("found %+v, %v, want %+v", got, ok, want)
		}
	}
	for _, name := range []string{"", "gemv", "ref.matmul", "a.b.c.d.e"} {
		if k, ok := ParseMatmul(name); ok {
			t.Errorf("%q is a matmul kernel: %+v", name, k)
		}
	}
}
