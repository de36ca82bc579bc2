package lower

import (
	"slices"
	"strings"
	"testing"

	"pesti/conformance/demo"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
)

// compileCUDA compiles the embedded model for CUDA devices.
func compileCUDA(t *testing.T, o Options) *plan.Plan {
	t.Helper()
	o.Target = plan.CUDA
	res, err := Compile(demoModel(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return res.Plan
}

// demoModel opens the embedded model.
func demoModel(t *testing.T) *frontend.Model {
	t.Helper()
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestCUDA checks that no step of a supported model runs on the host, that decode takes five
// launches per layer, and that the plan's text parses to the same plan.
func TestCUDA(t *testing.T) {
	for _, precision := range []string{"exact", "fast"} {
		for _, isa := range plan.CUDAISAs {
			p := compileCUDA(t, Options{Precision: precision, ISA: isa})
			s := plan.Summarize(p)
			if s.Fallbacks != 0 || s.LaunchesPerLayer != 5 {
				t.Errorf("%s: %d fallbacks, %d launches a layer, expected 0 and 5\n%s", precision, s.Fallbacks, s.LaunchesPerLayer, plan.Print(p))
			}
			for program, want := range map[string]int{"decode": 5, "small": s.Programs["small"].StepsPerLayer + 1, "prefill": s.Programs["prefill"].StepsPerLayer + 1} { // a separate launch stores keys and values
				if got := s.Programs[program].LaunchesPerLayer; got != want {
					t.Errorf("%s: %d launches a layer in %s, expected %d", precision, got, program, want)
				}
			}
			if g := p.Programs[len(p.Programs)-1]; g.Name != "prefill" || g.Chunk == 0 {
				t.Errorf("%s: the last program is %s with chunk %d, expected prefill", precision, g.Name, g.Chunk)
			}
			if p.Fusions.QKV == 0 || p.Fusions.QKV != p.Fusions.GatedMLP || p.Fusions.QKV != p.Fusions.Attention {
				t.Errorf("%s: fusions %+v, expected as many of each", precision, p.Fusions)
			}
			if _, err := plan.Parse(plan.Print(p)); err != nil {
				t.Errorf("%s: the text does not parse: %v", precision, err)
			}
		}
	}
}

// TestCUDAWithoutPasses checks that every basic op runs, on the host if the device has no kernel,
// and that the plan lists it as a fallback.
func TestCUDAWithoutPasses(t *testing.T) {
	p := compileCUDA(t, Options{Precision: "exact", Passes: "none"})
	if s := plan.Summarize(p); s.Fallbacks == 0 {
		t.Errorf("no fallbacks in a plan without passes\n%s", plan.Print(p))
	}
}

// TestCUDAFaults breaks plans for CUDA in ways that only the checks for such plans find.
func TestCUDAFaults(t *testing.T) {
	find := func(p *plan.Plan, program int, kernel string) *plan.Step {
		for i := range p.Programs[program].Waves {
			if st := &p.Programs[program].Waves[i].Steps[0]; st.Kernel == kernel {
				return st
			}
		}
		t.Fatalf("no step %s in program %d", kernel, program)
		return nil
	}
	arg := func(st *plan.Step, role string) *plan.Arg {
		for i := range st.Args {
			if st.Args[i].Role == role {
				return &st.Args[i]
			}
		}
		t.Fatalf("step %s has no operand %s", st.Name, role)
		return nil
	}
	set := func(st *plan.Step, name string, v any) {
		for i := range st.Params {
			if st.Params[i].Name == name {
				st.Params[i].Value = v
			}
		}
	}
	for _, c := range []struct {
		name, want string
		ruin       func(p *plan.Plan)
	}{
		{"workers", "threads is 2, expected 1", func(p *plan.Plan) { p.Target.Threads = 2 }},
		{"a processor's set", `instruction set is "avx2"`, func(p *plan.Plan) { p.Target.ISA = "avx2" }},
		{"another backend", `backend is "metal"`, func(p *plan.Plan) { p.Target.Backend = "metal" }},
		{"a processor's kernel", `kernel is "select", expected one of backend cuda`, func(p *plan.Plan) { find(p, 0, "cuda.select").Kernel = "select" }},
		{"two steps in a wave", "2 steps, expected one", func(p *plan.Plan) {
			w := p.Programs[0].Waves
			w[0].Steps = append(w[0].Steps, w[1].Steps...)
			p.Programs[0].Waves = append(w[:1], w[2:]...)
		}},
		{"a weight as in the file", `has layout "", expected soa`, func(p *plan.Plan) { p.Weights[0].Layout, p.Weights[0].Packed = "", 0 }},
		{"two formats in a step", `expected one of ["gemv.q4_k.soa.q8x2" "gemm.q4_k.soa.q8x2"]`, func(p *plan.Plan) { arg(find(p, 0, "cuda.gemv"), "w1").Kernel = "gemv.q4_k.soa.f32" }},
		{"room for too few parts", "splits is 1, expected 2", func(p *plan.Plan) { set(find(p, 0, "cuda.attention"), "splits", int64(1)) }},
		{"a table for another rotation", "steps must agree on a table", func(p *plan.Plan) { set(find(p, 1, "cuda.attention"), "base", 10.0) }},
		{"counters in place of sines", `format is "f32"`, func(p *plan.Plan) {
			st := find(p, 0, "cuda.attention")
			arg(st, "arrived").Buffer = arg(st, "sines").Buffer
		}},
		{"no table", "expected operand sines if", func(p *plan.Plan) {
			st := find(p, 0, "cuda.attention")
			st.Args = slices.DeleteFunc(st.Args, func(a plan.Arg) bool { return a.Role == "sines" })
		}},
		{"a table as input", "class is table, expected a table for a table operand", func(p *plan.Plan) {
			arg(find(p, 0, "cuda.gemv"), "x").Buffer = arg(find(p, 0, "cuda.attention"), "sines").Buffer
		}},
		{"a table that is too short", "size is 4, expected at least", func(p *plan.Plan) {
			p.Buffers[arg(find(p, 0, "cuda.attention"), "sines").Buffer].Size = 4
		}},
		{"tables that are not summed up", "memory: tables is 0", func(p *plan.Plan) { p.Memory.Tables = 0 }},
		{"rounding in exact", `kernel is "gemv.q4_k.soa.q8x2"`, func(p *plan.Plan) { p.Target.Precision = "exact" }},
		{"a cache that no kernel has", `format is "q8_0"`, func(p *plan.Plan) {
			p.Target.KV = "q8_0"
			for i := range p.Buffers {
				if p.Buffers[i].Class == plan.State {
					p.Buffers[i].Format = "q8_0"
				}
			}
		}},
	} {
		p := compileCUDA(t, Options{})
		c.ruin(p)
		if err := plan.Verify(p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, expected %q", c.name, err, c.want)
		}
	}
}
