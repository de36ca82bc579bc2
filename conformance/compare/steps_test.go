package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/demo"
	"pesti/conformance/testenv"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/frontend/tokenizer"
	"pesti/gguf"
	"pesti/graph"
	"pesti/lower"
	"pesti/ops"
)

// A stepFault makes a plan and the reference differ in one step: an edit of the plan, or of the reference,
// whose part of the comparison is the same.
type stepFault struct {
	name  string
	value string // the first value that differs; A|B if it depends on the architecture
	plan  func(p *plan.Plan) (changed int)
	ref   func(t *testing.T, r *reference)
}

var stepFaults = []stepFault{
	{name: "scale of scores 4 % off", value: "blk.0.attn", plan: func(p *plan.Plan) int {
		return editSteps(p, "", "blk.0.attn", func(st *plan.Step) { scaleParam(st, "scale", 1.04) })
	}},
	{name: "scale of scores 4 % off in one program", value: "blk.1.attn", plan: func(p *plan.Plan) int {
		return editSteps(p, "small", "blk.1.attn", func(st *plan.Step) { scaleParam(st, "scale", 1.04) })
	}},
	{name: "epsilon of one norm", value: "blk.0.q.x|blk.5.out", plan: func(p *plan.Plan) int {
		value := "blk.0.q.x"
		if hasParam(p, "blk.5.out", "eps") { // in gemma, post-norms alone have inputs near their epsilon
			value = "blk.5.out"
		}
		return editSteps(p, "", value, func(st *plan.Step) { scaleParam(st, "eps", 10) })
	}},
	{name: "weight of one norm", value: "blk.0.ffn_gated.x", plan: func(p *plan.Plan) int {
		return swapArgs(p, "w", "blk.0.ffn_gated.x", "blk.1.ffn_gated.x")
	}},
	{name: "gate and up swapped", value: "blk.1.ffn_out.x", plan: func(p *plan.Plan) int {
		return editSteps(p, "", "blk.1.ffn_out.x", func(st *plan.Step) {
			gate, up := argOf(st, "w0"), argOf(st, "w1")
			gate.Weight, up.Weight = up.Weight, gate.Weight
			gate.Kernel, up.Kernel = up.Kernel, gate.Kernel
		})
	}},
	{name: "positions of queries + 1", value: "blk.1.attn", ref: func(t *testing.T, r *reference) { turn(t, r, "blk.1.q_rope") }},
	{name: "positions of keys + 1", value: "blk.1.cache_k.written", ref: func(t *testing.T, r *reference) { turn(t, r, "blk.1.k_rope") }},
	{name: "a block of rows of a product", value: "blk.1.out|blk.1.ffn_out", ref: func(_ *testing.T, r *reference) { moveRows(r, "blk.1.ffn_out") }},
	{name: "a block of rows of a gated product", value: "blk.1.ffn_out.x", ref: func(_ *testing.T, r *reference) { moveRows(r, "blk.1.ffn_up") }},
	{name: "a block of rows of the logits", value: "logits", ref: func(_ *testing.T, r *reference) { moveRows(r, "logits_all") }},
}

// editSteps edits the steps that compute a value, of one program or of all.
func editSteps(p *plan.Plan, program, value string, edit func(st *plan.Step)) (changed int) {
	for g, st := range p.Steps() {
		if valueName(st.Name) == value && st.Kernel != "select" && (program == "" || g.Name == program) {
			edit(st)
			changed++
		}
	}
	return changed
}

func scaleParam(st *plan.Step, name string, by float64) {
	for i := range st.Params {
		if st.Params[i].Name == name {
			st.Params[i].Value = st.Params[i].Value.(float64) * by
		}
	}
}

// hasParam reports whether the step that computes a value has a parameter.
func hasParam(p *plan.Plan, value, name string) bool {
	for _, st := range p.Steps() {
		if valueName(st.Name) == value && st.Param(name) != nil {
			return true
		}
	}
	return false
}

