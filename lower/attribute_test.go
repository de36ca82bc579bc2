package lower

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/tiny"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/graph"
	"pesti/ops"
)

// TestNewAttribute adds an attribute to the scores of attention, and then a parameter to one kernel
// after another that computes them. A graph with the attribute is refused until a kernel takes it,
// and then runs on the kernels that do, without a change to a pass or to lowering. A graph without
// the attribute always compiles to the same bytes.
func TestNewAttribute(t *testing.T) {
	const name = "cap"
	m := tinyModel(t, tiny.Config{Arch: "llama"})
	o := Options{Ubatch: 8, Sequences: 1, Rows: 4, Ctx: 32, Verify: true}
	compile := func(value float64) (*plan.Plan, error) {
		g, err := m.Graph(frontend.Bounds{Tokens: o.Ubatch, Sequences: o.Sequences, Rows: o.Rows, Context: o.Ctx})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range g.Nodes {
			if n.Op == ops.AttnScores && value != 0 {
				n.Attr[name] = value
			}
		}
		res, err := CompileGraph(m, g, o)
		if err != nil {
			return nil, err
		}
		return res.Plan, nil
	}
	text := func() []byte {
		p, err := compile(0)
		if err != nil {
			t.Fatal(err)
		}
		return plan.Print(p)
	}
	params := func(p *plan.Plan) (kernels []string) {
		for _, g := range p.Programs {
			for _, w := range g.Waves {
				for _, st := range w.Steps {
					if st.Param(name) == 30.0 && !slices.Contains(kernels, st.Kernel) {
						kernels = append(kernels, st.Kernel)
					}
				}
			}
		}
		return kernels
	}
	before := text()

	for _, op := range []*graph.Op{ops.AttnScores, ops.Attention} {
		attrs := op.Attrs
		defer func() { op.Attrs = attrs }()
		op.Attrs = append(slices.Clip(attrs), graph.AttrSpec{Name: name, Default: 0.0})
	}
	if _, err := compile(30); err == nil || !strings.Contains(err.Error(), "kernel ref.attn_scores takes no cap") {
		t.Errorf("an attribute that no kernel takes: %v", err)
	}
	for _, c := range []struct{ adds, runs string }{{"ref.attn_scores", "ref.attn_scores"}, {"attention", "attention"}} {
		sig, _ := plan.LookupKernel(c.adds)
		specs := sig.Params
		defer func() { sig.Params = specs }()
		sig.Params = append(slices.Clip(specs), plan.ParamSpec{Name: name, Kind: 0.0, Range: [2]float64{0, 1e6}, Default: 0.0})
		p, err := compile(30)
		if err != nil {
			t.Fatal(err)
		}
		if got := params(p); len(got) != 1 || got[0] != c.runs {
			t.Errorf("once %s takes the attribute, %v have it, want %s", c.adds, got, c.runs)
		}
		if !bytes.Equal(text(), before) {
			t.Errorf("once %s takes the attribute, a plan without it has other bytes", c.adds)
		}
	}
}
