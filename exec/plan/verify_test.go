package plan_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

func TestVerifyAcceptsValidPlans(t *testing.T) {
	for _, layers := range []int{0, 1, 2, 24} {
		if err := plan.Verify(plantest.Plan(layers)); err != nil {
			t.Errorf("%d layers: %v", layers, err)
		}
		if err := plan.Verify(plantest.DumpingPlan(layers)); err != nil {
			t.Errorf("%d layers with outputs: %v", layers, err)
		}
	}
}

// An editor edits parts of a plan by name, so that each test names the part that it breaks.
type editor struct {
	*plan.Plan
	t *testing.T
}

func (e editor) program(name string) *plan.Program {
	for i := range e.Programs {
		if e.Programs[i].Name == name {
			return &e.Programs[i]
		}
	}
	e.t.Fatalf("no program %s", name)
	return nil
}

// chunked adds a copy of prefill for chunks of a number of tokens.
func (e editor) chunked(chunk int64) *plan.Program {
	g := *e.program("prefill")
	g.Name, g.Chunk, g.MinT = "tiles", chunk, chunk
	e.Programs = append(e.Programs, g)
	return &e.Programs[len(e.Programs)-1]
}

// step returns a step of the decode program.
func (e editor) step(name string) *plan.Step { return e.stepOf("decode", name) }

func (e editor) stepOf(program, name string) *plan.Step {
	g := e.program(program)
	for i := range g.Waves {
		for j := range g.Waves[i].Steps {
			if st := &g.Waves[i].Steps[j]; st.Name == name {
				return st
			}
		}
	}
	e.t.Fatalf("no step %s", name)
	return nil
}

func (e editor) arg(step, role string) *plan.Arg {
	st := e.step(step)
	for i := range st.Args {
		if st.Args[i].Role == role {
			return &st.Args[i]
		}
	}
	e.t.Fatalf("no operand %s in step %s", role, step)
	return nil
}

func (e editor) param(step, name string) *plan.Param { return e.paramOf("decode", step, name) }

func (e editor) paramOf(program, step, name string) *plan.Param {
	st := e.stepOf(program, step)
	for i := range st.Params {
		if st.Params[i].Name == name {
			return &st.Params[i]
		}
	}
	e.t.Fatalf("no parameter %s in step %s", name, step)
	return nil
}