// swapArgs swaps the operands of a role of two steps, in every program.
func swapArgs(p *plan.Plan, role, value, other string) (changed int) {
	for i := range p.Programs {
		var args []*plan.Arg
		for _, st := range p.Programs[i].Steps() {
			if name := valueName(st.Name); name == value || name == other {
				args = append(args, argOf(st, role))
			}
		}
		if len(args) == 2 {
			*args[0], *args[1] = *args[1], *args[0]
			changed++
		}
	}
	return changed
}

func argOf(st *plan.Step, role string) *plan.Arg {
	return &st.Args[slices.IndexFunc(st.Args, func(a plan.Arg) bool { return a.Role == role })]
}

// turn edits the reference to rotate a value once more, by the angles of position 1. Rotations add.
func turn(t *testing.T, r *reference, name string) {
	t.Helper()
	v := r.graph.Value(name)
	rope := v.Def
	heads, dim, rot := int(rope.Attr.Int("heads")), int(rope.Attr.Int("head_dim")), int(rope.Attr.Int("rot"))
	n := heads * dim
	matrix := make([]float32, n*n)
	for i := range n {
		matrix[i*n+i] = 1
	}
	for pair := range rot / 2 {
		sin, cos := math.Sincos(math.Pow(rope.Attr.Float("base"), -2*float64(pair)/float64(rot)))
		a, b := 2*pair, 2*pair+1
		if rope.Attr.Str("layout") == ops.Halves {
			a, b = pair, pair+rot/2
		}
		for head := 0; head < n; head += dim {
			a, b := head+a, head+b
			matrix[a*n+a], matrix[a*n+b], matrix[b*n+a], matrix[b*n+b] = float32(cos), float32(-sin), float32(sin), float32(cos)
		}
	}
	w, err := r.graph.Weight("turn", graph.Type{DType: graph.F32, Shape: []graph.Dim{graph.N(int64(n)), graph.N(int64(n))}})
	if err != nil {
		t.Fatal(err)
	}
	readers := r.graph.Uses()[v]
	out, err := r.graph.Insert(readers[0], ops.Matmul, []*graph.Value{v, w}, nil, name+".turned")
	if err != nil {
		t.Fatal(err)
	}
	r.graph.ReplaceUsesIn(readers, v, out[0])
	r.graph.Renumber()
	weights := r.weights
	r.weights = func(w *graph.Value, first, end int) ([]float32, error) {
		if w.Name == "turn" {
			return matrix[first*n : end*n], nil
		}
		return weights(w, first, end)
	}
}

// moveRows edits the reference to take 16 rows of a product's weight from the 16 rows after them. If the product shares
// its weight with the embedding, these are rows of tokens that the text does not have.
func moveRows(r *reference, product string) {
	name, at := r.graph.Value(product).Def.In[1].Name, 16
	for slices.ContainsFunc(r.ids, func(id int32) bool { return int(id)/16 == at/16 }) {
		at += 16
	}
	weights := r.weights
	r.weights = func(w *graph.Value, first, end int) ([]float32, error) {
		x, err := weights(w, first, end)
		if err != nil || w.Name != name {
			return x, err
		}
		cols := len(x) / (end - first)
		for row := max(first, at); row < min(end, at+16); row++ {
			y, err := weights(w, row+16, row+17)
			if err != nil {
				return nil, err
			}
			copy(x[(row-first)*cols:], y)
		}
		return x, nil
	}
}

// compiled compiles a model for the best kernels of the machine.
func compiled(t *testing.T, f *gguf.File, o lower.Options) Input {
	t.Helper()
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	if o.ISA == "" {
		if o.ISA, err = exec.BestISA(""); err != nil {
			t.Fatal(err)
		}
	}
	if o.Rows == 0 {
		o.Rows = StepTokens
	}
	res, err := lower.Compile(m, o)
	if err != nil {
		t.Fatal(err)
	}
	return Input{Plan: res.Plan, Model: f}
}

