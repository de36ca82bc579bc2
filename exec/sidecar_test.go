package exec_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf/sidecar"
	"pesti/graph"
	"pesti/graph/graphtest"
	"pesti/lower"
)

// sidecarOf makes a sidecar with a model's matrices in FP8.
func sidecarOf(t *testing.T, m *frontend.Model) *sidecar.File {
	t.Helper()
	w, err := sidecar.Writer(m.File)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := w.Write(&b); err != nil {
		t.Fatal(err)
	}
	f, err := sidecar.Parse("w.safetensors", b.Bytes(), m.File)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestSidecar checks plans with weights in FP8, packed and not, fused and not, against the graph's
// reference semantics on the dequantized weights, and checks that bits do not depend on workers or
// chunks.
func TestSidecar(t *testing.T) {
	for name, c := range configs {
		t.Run(name, func(t *testing.T) {
			m := load(t, c)
			s := sidecarOf(t, m)
			ids := prompt(45)
			inFile := graphtest.FromFile(m.File)
			weights := func(w *graph.Value) ([]float32, error) {
				if b, ok := s.Weight(w.Name); ok {
					return s.Values(b, 0, b.Rows)
				}
				return inFile(w)
			}
			for _, o := range []lower.Options{
				{Precision: "exact"}, {Precision: "exact", Passes: "none"}, {Precision: "fast", KV: "f32"}, {Precision: "exact", ISA: "portable"},
			} {
				o.Sidecar = s
				r := compile(t, m, o)
				want, err := graphtest.LastLogits(r.Built, weights, ids)
				if err != nil {
					t.Fatal(err)
				}
				for _, w := range r.Plan.Weights {
					if _, ok := s.Weight(w.Name); ok != (w.Type == plan.SidecarType) {
						t.Errorf("weight %s is %s in the plan", w.Name, w.Type)
					}
				}
				var first []float32
				for _, threads := range []int{1, 3} {
					for _, chunk := range []int{45, 7} {
						e, err := exec.Open(r.Plan, m.File, exec.Options{Threads: threads, Poison: true, Sidecar: s})
						if err != nil {
							t.Fatal(err)
						}
						run := session(t, e)
						var got []float32
						for part := range slices.Chunk(ids, chunk) {
							got = feed(t, run, part)
						}
						if d := apart(got, want); d > 1e-5 {
							t.Errorf("%+v: logits are %g apart from the interpreter's", o.Precision+o.Passes+o.ISA, d)
						}
						if first == nil {
							first = got
						}
						if !slices.Equal(got, first) {
							t.Errorf("%s: %d workers and chunks of %d change bits", o.Precision+o.Passes+o.ISA, threads, chunk)
						}
						if err := e.Close(); err != nil {
							t.Error(err)
						}
					}
				}
			}
		})
	}
}

func TestCheckSidecar(t *testing.T) {
	m := load(t, configs["llama"])
	s := sidecarOf(t, m)
	p := compile(t, m, lower.Options{Sidecar: s, SidecarFile: "w.safetensors"}).Plan
	if err := exec.CheckSidecar(p, s); err != nil {
		t.Fatal(err)
	}
	change := func(f func(p *plan.Plan)) *plan.Plan {
		q := *p
		q.Weights = slices.Clone(p.Weights)
		f(&q)
		return &q
	}
	first := slices.IndexFunc(p.Weights, func(w plan.Weight) bool { return w.Type == plan.SidecarType })
	name := p.Weights[first].Name
	for _, c := range []struct {
		plan *plan.Plan
		file *sidecar.File
		want string
	}{
		{p, nil, "has weights in w.safetensors, which is not open"},
		{change(func(p *plan.Plan) { p.Sidecar.Size++ }), s, "is not the file that the plan was compiled with"},
		{change(func(p *plan.Plan) { p.Sidecar.HeaderDigest = "sha256:0" }), s, "is not the file that the plan was compiled with"},
		{change(func(p *plan.Plan) { p.Weights[first].Name = "other" }), s, `has no tensor "other"`},
		{change(func(p *plan.Plan) { p.Weights[first].Dims = []int64{1, 2} }), s, name},
		{change(func(p *plan.Plan) { p.Weights[first].Size++ }), s, name},
	} {
		if err := exec.CheckSidecar(c.plan, c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, expected one that says %q", err, c.want)
		}
	}
	if _, err := exec.Open(p, m.File, exec.Options{}); err == nil || !strings.Contains(err.Error(), "not open") {
		t.Errorf("a plan was opened without its weights: %v", err)
	}
	if err := exec.CheckSidecar(compile(t, m, lower.Options{}).Plan, s); err != nil {
		t.Errorf("a plan that needs no sidecar: %v", err)
	}
	other := sidecarOf(t, load(t, tiny.Config{Arch: "llama", Layers: 1}))
	if err := exec.CheckSidecar(p, other); err == nil {
		t.Error("the weights of another model pass")
	}
}
