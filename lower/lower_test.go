package lower

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pesti/conformance/testenv"
	"pesti/conformance/tiny"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/gguf/quant"
	"pesti/graph"
	"pesti/ops"
)

// realModel opens and checks a real model.
func realModel(t testing.TB, name string) *frontend.Model {
	t.Helper()
	f, err := gguf.Open(testenv.Model(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func tinyModel(t rapid.TB, c tiny.Config) *frontend.Model {
	t.Helper()
	m, err := frontend.Load(tiny.File(t, c))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// compile compiles, and checks that the arena bound in pictures and tables is the bound that the
// planner and the verifier used.
func compile(t testing.TB, m *frontend.Model, o Options) *plan.Plan {
	t.Helper()
	res, err := Compile(m, o)
	if err != nil {
		t.Fatal(err)
	}
	most := int64(0)
	for i := range res.Plan.Programs {
		most = max(most, res.Plan.Programs[i].PeakBytes(nil))
	}
	if most != res.Plan.Memory.ArenaLowerBound {
		t.Errorf("%+v: %d bytes live in one wave, expected the lower bound of %d", o, most, res.Plan.Memory.ArenaLowerBound)
	}
	return res.Plan
}

const mib = 1 << 20

// TestRealModels checks the plans of three models: the arena is at the lower bound and below half
// of llama.cpp's (17.5, 39.5 and 25.8 MiB with one row of logits), caches keep no more positions
// than a layer can see, and every layer is fused.
func TestRealModels(t *testing.T) {
	for _, c := range []struct {
		file   string
		layers int
		arena  float64 // MiB, fast
		state  float64 // MiB, f16
	}{
		{testenv.SmolLM2, 30, 8.7, 90},
		{testenv.Qwen, 24, 19.7, 48},
		{testenv.Gemma, 18, 12.8, 27},
	} {
		t.Run(c.file, func(t *testing.T) {
			m := realModel(t, c.file)
			for _, precision := range []string{"fast", "exact"} {
				p := compile(t, m, Options{Precision: precision, Threads: 2, Verify: true})
				arena, state := c.arena, c.state
				if precision == "exact" {
					arena, state = 24, 2*c.state
				}
				if p.Memory.Arena != p.Memory.ArenaLowerBound || float64(p.Memory.Arena) > arena*mib {
					t.Errorf("%s: arena of %d bytes, bound %d, want the bound and at most %v MiB", precision, p.Memory.Arena, p.Memory.ArenaLowerBound, arena)
				}
				if float64(p.Memory.State) > state*mib {
					t.Errorf("%s: state of %d bytes, want at most %v MiB", precision, p.Memory.State, state)
				}
				s := plan.Summarize(p)
				if want := (plan.FusionsSummary{QKV: c.layers, GatedMLP: c.layers, Attention: c.layers}); s.Fusions != want {
					t.Errorf("%s: fusions %+v, want %+v", precision, s.Fusions, want)
				}
				if s.Fallbacks != 0 {
					t.Errorf("%s: %d fallbacks, want none", precision, s.Fallbacks)
				}
				for _, prog := range []string{"decode", "small", "prefill"} {
					if _, ok := s.Programs[prog]; !ok {
						t.Errorf("%s: no program %s", precision, prog)
					}
				}
				if waves := s.Programs["decode"].WavesPerLayer; waves > 5 {
					t.Errorf("%s: %d waves in a decode layer, want at most 5", precision, waves)
				}
			}
		})
	}
}

// BenchmarkCompile measures the time from an open file to a verified plan.
func BenchmarkCompile(b *testing.B) {
	m := realModel(b, testenv.Qwen)
	for b.Loop() {
		m, err := frontend.Load(m.File)
		if err != nil {
			b.Fatal(err)
		}
		compile(b, m, Options{Threads: 2})
	}
}

// BenchmarkCompileLayers measures how the time grows with the number of layers.
func BenchmarkCompileLayers(b *testing.B) {
	for _, layers := range []int{126, 252, 504} {
		b.Run(fmt.Sprint(layers), func(b *testing.B) {
			m := tinyModel(b, tiny.Config{Arch: "gemma3", Layers: layers, Embd: 8, Heads: 1, KVHeads: 1, FF: 8, Vocab: 258})
			for b.Loop() {
				compile(b, m, Options{Threads: 2})
			}
		})
	}
}

// shapes are tiny models that together reach every kernel and every pass.
var shapes = []tiny.Config{
	{Arch: "llama"},
	{Arch: "llama", KVHeads: 4, Tied: true},
	{Arch: "qwen2", HeadDim: 32},
	{Arch: "gemma3", Layers: 7, Window: 32, KVHeads: 1, Tied: true},
}

// optionalKeys sets each key that an architecture reads and tiny models leave out, and whatever
// else the frontend needs to read the key.
var optionalKeys = map[string]func(arch string, m *tiny.Model){
	"attention.key_length_swa":         setUint("attention.key_length_swa", 32),
	"attention.scale":                  setFloat("attention.scale", 0.5),
	"attention.sliding_window":         setUint("attention.sliding_window", 16),
	"attention.sliding_window_pattern": setUint("attention.sliding_window_pattern", 2),
	"attention.value_length_swa":       setUint("attention.value_length_swa", 32),
	"final_logit_softcapping":          setFloat("final_logit_softcapping", 0),
	"rope.dimension_count":             setUint("rope.dimension_count", 16),
	"rope.dimension_count_swa":         setUint("rope.dimension_count_swa", 32),
	"rope.freq_base_swa":               setFloat("rope.freq_base_swa", 300),
	"rope.scale_linear":                setFloat("rope.scale_linear", 2),
	"rope.scaling.attn_factor":         setFloat("rope.scaling.attn_factor", 1.25),
	"rope.scaling.factor":              setFloat("rope.scaling.factor", 4),
	"rope.scaling.type":                yarn(nil),
	"rope.scaling.original_context_length": func(arch string, m *tiny.Model) {
		yarn(nil)(arch, m)
		setUint("rope.scaling.original_context_length", 64)(arch, m)
	},
	"rope.scaling.yarn_beta_fast": yarn(map[string]float32{"yarn_beta_fast": 12}),
	"rope.scaling.yarn_beta_slow": yarn(map[string]float32{"yarn_beta_slow": 3}),
}

func setFloat(key string, x float32) func(string, *tiny.Model) {
	return func(arch string, m *tiny.Model) { m.Meta.SetFloat32(arch+"."+key, x) }
}

func setUint(key string, x uint32) func(string, *tiny.Model) {
	return func(arch string, m *tiny.Model) { m.Meta.SetUint32(arch+"."+key, x) }
}

func yarn(keys map[string]float32) func(string, *tiny.Model) {
	return func(arch string, m *tiny.Model) {
		all := map[string]float32{"factor": 4}
		maps.Copy(all, keys)
		m.Rope(arch, "yarn", all)
	}
}

// TestArchitectures checks, for every architecture and every key that it reads, that each block is
// fused completely and that a decode layer has five waves. It needs no model file.
func TestArchitectures(t *testing.T) {
	const layers = 3
	for _, arch := range frontend.Architectures() {
		config := tiny.Config{Arch: arch, Layers: layers, HeadDim: 32, Types: []quant.Type{quant.Q8_0}}
		base := tinyModel(t, config)
		checkFused(t, arch, base, layers)
		tried := map[string]bool{}
		for todo := base.Params.Asked; len(todo) > 0; todo = todo[1:] {
			key := todo[0]
			if tried[key] || base.File.Has(arch+"."+key) {
				continue
			}
			tried[key] = true
			edit, ok := optionalKeys[key]
			if !ok {
				t.Errorf("architecture %s reads the key %s, which no model of this test has: give optionalKeys a value of it", arch, key)
				continue
			}
			config.Edit = func(m *tiny.Model) { edit(arch, m) }
			m := tinyModel(t, config)
			checkFused(t, arch+" with "+key, m, layers)
			todo = slices.Concat(todo, m.Params.Asked) // some keys are read only together with others
		}
	}
}

func checkFused(t *testing.T, name string, m *frontend.Model, layers int) {
	t.Helper()
	for _, precision := range []string{"fast", "exact"} {
		s := plan.Summarize(compile(t, m, Options{Precision: precision, Threads: 2, Verify: true}))
		if want := (plan.FusionsSummary{QKV: layers, GatedMLP: layers, Attention: layers}); s.Fusions != want || s.Fallbacks != 0 {
			t.Errorf("%s, %s: fusions %+v and %d fallbacks, want %+v and none", name, precision, s.Fusions, s.Fallbacks, want)
		}
		if waves := s.Programs["decode"].WavesPerLayer; waves < 1 || waves > 5 {
			t.Errorf("%s, %s: %d waves in a decode layer, want at most 5", name, precision, waves)
		}
	}
}

func TestDeterministic(t *testing.T) {
	for _, shape := range shapes {
		for _, passes := range []string{"", "none", "-fuse_attention", "-fuse_norm,-cse"} {
			o := Options{Passes: passes, Threads: 3, Sequences: 2}
			a := plan.Print(compile(t, tinyModel(t, shape), o))
			b := plan.Print(compile(t, tinyModel(t, shape), o))
			if !bytes.Equal(a, b) {
				t.Errorf("%s %q: two compilations differ", shape.Arch, passes)
			}
			if _, err := plan.Parse(a); err != nil {
				t.Errorf("%s %q: %v", shape.Arch, passes, err)
			}
		}
	}
}

// TestSwitchingOff switches off one pass at a time. The plan still verifies and lacks the pass's
// result.
func TestSwitchingOff(t *testing.T) {
	for _, shape := range shapes {
		m := tinyModel(t, shape)
		all := plan.Summarize(compile(t, m, Options{Verify: true}))
		if all.Fallbacks != 0 {
			t.Errorf("%s: %d fallbacks", shape.Arch, all.Fallbacks)
		}
		for _, p := range Passes() {
			s := plan.Summarize(compile(t, m, Options{Passes: "-" + p.Name, Verify: true}))
			switch p.Name {
			case "fuse_qkv":
				if s.Fusions.QKV != 0 || s.Fusions.Attention != all.Fusions.Attention {
					t.Errorf("%s without %s: %+v", shape.Arch, p.Name, s.Fusions)
				}
			case "fuse_gated_mlp":
				if s.Fusions.GatedMLP != 0 || s.Fallbacks == 0 {
					t.Errorf("%s without %s: %+v, %d fallbacks", shape.Arch, p.Name, s.Fusions, s.Fallbacks)
				}
			case "fuse_attention":
				if s.Fusions.Attention != 0 || s.Fallbacks == 0 {
					t.Errorf("%s without %s: %+v, %d fallbacks", shape.Arch, p.Name, s.Fusions, s.Fallbacks)
				}
			}
		}
		none := plan.Summarize(compile(t, m, Options{Passes: "none", Verify: true}))
		if none.Fusions != (plan.FusionsSummary{}) {
			t.Errorf("%s without passes: %+v", shape.Arch, none.Fusions)
		}
		for kernel, n := range none.Programs["prefill"].Kernels {
			if !strings.HasPrefix(kernel, "ref.") && kernel != "select" {
				t.Errorf("%s without passes: %d steps on kernel %s, want ref.*", shape.Arch, n, kernel)
			}
		}
	}
}

// TestActivations checks, on every instruction set, that all integer products and all rounding
// kernels use one plane if the options ask for it, and none otherwise.
func TestActivations(t *testing.T) {
	m := tinyModel(t, tiny.Config{Arch: "qwen2", Embd: 64, FF: 96, Types: []quant.Type{quant.Q5_0, quant.Q8_0}})
	for _, isa := range []string{"portable", "neondot", "avx2", "amx"} {
		for _, format := range []string{"q8x2", "q8"} {
			p := compile(t, m, Options{ISA: isa, Activations: format, Tiles: map[bool]string{true: "on"}[isa == "amx"], Verify: true})
			found := map[string]int{}
			for _, g := range p.Programs {
				for _, b := range g.Buffers {
					if strings.HasPrefix(b.Format, "q8") {
						found["buffers of "+b.Format]++
					}
				}
				for _, w := range g.Waves {
					for _, st := range w.Steps {
						for _, a := range st.Args {
							if at := strings.LastIndexByte(a.Kernel, '.'); at > 0 && g.Chunk == 0 {
								found["products of "+a.Kernel[at+1:]]++
							}
						}
					}
				}
			}
			if len(found) != 2 || found["buffers of "+format] == 0 || found["products of "+format] == 0 {
				t.Errorf("%s, activations %s: the plan has %v", isa, format, found)
			}
		}
	}
}

// TestAutoActivations checks that the default uses one plane only on instruction sets where a
// second one is expensive.
func TestAutoActivations(t *testing.T) {
	m := tinyModel(t, tiny.Config{Arch: "qwen2", Embd: 64, FF: 96, Types: []quant.Type{quant.Q5_0, quant.Q8_0}})
	text := func(o Options) string { return string(plan.Print(compile(t, m, o))) }
	for isa, want := range map[string]string{"portable": "q8x2", "neondot": "q8x2", "avx2": "mixed", "avx512vnni": "q8x2", "amx": "q8x2"} {
		if text(Options{ISA: isa}) != text(Options{ISA: isa, Activations: want}) {
			t.Errorf("%s: the plan is not that of --activations %s", isa, want)
		}
	}
}

// TestMixedActivations checks that q, k, v and the logits have two planes and all other products
// one, whether rows are selected early or late, and whatever ops follow the product with the
// vocabulary.
func TestMixedActivations(t *testing.T) {
	m := tinyModel(t, tiny.Config{Arch: "qwen2", Embd: 64, FF: 96, Types: []quant.Type{quant.Q5_0}})
	for _, passes := range []string{"", "-sink_rows"} {
		for _, behind := range [][]*graph.Op{nil, {ops.Scale}, {ops.Scale, ops.SiLU, ops.Scale}} {
			o := Options{ISA: "avx2", Activations: "mixed", Passes: passes, Verify: true, Ubatch: 8, Sequences: 1, Rows: 4, Ctx: 32}
			g, err := m.Graph(frontend.Bounds{Tokens: o.Ubatch, Sequences: o.Sequences, Rows: o.Rows, Context: o.Ctx})
			if err != nil {
				t.Fatal(err)
			}
			followLogits(t, g, behind)
			res, err := CompileGraph(m, g, o)
			if err != nil {
				t.Fatal(err)
			}
			checkMixed(t, fmt.Sprintf("passes %q, %d ops behind the logits", passes, len(behind)), res.Plan)
		}
	}
}

// followLogits appends elementwise ops to a graph's logits, before or after the selection of rows.
func followLogits(t *testing.T, g *graph.Graph, list []*graph.Op) {
	t.Helper()
	for i, op := range list {
		old := g.Outputs[0]
		old.Name = fmt.Sprintf("logits.%d", i)
		attr := graph.Attrs{}
		if op == ops.Scale {
			attr["factor"] = 0.5
		}
		out, err := g.Add(op, []*graph.Value{old}, attr, "logits")
		if err != nil {
			t.Fatal(err)
		}
		g.Outputs[0] = out[0]
	}
	g.Renumber()
}

func checkMixed(t *testing.T, where string, p *plan.Plan) {
	t.Helper()
	seen := map[string]bool{}
	for _, g := range p.Programs {
		for _, w := range g.Waves {
			for _, st := range w.Steps {
				for _, a := range st.Args {
					at := strings.LastIndexByte(a.Kernel, '.')
					if at < 0 {
						continue
					}
					part := regexp.MustCompile(`attn_[qkv]|attn_output|ffn_\w+|output|token_embd`).FindString(a.Weight)
					seen[part] = true
					want := "q8"
					switch part {
					case "attn_q", "attn_k", "attn_v", "output", "token_embd":
						want = "q8x2"
					}
					if got := a.Kernel[at+1:]; got != want {
						t.Errorf("%s: %s is multiplied with %s, want %s", where, a.Weight, got, want)
					}
				}
			}
		}
	}
	if len(seen) != 8 {
		t.Errorf("%s: found products of %v", where, seen)
	}
}

// TestLayouts checks that products without vector kernels on an instruction set read weights in the
// file's layout.
func TestLayouts(t *testing.T) {
	m := tinyModel(t, tiny.Config{Arch: "qwen2", Embd: 64, FF: 96, Types: []quant.Type{quant.Q5_0}})
	for _, c := range []struct {
		o      Options
		packed bool
	}{
		{Options{ISA: "neondot"}, true},
		{Options{ISA: "neondot", Activations: "q8"}, true},
		{Options{ISA: "neondot", Precision: "exact"}, false},
		{Options{ISA: "avx2", Activations: "q8"}, true},
		{Options{ISA: "avx2", Precision: "exact"}, true},
		{Options{ISA: "portable"}, false},
	} {
		if text := string(plan.Print(compile(t, m, c.o))); strings.Contains(text, ".panel16.") != c.packed {
			t.Errorf("%s, %s, %s: weights are packed: %v, want %v", c.o.ISA, c.o.Precision, c.o.Activations, !c.packed, c.packed)
		}
	}
}

// TestOutputs requests values from inside a layer. The plan outputs them, and ops that they keep
// from fusing run on reference kernels.
func TestOutputs(t *testing.T) {
	m := tinyModel(t, tiny.Config{Arch: "gemma3", Layers: 2})
	p := compile(t, m, Options{Outputs: []string{"blk.*.out", "blk.1.*"}, Verify: true})
	found := map[string]bool{}
	for _, b := range p.Buffers {
		if b.Class == plan.IO {
			found[b.Name] = true
		}
	}
	for _, name := range []string{"blk.0.out", "blk.1.out", "blk.1.scores", "blk.1.q_rope", "logits"} {
		if !found[name] {
			t.Errorf("no io buffer for %s", name)
		}
	}
	if f := p.Fusions; f.Attention != 1 || f.GatedMLP != 1 {
		t.Errorf("fusions %+v, want those of layer 0 alone", f)
	}
	if _, err := Compile(m, Options{Outputs: []string{"blk.9.*"}}); err == nil || !strings.Contains(err.Error(), `"blk.9.*" matches no value`) {
		t.Errorf("error %v", err)
	}
}

func TestPrograms(t *testing.T) {
	m := tinyModel(t, tiny.Config{})
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "decode 1-1 small 2-31 prefill 32-256"},
		{Options{Ubatch: 31}, "decode 1-1 small 2-31"},
		{Options{Ubatch: 1}, "decode 1-1"},
		{Options{Sequences: 4, Ubatch: 40}, "decode 1-4 small 5-31 prefill 32-40"},
		{Options{Sequences: 32, Ubatch: 64}, "decode 1-32 prefill 33-64"},
	} {
		var got []string
		p := compile(t, m, c.o)
		for _, prog := range p.Programs {
			got = append(got, prog.Name+" "+strconv.FormatInt(prog.MinT, 10)+"-"+strconv.FormatInt(prog.MaxT, 10))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%+v: programs %s, want %s", c.o, s, c.want)
		}
	}
}

func TestOptionErrors(t *testing.T) {
	m := tinyModel(t, tiny.Config{})
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Target: "tpu"}, `Target is "tpu"`},
		{Options{ISA: "sse"}, `ISA is "sse"`},
		{Options{Precision: "best"}, `Precision is "best"`},
		{Options{KV: "q4_0"}, `KV is "q4_0"`},
		{Options{Activations: "q4"}, `Activations is "q4", expected auto, q8x2, mixed or q8`},
		{Options{Activations: "q8", Target: "cuda"}, `Activations is "q8", expected auto or q8x2, since Target is cuda`},
		{Options{KV: "q8_0", Target: "cuda"}, `KV is "q8_0", expected f32, f16 or fp8, since Target is cuda`},
		{Options{Split: "tensor", Target: "cuda"}, "Split is tensor, expected Devices 2 or more"},
		{Options{Activations: "q8", Precision: "exact"}, "Activations is q8, expected auto, since Precision is exact"},
		{Options{KV: "q8_0"}, `KV is "q8_0", expected f32, f16 or fp8, since the 16 elements of a head are no multiple of 32`},
		{Options{Ctx: 257}, "Ctx is 257, expected 1 to 256"},
		{Options{Ctx: -1}, "Ctx is -1"},
		{Options{Ubatch: 1 << 20}, "Ubatch is 1048576"},
		{Options{Threads: -2}, "Threads is -2"},
		{Options{Sequences: 300}, "Sequences is 300, expected at most Ubatch 256"},
		{Options{Rows: -1}, "Rows is -1"},
		{Options{Tiles: "on", Target: "cuda"}, "Tiles is on, expected off, since Target is cuda"},
		{Options{Tiles: "on", Ubatch: 63}, "Tiles is on, expected off, since they take 64 tokens"},
		{Options{Target: "cuda", Host: &Host{GPULayers: 1, Threads: -2}}, "Threads is -2, expected 1 to 1024"},
		{Options{Target: "cuda", Host: &Host{GPULayers: 1, Threads: 1 << 20}}, "Threads is 1048576, expected 1 to 1024"},
		{Options{Target: "cuda", Host: &Host{GPULayers: 1, ISA: "sm_75"}}, `the processor's instruction set is "sm_75"`},
		{Options{Passes: "-nothing"}, `found "-nothing"`},
	} {
		if _, err := Compile(m, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want one with %q", c.o, err, c.want)
		}
	}
}