// buffer returns a buffer of all programs or of the decode program.
func (e editor) buffer(name string) *plan.Buffer {
	for _, list := range [][]plan.Buffer{e.Buffers, e.program("decode").Buffers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	e.t.Fatalf("no buffer %s", name)
	return nil
}

// shareTable adds a table that no step touches.
func (e editor) shareTable(name string, size int64) {
	id := len(e.Buffers)
	for i := range e.Programs {
		g := &e.Programs[i]
		renumbered := func(at *int) {
			if *at >= id {
				*at++
			}
		}
		for j := range g.Buffers {
			renumbered(&g.Buffers[j].ID)
		}
		for w := range g.Waves {
			for s := range g.Waves[w].Steps {
				st := &g.Waves[w].Steps[s]
				renumbered(&st.Scratch)
				for a := range st.Args {
					renumbered(&st.Args[a].Buffer)
				}
			}
		}
	}
	e.Buffers = append(e.Buffers, plan.Buffer{ID: id, Class: plan.Table, Name: name, Format: "f32", Elems: "1", Size: size})
	e.Memory.Tables += size
}

func (e editor) weight(name string) *plan.Weight {
	for i := range e.Weights {
		if e.Weights[i].Name == name {
			return &e.Weights[i]
		}
	}
	e.t.Fatalf("no weight %s", name)
	return nil
}

// resize changes the number of elements of an output.
func (e editor) resize(name, elems string) {
	b, scope := e.buffer(name), e.Scope(nil)
	n, err := scope.Eval(elems)
	if err != nil {
		e.t.Fatal(err)
	}
	e.Memory.IO += 4*n - b.Size
	b.Elems, b.Size = elems, 4*n
}

func (e editor) drop(step, role string) {
	st := e.step(step)
	for i := range st.Args {
		if st.Args[i].Role == role {
			st.Args = append(st.Args[:i:i], st.Args[i+1:]...)
			return
		}
	}
	e.t.Fatalf("no operand %s in step %s", role, step)
}

// merge moves the steps of the decode program's wave w+1 to the end of wave w.
func (e editor) merge(w int) {
	g := e.program("decode")
	g.Waves[w].Steps = append(g.Waves[w].Steps, g.Waves[w+1].Steps...)
	g.Waves = append(g.Waves[:w+1], g.Waves[w+2:]...)
}

// Known ways to break a plan. Each makes one change to a valid plan, which Verify must refuse with
// an error that names the place.
var broken = []struct {
	name string
	edit func(editor)
	want []string // parts of the message
}{
	// Plan.
	{"version", func(e editor) { e.Version = 1 }, []string{"version is 1, expected 2"}},
	{"no model size", func(e editor) { e.Model.Size = 0 }, []string{"model", "size is 0"}},
	{"backend", func(e editor) { e.Target.Backend = "tpu" }, []string{"backend", `"tpu"`, "cpu"}},
	{"instruction set", func(e editor) { e.Target.ISA = "amx9" }, []string{"instruction set", `"amx9"`, "portable"}},
	{"precision", func(e editor) { e.Target.Precision = "half" }, []string{"precision", `"half"`}},
	{"cache format", func(e editor) { e.Target.KV = "q4_0" }, []string{"kv", `"q4_0"`}},
	{"cache of half blocks", func(e editor) {
		e.Target.KV = "q8_0"
		for i := range e.Buffers {
			if b := &e.Buffers[i]; b.Class == plan.State {
				b.Format = "q8_0"
			}
		}
	}, []string{"blk.0.attn", "kcache", "16 elements", "q8_0", "a multiple of 32"}},
	{"another cache format", func(e editor) { e.Target.KV = "f32" }, []string{"blk.0.cache_k", "f16", "f32"}},
	{"no threads", func(e editor) { e.Target.Threads = 0 }, []string{"threads is 0"}},
	{"more threads than copies", func(e editor) { e.Target.Threads = 3 }, []string{"size", "expected at least"}},
	{"absurd threads", func(e editor) { e.Target.Threads = plan.MaxThreads + 1 }, []string{"threads is 1025", "at most 1024"}},
	{"five dims", func(e editor) { e.Weights[0].Dims = []int64{1, 1, 1, 1, 1} }, []string{"weight", "5 dims, expected 1 to 4"}},
	{"absurd sequences", func(e editor) { e.Target.Sequences = 1 << 17 }, []string{"sequences is 131072", "at most 65536"}},
	{"larger ubatch than programs", func(e editor) { e.Target.Ubatch = 64 }, []string{"tokens"}},
	{"larger context", func(e editor) { e.Target.Ctx = 64 }, []string{"pages"}},
	{"more sequences", func(e editor) { e.Target.Sequences = 2 }, []string{"pages"}},
	{"no programs", func(e editor) { e.Programs = nil }, []string{"no programs"}},
	{"gap between programs", func(e editor) { e.program("prefill").MinT = 3 }, []string{"program prefill", "3 to 32"}},
	{"programs end early", func(e editor) { e.Programs = e.Programs[:1] }, []string{"up to 1 tokens", "ubatch 32"}},
	{"empty range", func(e editor) { e.program("prefill").MaxT = 1 }, []string{"program prefill", "2 to 1"}},
	{"two programs of one name", func(e editor) { e.program("prefill").Name = "decode" }, []string{`program "decode"`}},
	{"a chunk that does not divide the bound", func(e editor) { e.chunked(16).MaxT = 31 }, []string{"program tiles", "16 to 31", "a multiple"}},
	{"a chunk that is not the least", func(e editor) { e.chunked(16).MinT = 1 }, []string{"program tiles", "1 to 32", "from one chunk of 16"}},
	{"chunks beyond ubatch", func(e editor) { e.chunked(16).MaxT = 48 }, []string{"program tiles", "16 to 48", "ubatch 32"}},
	{"a chunk beyond ubatch", func(e editor) { e.chunked(33) }, []string{"program tiles", "chunk is 33", "32"}},
	{"no chunk", func(e editor) { e.chunked(-16) }, []string{"program tiles", "chunk is -16"}},
	{"two chunks", func(e editor) { e.chunked(16); e.chunked(8).Name = "more" }, []string{"program more", "as tiles does"}},
	{"chunks alone", func(e editor) { e.chunked(16); e.Programs = slices.Delete(e.Programs, 1, 2) }, []string{"up to 1 tokens", "ubatch 32"}},
	{"no rows", func(e editor) { e.program("decode").MaxR = 0 }, []string{"program decode", "0 rows"}},
	{"more rows than the logits hold", func(e editor) { e.program("prefill").MaxR = 5 }, []string{"program prefill", "5 rows"}},
	{"fusion count", func(e editor) { e.Fusions.QKV++ }, []string{"fusions"}},
	{"memory weight", func(e editor) { e.Memory.Weight-- }, []string{"memory", "weight"}},
	{"memory state", func(e editor) { e.Memory.State++ }, []string{"memory", "state"}},
	{"memory io", func(e editor) { e.Memory.IO++ }, []string{"memory", "io"}},
	{"larger arena", func(e editor) { e.Memory.Arena += 64 }, []string{"memory", "arena"}},
	{"smaller arena", func(e editor) { e.Memory.Arena -= 64 }, []string{"inside the arena"}},
	{"lower bound", func(e editor) { e.Memory.ArenaLowerBound-- }, []string{"memory", "arena_lower_bound"}},
	{"unshared", func(e editor) { e.Memory.ArenaUnshared-- }, []string{"memory", "arena_unshared"}},
	{"packed", func(e editor) { e.Memory.Packed = -1 }, []string{"memory", "packed"}},
	{"sizes that overflow", func(e editor) {
		e.weight("token_embd.weight").Size = math.MaxInt64
	}, []string{"memory", "add up"}},

	// Weights.
	{"weight listed twice", func(e editor) { e.Weights = append(e.Weights, e.Weights[0]) }, []string{"token_embd.weight", "twice"}},
	{"weight that no step reads", func(e editor) {
		e.Weights = append(e.Weights, plan.Weight{Name: "idle", Type: "f32", Dims: []int64{1}, Size: 4})
		e.Memory.Weight += 4
	}, []string{"weight idle", "no step reads it"}},
	{"weight of no size", func(e editor) { e.weight("output_norm.weight").Size = 0 }, []string{"output_norm.weight", "size 0"}},
	{"weight without dims", func(e editor) { e.weight("output_norm.weight").Dims = nil }, []string{"output_norm.weight", "dims []"}},
	{"weight with a negative dim", func(e editor) { e.weight("output_norm.weight").Dims = []int64{-1, -64} }, []string{"output_norm.weight", "dims [-1 -64]"}},
	{"fewer rows in a weight", func(e editor) { e.weight("token_embd.weight").Dims[0]-- }, []string{"token_embd.weight", "[99 64]", "[100 64]"}},
	{"weight on its side", func(e editor) { e.weight("blk.0.ffn_up.weight").Dims = []int64{64, 96} }, []string{"blk.0.ffn_act", "[64 96]", "[96 64]"}},
	{"weight of another type", func(e editor) { e.weight("blk.0.ffn_up.weight").Type = "q8_0" }, []string{"blk.0.ffn_act", "kernel", "q8_0"}},
	{"FP8 without a file", func(e editor) { e.weight("blk.0.ffn_up.weight").Type = "f8_e4m3" }, []string{"blk.0.ffn_up.weight", "f8_e4m3", "no sidecar"}},
	{"a file without FP8", func(e editor) { e.Sidecar = plan.Sidecar{File: "a.safetensors", Size: 1} }, []string{"sidecar", "no weight is f8_e4m3"}},
	{"FP8 in an empty file", func(e editor) {
		e.Sidecar = plan.Sidecar{File: "a.safetensors"}
		e.weight("blk.0.ffn_up.weight").Type = "f8_e4m3"
	}, []string{"blk.0.ffn_up.weight", "no sidecar"}},
	{"quantized norm", func(e editor) { e.weight("output_norm.weight").Type = "q8_0" }, []string{"output_norm", `"q8_0"`}},
	{"unknown weight", func(e editor) { e.arg("output_norm", "w").Weight = "nothing" }, []string{"output_norm", "operand w", `"nothing"`}},
	{"buffer for a weight", func(e editor) { e.arg("output_norm", "w").Buffer = 0 }, []string{"output_norm", "operand w", "buffer b0"}},
	{"weight for a buffer", func(e editor) {
		*e.arg("output_norm", "x") = plan.Arg{Role: "x", Buffer: -1, Weight: "output_norm.weight"}
	}, []string{"output_norm", "operand x"}},
	{"no matmul kernel", func(e editor) { e.arg("logits", "w0").Kernel = "" }, []string{"logits", "operand w0", "gemv.q8_0.q8x2"}},
	{"matmul kernel for float activations", func(e editor) { e.arg("logits", "w0").Kernel = "gemv.q8_0.f32" }, []string{"logits", "operand w0", "gemv.q8_0.f32"}},
	{"matmul kernel for a norm", func(e editor) { e.arg("output_norm", "w").Kernel = "gemv.f32.f32" }, []string{"output_norm", "operand w"}},

	// Buffers.
	{"buffer id", func(e editor) { e.buffer("blk.0.q").ID++ }, []string{"blk.0.q", "expected id"}},
	{"shared buffer id", func(e editor) { e.buffer("seq").ID++ }, []string{"seq", "expected id"}},
	{"class", func(e editor) { e.buffer("blk.0.q").Class = plan.IO }, []string{"blk.0.q", "class"}},
	{"shared arena", func(e editor) { e.buffer("logits").Class = plan.Arena }, []string{"logits", "class"}},
	{"names", func(e editor) { e.buffer("logits").Name = "tokens" }, []string{"tokens", "twice"}},
	{"offset outside the arena", func(e editor) { e.buffer("logits").Offset = 64 }, []string{"logits", "outside the arena"}},
	{"format", func(e editor) { e.buffer("blk.0.q").Format = "f64" }, []string{"blk.0.q", "f64"}},
	{"format of ids", func(e editor) { e.buffer("tokens").Format = "f32" }, []string{"tokens", "caller fills"}},
	{"too few ids", func(e editor) { e.buffer("pages").Elems = "P-1" }, []string{"pages", "formula"}},
	{"fewer ids", func(e editor) { e.buffer("rows").Elems = "2" }, []string{"rows", "caller fills"}},
	{"elems", func(e editor) { e.buffer("blk.0.q").Elems = "T*63" }, []string{"blk.0.q", "63", "64"}},
	{"more elems than bytes", func(e editor) { e.buffer("blk.0.q").Elems = "T*65" }, []string{"blk.0.q", "size is 256"}},
	{"elems that overflow", func(e editor) { e.buffer("blk.0.q").Elems = "T*9223372036854775807*2" }, []string{"blk.0.q", "exceeds"}},
	{"bytes that overflow", func(e editor) { e.buffer("blk.0.q").Elems = "T*9223372036854775807" }, []string{"blk.0.q", "exceed"}},
	{"elems unknown", func(e editor) { e.buffer("blk.0.q").Elems = "M*64" }, []string{"blk.0.q", "M is not known"}},
	{"no elems", func(e editor) { e.buffer("blk.0.q").Elems = "0" }, []string{"blk.0.q", "elements is 0"}},
	{"size", func(e editor) { e.buffer("blk.0.q").Size-- }, []string{"blk.0.q", "size is 255"}},
	{"state size", func(e editor) { e.buffer("blk.0.cache_k").Size-- }, []string{"blk.0.cache_k", "size"}},
	{"state of other positions", func(e editor) {
		b := e.buffer("blk.0.cache_k")
		b.Elems, b.Size = "S*64*32", 64*32*2
		e.Memory.State += 16 * 32 * 2
	}, []string{"blk.0.attn", "kcache", "agree on a state"}},
	{"table on the processor", func(e editor) { e.shareTable("sines", math.MaxInt64/64*64) }, []string{"sines", "class", "processor"}},
	{"stride", func(e editor) { e.buffer("embd").Stride -= 64 }, []string{"embd", "stride is 192"}},
	{"stride not aligned", func(e editor) { e.buffer("embd").Stride++ }, []string{"embd", "stride is 257"}},
	{"stride that overflows", func(e editor) { e.buffer("embd").Stride = math.MaxInt64 / 64 * 64 }, []string{"embd", "stride"}},
	{"stride of one copy", func(e editor) { e.buffer("blk.0.q").Stride = 64 }, []string{"blk.0.q", "stride"}},
	{"room for one copy", func(e editor) { e.buffer("embd").Size = 256 }, []string{"embd", "size is 256"}},
	{"alignment", func(e editor) { e.buffer("blk.0.q").Offset += 4 }, []string{"blk.0.q", "multiple of 64"}},
	{"negative offset", func(e editor) { e.buffer("blk.0.q").Offset = -64 }, []string{"blk.0.q", "offset is -64"}},
	{"offset at the end", func(e editor) { e.buffer("blk.0.q").Offset = e.Memory.Arena }, []string{"blk.0.q", "inside the arena"}},
	{"offset that overflows", func(e editor) { e.buffer("blk.0.q").Offset = math.MaxInt64 - 63 }, []string{"blk.0.q", "inside the arena"}},
	{"overlap", func(e editor) { e.buffer("blk.0.k").Offset = e.buffer("blk.0.q").Offset }, []string{"wave", "blk.0.q", "blk.0.k", "overlap"}},
	{"overlap by a byte", func(e editor) { e.buffer("blk.0.q").Size = 257 }, []string{"overlap"}},
	{"lifetime starts late", func(e editor) { e.buffer("blk.0.q").First++ }, []string{"blk.0.q", "[3,4)", "[2,4)"}},
	{"lifetime ends early", func(e editor) { e.buffer("blk.0.q").Last-- }, []string{"blk.0.q", "[2,3)", "[2,4)"}},
	{"idle buffer", func(e editor) {
		g := e.program("decode")
		b := g.Buffers[0]
		b.ID, b.Name = len(e.Buffers)+len(g.Buffers), "idle"
		g.Buffers = append(g.Buffers, b)
	}, []string{"idle", "no step touches it"}},

	// Steps.
	{"step id", func(e editor) { e.step("blk.0.attn").ID++ }, []string{"blk.0.attn", "expected id 3"}},
	{"layer", func(e editor) { e.step("blk.0.attn").Layer = -2 }, []string{"blk.0.attn", "layer is -2"}},
	{"absurd layer", func(e editor) { e.step("blk.0.attn").Layer = 1 << 30 }, []string{"blk.0.attn", "layer is 1073741824"}},
	{"kernel", func(e editor) { e.step("blk.0.attn").Kernel = "attentive" }, []string{"blk.0.attn", `"attentive"`}},
	{"rows", func(e editor) { e.step("blk.0.attn").Rows = "R" }, []string{"blk.0.attn", "rows"}},
	{"rows of nothing", func(e editor) { e.step("output_norm").Rows = "" }, []string{"output_norm", "rows"}},
	{"split within a block", func(e editor) {
		e.arg("blk.0.ffn_out", "x").Buffer = e.arg("blk.0.ffn_act", "y").Buffer
		e.buffer("blk.0.ffn_act").Format, e.buffer("blk.0.ffn_act").Size = "q8x2", 76*3
	}, []string{"blk.0.ffn_act", "shared by 16", "multiple of 32", "q8x2"}},
	{"split", func(e editor) { e.step("blk.0.attn").Split.By = "tokens" }, []string{"blk.0.attn", "split", "tokens"}},
	{"no share", func(e editor) { e.step("blk.0.attn").Split.Unit = 0 }, []string{"blk.0.attn", "unit"}},
	{"huge share", func(e editor) { e.step("blk.0.attn").Split.Unit = math.MaxInt64 }, []string{"blk.0.attn", "unit"}},
	{"operand missing", func(e editor) { e.drop("blk.0.attn", "pages") }, []string{"blk.0.attn", "pages is missing"}},
	{"output missing", func(e editor) { e.drop("blk.0.qkv", "out2") }, []string{"blk.0.qkv", "out2 is missing"}},
	{"operand unknown", func(e editor) { e.arg("blk.0.attn", "out").Role = "y" }, []string{"blk.0.attn", "out is missing"}},
	{"operand twice", func(e editor) {
		st := e.step("blk.0.attn")
		st.Args = append(st.Args, st.Args[len(st.Args)-1])
	}, []string{"blk.0.attn", "out does not belong"}},
	{"operands out of order", func(e editor) {
		st := e.step("blk.0.attn")
		st.Args[0], st.Args[1] = st.Args[1], st.Args[0]
	}, []string{"blk.0.attn", "q is missing"}},
	{"no operands", func(e editor) { e.step("blk.0.qkv").Args = nil }, []string{"blk.0.qkv", "x is missing"}},
	{"buffer that does not exist", func(e editor) { e.arg("blk.0.attn", "q").Buffer = 1 << 20 }, []string{"blk.0.attn", "operand q", "does not exist"}},
	{"negative buffer", func(e editor) { e.arg("blk.0.attn", "q").Buffer = -7 }, []string{"blk.0.attn", "operand q", "does not exist"}},
	{"buffer of another format", func(e editor) { e.arg("output_norm", "x").Buffer = e.buffer("blk.0.attn_norm").ID }, []string{"output_norm", "operand x", "q8x2"}},
	{"buffer too small", func(e editor) { e.arg("blk.0.attn", "q").Buffer = e.buffer("blk.0.k").ID }, []string{"blk.0.attn", "operand q", "holds 32 elements", "64"}},
	{"parameter missing", func(e editor) {
		st := e.step("blk.0.attn")
		st.Params = st.Params[1:]
	}, []string{"blk.0.attn", "heads is missing"}},
	{"parameter twice", func(e editor) {
		st := e.step("blk.0.attn")
		st.Params = append(st.Params, st.Params[0])
	}, []string{"blk.0.attn", "parameters"}},
	{"number for an integer", func(e editor) { e.param("blk.0.attn", "heads").Value = 4.0 }, []string{"blk.0.attn", "heads is 4, expected an integer of at least 1, written without a point"}},
	{"integer for a number", func(e editor) { e.param("blk.0.attn", "base").Value = int64(2) }, []string{"blk.0.attn", "base is 2, expected a number from 0 to 1e+18, written with a point, such as 2.0"}},
	{"parameter that hides a bound", func(e editor) { e.param("blk.0.attn", "heads").Name = "M" }, []string{"blk.0.attn", "heads is missing"}},
	{"more heads", func(e editor) { e.param("blk.0.attn", "heads").Value = int64(8) }, []string{"blk.0.attn", "operand q", "128"}},
	{"no heads", func(e editor) { e.param("blk.0.attn", "kv_heads").Value = int64(0) }, []string{"blk.0.attn", "kv_heads is 0"}},
	{"negative heads", func(e editor) { e.param("blk.0.attn", "heads").Value = int64(-4) }, []string{"blk.0.attn", "heads is -4"}},
	{"uneven heads", func(e editor) { e.param("blk.0.attn", "heads").Value = int64(3) }, []string{"blk.0.attn", "heads is 3"}},
	{"rotation beyond the head", func(e editor) { e.param("blk.0.attn", "rot").Value = int64(18) }, []string{"blk.0.attn", "rot is 18"}},
	{"fewer positions", func(e editor) { e.param("blk.0.attn", "positions").Value = int64(32) }, []string{"blk.0.attn", "positions is 32"}},
	{"ring", func(e editor) { e.param("blk.0.attn", "ring").Value = int64(2) }, []string{"blk.0.attn", "ring is 2"}},
	{"layout", func(e editor) { e.param("blk.0.attn", "layout").Value = "thirds" }, []string{"blk.0.attn", "layout"}},
	{"activation", func(e editor) { e.param("blk.0.ffn_act", "act").Value = "tanh" }, []string{"blk.0.ffn_act", "act"}},
	{"not a number", func(e editor) { e.param("output_norm", "eps").Value = math.NaN() }, []string{"output_norm", "eps"}},
	{"infinite", func(e editor) { e.param("blk.0.attn", "base").Value = math.Inf(1) }, []string{"blk.0.attn", "base"}},
	{"norm without epsilon", func(e editor) { e.param("output_norm", "eps").Value = 0.0 }, []string{"output_norm", "eps is 0, expected a number from 1e-30"}},
	{"epsilon below 0", func(e editor) { e.param("blk.0.attn", "eps").Value = -1e-6 }, []string{"blk.0.attn", "eps is -1e-06"}},
	{"base 0", func(e editor) { e.param("blk.0.attn", "base").Value = 0.0 }, []string{"blk.0.attn", "base is 0, expected at least 1e-18"}},
	{"base below 0", func(e editor) { e.param("blk.0.attn", "base").Value = -1.0 }, []string{"blk.0.attn", "base is -1"}},
	{"huge base", func(e editor) { e.param("blk.0.attn", "base").Value = 1e300 }, []string{"blk.0.attn", "base is 1e+300, expected a number from 0 to 1e+18"}},
	{"huge speed", func(e editor) { e.param("blk.0.attn", "freq_scale").Value = 1e308 }, []string{"blk.0.attn", "freq_scale is 1e+308"}},
	{"no speed", func(e editor) { e.param("blk.0.attn", "freq_scale").Value = 0.0 }, []string{"blk.0.attn", "freq_scale is 0"}},
	{"huge ramp", func(e editor) { e.param("blk.0.attn", "ramp_high").Value = 1e308 }, []string{"blk.0.attn", "ramp_high is 1e+308"}},
	{"ramp below 0", func(e editor) { e.param("blk.0.attn", "ramp_low").Value = -1.0 }, []string{"blk.0.attn", "ramp_low is -1"}},
	{"huge magnitude", func(e editor) { e.param("blk.0.attn", "magnitude").Value = 1e200 }, []string{"blk.0.attn", "magnitude is 1e+200"}},
	{"no magnitude", func(e editor) { e.param("blk.0.attn", "magnitude").Value = 0.0 }, []string{"blk.0.attn", "magnitude is 0"}},
	{"huge scale", func(e editor) { e.param("blk.0.attn", "scale").Value = 1e39 }, []string{"blk.0.attn", "scale is 1e+39"}},
	{"scale that float32 lacks", func(e editor) { e.param("embd", "scale").Value = -1e39 }, []string{"embd", "scale is -1e+39"}},
	{"exact on rounded activations", func(e editor) { e.Target.Precision = "exact" }, []string{"blk.0.attn_norm", "operand y", "format is q8x2", "precision is exact"}},
	{"larger vocabulary", func(e editor) { e.param("embd", "vocab").Value = int64(101) }, []string{"embd", "table", "101"}},
	{"longer rows", func(e editor) { e.param("blk.0.ffn_out", "k").Value = int64(128) }, []string{"blk.0.ffn_out", "operand x"}},
	{"product that overflows", func(e editor) { e.param("blk.0.attn.q8", "n").Value = int64(math.MaxInt64) }, []string{"blk.0.attn.q8", "holds 64"}},
	{"no scratch", func(e editor) {
		st := e.step("blk.0.attn")
		st.Scratch = -1
	}, []string{"blk.0.attn", "scratch"}},
	{"scratch of another step", func(e editor) { e.step("blk.0.attn").Scratch = e.step("blk.0.qkv").Scratch }, []string{"blk.0.attn", "scratch", "of its own"}},
	{"scratch that does not exist", func(e editor) { e.step("blk.0.attn").Scratch = 1 << 20 }, []string{"blk.0.attn", "does not exist"}},
	{"scratch of one copy", func(e editor) { e.step("blk.0.attn").Scratch = e.buffer("blk.0.q").ID }, []string{"blk.0.attn", "one copy"}},
	{"scratch too small", func(e editor) { e.step("blk.0.attn").Scratch = e.buffer("blk.0.attn.q8").ID }, []string{"blk.0.attn", "scratch", "bytes for each worker"}},
	{"scratch where none is wanted", func(e editor) { e.step("blk.0.attn.q8").Scratch = e.buffer("embd").ID }, []string{"blk.0.attn.q8", "scratch"}},
	{"scratch as an operand", func(e editor) {
		st := e.step("blk.0.attn.q8")
		b := e.buffer("blk.0.attn_norm.scratch")
		st.Args[0].Buffer = b.ID
		b.Format = "f32"
	}, []string{"blk.0.attn.q8", "scratch of a step"}},

	// Inputs that addresses are computed from. The executor checks each against its own range.
	{"tokens for pages", func(e editor) { e.arg("blk.0.attn", "pages").Buffer = e.buffer("tokens").ID }, []string{"blk.0.attn", "operand pages", `"tokens"`, `expected the io buffer "pages"`}},
	{"tokens for sequences", func(e editor) { e.arg("blk.0.attn", "seq").Buffer = e.buffer("tokens").ID }, []string{"blk.0.attn", "operand seq", `expected the io buffer "seq"`}},
	{"tokens for positions", func(e editor) { e.arg("blk.0.attn", "pos").Buffer = e.buffer("tokens").ID }, []string{"blk.0.attn", "operand pos", `expected the io buffer "pos"`}},
	{"sequences for positions", func(e editor) { e.arg("blk.0.attn", "pos").Buffer = e.buffer("seq").ID }, []string{"blk.0.attn", "operand pos", `expected the io buffer "pos"`}},
	{"positions for rows", func(e editor) { e.arg("picked", "rows").Buffer = e.buffer("pos").ID }, []string{"picked", "operand rows", `expected the io buffer "rows"`}},
	{"positions for tokens", func(e editor) { e.arg("embd", "tokens").Buffer = e.buffer("pos").ID }, []string{"embd", "operand tokens", `expected the io buffer "tokens"`}},

	// Interference between steps.
	{"read before any write", func(e editor) { e.arg("blk.0.attn_norm", "x").Buffer = e.buffer("blk.0.attn_out").ID }, []string{"blk.0.attn_norm", "operand x", "holds 0 values"}},
	{"read of what no step wrote to the end", func(e editor) {
		e.param("blk.0.attn.q8", "n").Value = int64(32)
	}, []string{"blk.0.attn_out", "operand x", "holds 32 values", "64"}},
	{"rows of logits read as tokens", func(e editor) { e.step("output_norm").Rows = "T" }, []string{"output_norm", "operand x", "holds 0 values", "1 tokens and 0 rows", "expected 64"}},
	{"tokens read as rows of logits", func(e editor) {
		// There may be more rows than tokens, since a token's logits may be requested twice.
		e.stepOf("prefill", "output_norm").Args[0].Buffer = e.stepOf("prefill", "blk.0.ffn_norm").Args[0].Buffer
	}, []string{"program prefill", "output_norm", "operand x", "holds 64 values", "1 tokens and 4 rows", "expected 256"}},
	{"state of longer rows in one program", func(e editor) {
		e.paramOf("prefill", "blk.0.attn", "kv_heads").Value = int64(1)
		e.paramOf("prefill", "blk.0.attn", "positions").Value = int64(96)
	}, []string{"program prefill", "blk.0.attn", "operand kcache", "96 positions of 16 elements", "48 of 32", "agree on a state"}},
	{"state by fewer heads in one program", func(e editor) {
		e.paramOf("prefill", "blk.0.attn", "kv_heads").Value = int64(1)
		e.paramOf("prefill", "blk.0.attn", "heads").Value = int64(2)
		e.paramOf("prefill", "blk.0.attn", "head_dim").Value = int64(32)
	}, []string{"program prefill", "blk.0.attn", "operand kcache", "pages by 1 heads", "by 2 heads", "agree on a state"}},
	{"ring in one program", func(e editor) {
		e.paramOf("prefill", "blk.0.attn", "window").Value = int64(40)
		e.paramOf("prefill", "blk.0.attn", "ring").Value = int64(1)
	}, []string{"program prefill", "blk.0.attn", "operand kcache", "ring 1", "ring 0", "agree on a state"}},
	{"state for a value", func(e editor) {
		e.Target.KV = "f32"
		for i := range e.Buffers {
			if b := &e.Buffers[i]; b.Class == plan.State {
				e.Memory.State += b.Size
				b.Format, b.Size = "f32", 2*b.Size
			}
		}
		e.arg("output_norm", "x").Buffer = e.buffer("blk.0.cache_k").ID
	}, []string{"output_norm", "operand x", "class is state"}},
	{"steps of one wave race", func(e editor) { e.merge(0) }, []string{"blk.0.attn", "operand q", "barrier"}},
	{"write after read in one wave", func(e editor) {
		// The product of wave 2, now in wave 1, overwrites k, which the attention of wave 1 reads.
		e.arg("blk.0.attn_out", "out0").Buffer = e.buffer("blk.0.q").ID
		e.arg("blk.0.attn.q8", "x").Buffer = e.buffer("blk.0.q").ID
		e.merge(1)
	}, []string{"blk.0.attn_out", "out0", "barrier"}},
	{"input is written", func(e editor) { e.arg("blk.0.attn", "out").Buffer = e.buffer("pos").ID }, []string{"blk.0.attn", "operand out"}},
	{"cache that is no state", func(e editor) {
		b := e.buffer("logits")
		b.Elems, b.Size = "R*400", 4*400*4
		e.arg("blk.0.attn", "kcache").Buffer = b.ID
	}, []string{"blk.0.attn", "kcache", "class is io"}},
	{"one state twice", func(e editor) { e.arg("blk.0.attn", "vcache").Buffer = e.arg("blk.0.attn", "kcache").Buffer }, []string{"blk.0.attn", "kcache", "vcache"}},
	{"in place where it may not", func(e editor) { e.arg("blk.0.attn", "out").Buffer = e.buffer("blk.0.q").ID }, []string{"blk.0.attn", "operand out", "operand q", "in place"}},
	{"two results in one place", func(e editor) { e.arg("blk.0.qkv", "out2").Buffer = e.arg("blk.0.qkv", "out1").Buffer }, []string{"blk.0.qkv", "out1", "out2"}},
	{"every worker writes one copy", func(e editor) {
		e.arg("output_norm", "y").Buffer = e.buffer("blk.0.attn").ID
		e.step("output_norm").Split.By = "each"
	}, []string{"output_norm"}},
	{"one copy of many written", func(e editor) { e.step("output_norm").Split = plan.Split{By: "tokens", Unit: 1} }, []string{"output_norm", "operand y", "split each"}},
	{"one copy for every worker", func(e editor) {
		b := e.buffer("picked")
		b.Each, b.Stride = false, 0
	}, []string{"picked", "operand y", "one for every worker"}},
	{"wave without steps", func(e editor) { g := e.program("decode"); g.Waves = append(g.Waves, plan.Wave{}) }, []string{"no steps"}},
	{"no logits", func(e editor) { e.buffer("logits").Name = "other" }, []string{`no io buffer "logits"`}},
	{"logits for each token", func(e editor) { e.resize("logits", "T*100") }, []string{"logits", "T*100 of f32", "expected R times"}},
	{"logits of a step of one size", func(e editor) { e.resize("logits", "400") }, []string{"logits", "400 of f32", "expected R times"}},
	{"logits with more than rows", func(e editor) { e.resize("logits", "R*100+4") }, []string{"logits", "expected R times"}},
	{"logits whose rows grow", func(e editor) { e.resize("logits", "R*R*100") }, []string{"logits", "expected R times"}},
	{"logits that are integers", func(e editor) { e.buffer("logits").Format = "i32" }, []string{"logits", "of i32", "f32"}},
	{"logits beyond what is written", func(e editor) { e.resize("logits", "R*101") }, []string{"program decode", "logits", "100 values", "1 tokens and 1 rows", "all 101"}},
	{"output that no step writes", func(e editor) { g := e.program("decode"); g.Waves = g.Waves[:1] }, []string{"program decode", "logits", "no step writes it"}},
}

func TestVerifyRefuses(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range broken {
		if seen[c.name] {
			t.Errorf("two cases %q", c.name)
		}
		seen[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			p := plantest.Plan(1)
			c.edit(editor{p, t})
			err := plan.Verify(p)
			if err == nil {
				t.Fatal("accepted, want an error")
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q, want it to name %q", err, part)
				}
			}
		})
	}
}