// textIDs returns the tokens of a text. A step of all of them runs another program than single ones.
func textIDs(t *testing.T, f *gguf.File) []int32 {
	t.Helper()
	words, err := tokenizer.FromGGUF(f)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := words.Encode(t.Context(), []byte("The quick brown fox jumps over the lazy dog."), tokenizer.Options{BOS: true})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestSteps seeds faults that are within the bounds for one plane of activations. The comparison of steps finds each of
// them and names the value that differs.
func TestSteps(t *testing.T) {
	testenv.Inputs(t)
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	stepsSeeFaults(t, f, len(stepFaults))
}

// TestProveSteps does so with the real models.
func TestProveSteps(t *testing.T) {
	testenv.Prove(t)
	for _, name := range testenv.Models {
		t.Run(name, func(t *testing.T) {
			f, err := gguf.Open(testenv.Model(t, name))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			stepsSeeFaults(t, f, 2) // a check of a real model takes seconds, and TestSteps seeds all faults
		})
	}
}

// stepsSeeFaults checks plans of a model without a fault and with all faults in mixed, and with as many in q8.
func stepsSeeFaults(t *testing.T, f *gguf.File, faultsOfQ8 int) {
	ids := textIDs(t, f)
	for _, activations := range []string{"mixed", "q8"} {
		o := lower.Options{Activations: activations, Ctx: 64}
		t.Run(activations, func(t *testing.T) {
			c, err := NewChecker(compiled(t, f, o), Description{Name: "model"}, ids)
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.Check(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			worst := r.WorstStep()
			if err := r.Check(); err != nil || worst == nil {
				t.Fatalf("without a fault: %v", err)
			}
			t.Logf("%d values, worst d %.1e of %s, allowed %.1e", len(r.Steps), worst.D, worst.Value, worst.Allowed)
			faults := stepFaults
			if activations == "q8" {
				faults = faults[:faultsOfQ8]
			}
			for _, fault := range faults {
				t.Run(fault.name, func(t *testing.T) { seesFault(t, compiled(t, f, o), ids, &fault) })
			}
		})
	}
}

func seesFault(t *testing.T, in Input, ids []int32, fault *stepFault) {
	if fault.plan != nil && fault.plan(in.Plan) == 0 {
		t.Fatalf("no step computes %s", fault.value)
	}
	c, err := NewChecker(in, Description{Name: "model"}, ids)
	if err != nil {
		t.Fatal(err)
	}
	if fault.ref != nil {
		fault.ref(t, c.ref)
	}
	r := &CheckReport{Name: "model", Bound: boundOf(in.Plan)}
	if _, err := c.evaluate(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	err = r.Check()
	if err == nil || !slices.ContainsFunc(strings.Split(fault.value, "|"), func(v string) bool { return strings.Contains(err.Error(), "d of "+v+" ") }) {
		t.Errorf("error %v, expected d of %s", err, fault.value)
	}
	if worst := r.WorstStep(); err != nil && !strings.Contains(err.Error(), "d of "+worst.Value+" ") {
		t.Errorf("the worst step is that of %s, and the error names another one: %v", worst.Value, err)
	}
	t.Log(err)
}

// TestStepBytes compares the size of the values that a program stores with the estimate of it.
func TestStepBytes(t *testing.T) {
	const tokens = 40
	ids := make([]int32, tokens)
	for _, passes := range []string{"", "-fuse_attention,-fuse_qkv"} {
		for _, kv := range []string{"f16", "q8_0"} {
			in := demoInput(t, lower.Options{Activations: "mixed", Rows: tokens, Ctx: 64, KV: kv, Passes: passes})
			p, err := OpenPlan(in, Description{Name: "demo"})
			if err != nil {
				t.Fatal(err)
			}
			steps := stepValues{}
			if err := p.addStep(t.Context(), ids, 0, tokens, &values{steps: steps}); err != nil {
				t.Fatal(err)
			}
			stored := 0
			for _, v := range steps {
				stored += 4 * len(v.data)
			}
			got, err := stepBytes(in.Plan, p.program(0, tokens), tokens)
			if err != nil || got < int64(stored) || got > int64(stored)*11/10 {
				t.Errorf("passes %q, cache %s: %d bytes, error %v, expected at least the %d that are stored, and hardly more", passes, kv, got, err, stored)
			}
			p.Close()
		}
	}
}

// TestWorstStep: the worst step is the one that the error names, also if a later value differs more in float32
// alone.
func TestWorstStep(t *testing.T) {
	step := func(value string, d, allowed Number) CheckedStep {
		return CheckedStep{Value: value, D: d, Allowed: allowed}
	}
	for _, c := range []struct {
		want  string
		steps []CheckedStep
	}{
		{"b", []CheckedStep{step("a", 1, 4), step("b", 2, 4), step("c", 3, 8)}},
		{"b", []CheckedStep{step("a", 1, 4), step("b", 5, 4), step("c", 50, 4)}},
		{"a", []CheckedStep{step("a", Number(math.Inf(1)), 4), step("b", 5, 4)}},
	} {
		r := CheckReport{Steps: c.steps}
		if got := r.WorstStep(); got.Value != c.want {
			t.Errorf("%v: the worst step is that of %s, expected %s", c.steps, got.Value, c.want)
		}
		if err := r.checkSteps(); err != nil && !strings.Contains(err.Error(), "d of "+c.want+" ") {
			t.Errorf("%v: error %v, expected d of %s", c.steps, err, c.want)
		}
	}
	if (&CheckReport{}).WorstStep() != nil {
		t.Error("without steps there is a worst one")
	}
}

// TestStepsOfEveryPlan checks that the steps of correct plans with one plane pass, for all compile options.
func TestStepsOfEveryPlan(t *testing.T) {
	testenv.Inputs(t)
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int32, 70) // a chunk of 64 for tiles, and the rest
	for i := range ids {
		ids[i] = int32(i*37%1500 + 1)
	}
	const unfused = "-fuse_attention,-fuse_qkv,-fuse_gated_mlp,-fuse_norm,-fuse_gated_quantize,-fuse_residual,-sink_rows"
	options := []lower.Options{{ISA: "portable"}, {Rows: 3}, {Ubatch: 5}, {Tiles: "on"}}
	for _, kv := range plan.CacheFormats() {
		options = append(options, lower.Options{KV: kv}, lower.Options{KV: kv, Passes: unfused})
	}
	for _, o := range options {
		o.Activations, o.Ctx = "q8", 128
		for _, n := range []int{1, len(ids)} {
			t.Run(fmt.Sprintf("isa=%s rows=%d ubatch=%d tiles=%s kv=%s passes=%s tokens=%d", o.ISA, o.Rows, o.Ubatch, o.Tiles, o.KV, o.Passes, n), func(t *testing.T) {
				c, err := NewChecker(compiled(t, f, o), Description{Name: "demo"}, ids[:n])
				if err != nil {
					t.Fatal(err)
				}
				r := &CheckReport{Name: "demo", Bound: boundOf(c.in.Plan)}
				if _, err := c.evaluate(t.Context(), r, nil); err != nil {
					t.Fatal(err)
				}
				worst := r.WorstStep()
				if err := r.checkSteps(); err != nil || len(r.Steps) < 50 {
					t.Fatalf("%d steps: %v", len(r.Steps), err)
				}
				t.Logf("%v: %d values, worst d %.1e of %s in %s, allowed %.1e", r.Programs, len(r.Steps), worst.D, worst.Value, worst.Format, worst.Allowed)
			})
		}
	}
}