// A step has at most as many rows of logits as tokens, whatever the options ask for.
func TestRows(t *testing.T) {
	m := tinyModel(t, tiny.Config{})
	for _, c := range []struct{ rows, ubatch, sequences, want int64 }{
		{0, 0, 0, 8}, {0, 4, 0, 4}, {0, 0, 12, 12}, {3, 4, 0, 3}, {4, 4, 0, 4}, {5, 4, 0, 4}, {1000, 0, 0, 256},
	} {
		res, err := Compile(m, Options{Rows: c.rows, Ubatch: c.ubatch, Sequences: c.sequences})
		if err != nil || res.Plan.Target.Rows != c.want {
			t.Errorf("%+v: %v, %v", c, res, err)
		}
	}
}

// TestSquare multiplies a value by itself: the product must not overwrite its own operand.
func TestSquare(t *testing.T) {
	m := tinyModel(t, tiny.Config{})
	o := Options{Ubatch: 64, Rows: 8, Sequences: 1, Ctx: 64, Verify: true}
	g, err := m.Graph(frontend.Bounds{Tokens: 64, Sequences: 1, Rows: 8, Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range slices.Clone(g.Nodes) {
		if n.Op == ops.SiLU {
			product := g.Uses()[n.Out[0]][0]
			out, err := g.Insert(product, ops.Mul, []*graph.Value{n.Out[0], n.Out[0]}, nil, n.Name()+".squared")
			if err != nil {
				t.Fatal(err)
			}
			product.In[slices.Index(product.In, n.Out[0])] = out[0]
		}
	}
	g.Renumber()
	if _, err := CompileGraph(m, g, o); err != nil {
		t.Error(err)
	}
}

// The word fp8 of options is the format f8_e4m3 of plans.
func TestFP8Word(t *testing.T) {
	m := tinyModel(t, tiny.Config{})
	for _, word := range []string{"fp8", "f8_e4m3"} {
		r, err := Compile(m, Options{KV: word, Ctx: 32})
		if err != nil || r.Plan.Target.KV != "f8_e4m3" {
			t.Errorf("KV %s: %v", word, err)
		}
	}
}