// A verifier that trusts the printed lifetimes accepts this plan: two buffers that are live at the
// same time share an address, and their printed lifetimes are disjoint.
func TestVerifyTrustsNoLifetime(t *testing.T) {
	p := plantest.Plan(1)
	e := editor{p, t}
	q, act := e.buffer("blk.0.q"), e.buffer("blk.0.attn")
	act.Offset, act.First = q.Offset, q.Last
	if err := plan.Verify(p); err == nil {
		t.Error("accepted two live buffers at one address")
	}
}

// Private copies need no barrier, whatever the order in a wave.
func TestVerifyAllowsPrivateCopiesInOneWave(t *testing.T) {
	p := plantest.Plan(1)
	e := editor{p, t}
	// The norm may work in place on every worker's own copy of the picked rows.
	e.arg("output_norm", "y").Buffer = e.buffer("picked").ID
	e.arg("logits", "x").Buffer = e.buffer("picked").ID
	e.arg("logits", "w0").Kernel = "gemv.q8_0.f32"
	e.buffer("picked").Last++
	g := e.program("decode")
	for i := range g.Buffers { // the norm's own result is gone, so the scratch after it takes its id
		if g.Buffers[i].Name == "output_norm" {
			at := g.Buffers[i].ID
			g.Buffers = append(g.Buffers[:i], g.Buffers[i+1:]...)
			for j := i; j < len(g.Buffers); j++ {
				g.Buffers[j].ID--
			}
			for _, name := range []string{"output_norm", "logits"} {
				if e.step(name).Scratch > at {
					e.step(name).Scratch--
				}
			}
			break
		}
	}
	if err := plan.Verify(p); err != nil {
		t.Error(err)
	}
}

// The extent of logits follows from the formula, not from the size in bytes.
func TestLogits(t *testing.T) {
	p := plantest.Plan(1)
	b := editor{p, t}.buffer("logits")
	b.Size += 4096
	p.Memory.IO += 4096
	if err := plan.Verify(p); err != nil {
		t.Fatal(err)
	}
	if id, width, err := p.Logits(); id != b.ID || width != plantest.Vocab || err != nil {
		t.Errorf("buffer b%d with rows of %d, error %v; want b%d, %d", id, width, err, b.ID, plantest.Vocab)
	}
}
