// Package plantest makes small valid plans for tests: the schedule of a transformer with grouped
// query attention and a gated feed-forward, with made-up weights. It is no compiler: it places
// buffers first-fit and fuses nothing. Its only import of this module is exec/plan.
package plantest

import (
	"fmt"

	"pesti/exec/plan"
)

// The shape of the model.
const (
	Hidden  = 64
	Heads   = 4
	KVHeads = 2
	HeadDim = 16
	FF      = 96
	Vocab   = 100
	Ctx     = 40
	Ubatch  = 32
	Rows    = 4
	Threads = 2
)

// Plan returns a valid plan with a number of layers and two programs: "decode" for one token,
// "prefill" for more.
func Plan(layers int) *plan.Plan { return build(layers, false) }

// DumpingPlan returns a plan like Plan's that also outputs the residual stream after each layer. No
// later step depends on the copies; only the reuse of memory orders them.
func DumpingPlan(layers int) *plan.Plan { return build(layers, true) }

func build(layers int, dump bool) *plan.Plan {
	p := &plan.Plan{
		Version: plan.Version,
		Model:   plan.Model{Arch: "qwen2", Name: "Test \"model\"", File: "../models/a model.gguf", Size: 123456, HeaderDigest: "sha256:00ff"},
		Target: plan.Target{Backend: "cpu", ISA: "portable", Precision: "fast", KV: "f16", Threads: Threads,
			Ctx: Ctx, Ubatch: Ubatch, Sequences: 1, Rows: Rows},
	}
	shared := []plan.Buffer{
		{Class: plan.IO, Name: "tokens", Format: "i32", Elems: "T"},
		{Class: plan.IO, Name: "pos", Format: "i32", Elems: "T"},
		{Class: plan.IO, Name: "seq", Format: "i32", Elems: "T"},
		{Class: plan.IO, Name: "rows", Format: "i32", Elems: "R"},
		{Class: plan.IO, Name: "pages", Format: "i32", Elems: "S*P"},
		{Class: plan.IO, Name: "logits", Format: "f32", Elems: fmt.Sprintf("R*%d", Vocab)},
	}
	for l := range layers {
		for _, kind := range []string{"k", "v"} {
			shared = append(shared, plan.Buffer{Class: plan.State, Name: fmt.Sprintf("blk.%d.cache_%s", l, kind),
				Format: "f16", Elems: fmt.Sprintf("S*48*%d", KVHeads*HeadDim)})
		}
	}
	for l := range layers {
		if dump {
			shared = append(shared, plan.Buffer{Class: plan.IO, Name: fmt.Sprintf("blk.%d.out", l), Format: "f32", Elems: fmt.Sprintf("T*%d", Hidden)})
		}
	}
	for i := range shared {
		shared[i].ID = i
		shared[i].Size = size(p, nil, &shared[i])
		if shared[i].Class == plan.State {
			p.Memory.State += shared[i].Size
		} else {
			p.Memory.IO += shared[i].Size
		}
	}
	p.Buffers = shared
	for _, g := range []plan.Program{
		{Name: "decode", MinT: 1, MaxT: 1, MaxR: 1},
		{Name: "prefill", MinT: 2, MaxT: Ubatch, MaxR: Rows},
	} {
		b := &builder{plan: p, prog: &g, layer: -1}
		b.model(layers, dump)
		b.layOut()
		p.Programs = append(p.Programs, g)
	}
	p.Fusions = plan.Fusions{QKV: layers, GatedMLP: layers, Attention: layers}
	return p
}

func size(p *plan.Plan, g *plan.Program, b *plan.Buffer) int64 {
	s := p.Scope(g)
	elems, err := s.Eval(b.Elems)
	if err != nil {
		panic(err)
	}
	f, _ := plan.LookupFormat(b.Format)
	n, err := f.Size(elems)
	if err != nil {
		panic(err)
	}
	return n
}

type builder struct {
	plan  *plan.Plan
	prog  *plan.Program
	layer int
	steps int
	waves []int // wave of each step
}

// buffer adds an arena buffer and returns its id.
func (b *builder) buffer(name, format, elems string, each bool) int {
	id := len(b.plan.Buffers) + len(b.prog.Buffers)
	buf := plan.Buffer{ID: id, Class: plan.Arena, Name: name, Format: format, Elems: elems, Each: each, First: -1}
	buf.Size = size(b.plan, b.prog, &buf)
	if each {
		buf.Stride = (buf.Size + plan.ArenaAlign - 1) / plan.ArenaAlign * plan.ArenaAlign
		buf.Size = buf.Stride * Threads
	}
	b.prog.Buffers = append(b.prog.Buffers, buf)
	return id
}

func (b *builder) weight(name, typ string, dims ...int64) string {
	for _, w := range b.plan.Weights {
		if w.Name == name {
			return name
		}
	}
	bytes := int64(4)
	for _, d := range dims {
		bytes *= d
	}
	if typ != "f32" {
		bytes /= 4
	}
	b.plan.Weights = append(b.plan.Weights, plan.Weight{Name: name, Type: typ, Dims: dims, Size: bytes})
	b.plan.Memory.Weight += bytes
	return name
}

func (b *builder) wave() { b.prog.Waves = append(b.prog.Waves, plan.Wave{}) }

// buf and mat make arguments.
func buf(role string, id int) plan.Arg { return plan.Arg{Role: role, Buffer: id} }
func mat(role, kernel, weight string) plan.Arg {
	return plan.Arg{Role: role, Buffer: -1, Weight: weight, Kernel: kernel}
}

func (b *builder) step(name, kernel, rows, split string, unit int64, args []plan.Arg, params ...plan.Param) {
	st := plan.Step{ID: b.steps, Name: name, Layer: b.layer, Kernel: kernel, Rows: rows, Args: args, Params: params,
		Split: plan.Split{By: split, Unit: unit}, Scratch: -1}
	if sig, _ := plan.LookupKernel(kernel); sig.Scratch != "" {
		s := b.plan.Scope(b.prog)
		s = s.Of(&st)
		n, err := s.Eval(sig.Scratch)
		if err != nil {
			panic(err)
		}
		st.Scratch = b.buffer(name+".scratch", "i32", fmt.Sprint((n+3)/4), true)
		b.touch(st.Scratch)
	}
	for _, a := range args {
		b.touch(a.Buffer)
	}
	w := len(b.prog.Waves) - 1
	b.prog.Waves[w].Steps = append(b.prog.Waves[w].Steps, st)
	b.waves = append(b.waves, w)
	b.steps++
}

func (b *builder) touch(id int) {
	u := b.plan.Buffer(b.prog, id)
	if u == nil || u.Class != plan.Arena {
		return
	}
	if u.First < 0 {
		u.First = b.steps
	}
	u.Last = b.steps + 1
}

func (b *builder) model(layers int, dump bool) {
	const (
		tokens, pos, seq, rows, pages, logits, caches = 0, 1, 2, 3, 4, 5, 6
		wide, kvWide                                  = Heads * HeadDim, KVHeads * HeadDim
		eps                                           = 1e-6
	)
	f := func(rows string, n int) string { return fmt.Sprintf("%s*%d", rows, n) }
	n := func(name string, v int64) plan.Param { return plan.Param{Name: name, Value: v} }
	x := func(name string, v any) plan.Param { return plan.Param{Name: name, Value: v} }
	kind := "gemv."
	if b.prog.MaxT > 1 {
		kind = "gemm."
	}

	b.wave()
	stream := b.buffer("embd", "f32", f("T", Hidden), true)
	b.step("embd", "embed", "T", "each", 0, []plan.Arg{buf("tokens", tokens), mat("table", "", b.weight("token_embd.weight", "q8_0", Vocab, Hidden)), buf("y", stream)},
		n("n", Hidden), n("vocab", Vocab), x("scale", 1.0))
	for l := range layers {
		b.layer = l
		name := func(s string) string { return fmt.Sprintf("blk.%d.%s", l, s) }
		normed := b.buffer(name("attn_norm"), "q8x2", f("T", Hidden), true)
		b.step(name("attn_norm"), "norm", "T", "each", 0, []plan.Arg{buf("x", stream), mat("w", "", b.weight(name("attn_norm.weight"), "f32", Hidden)), buf("y", normed)},
			n("n", Hidden), x("eps", eps))
		q := b.buffer(name("q"), "f32", f("T", wide), false)
		k := b.buffer(name("k"), "f32", f("T", kvWide), false)
		v := b.buffer(name("v"), "f32", f("T", kvWide), false)
		b.step(name("qkv"), "matmul_group", "T", "rows", 16, []plan.Arg{buf("x", normed),
			mat("w0", kind+"q5_0.q8x2", b.weight(name("attn_q.weight"), "q5_0", wide, Hidden)),
			mat("w1", kind+"q5_0.q8x2", b.weight(name("attn_k.weight"), "q5_0", kvWide, Hidden)),
			mat("w2", kind+"q8_0.q8x2", b.weight(name("attn_v.weight"), "q8_0", kvWide, Hidden)),
			mat("bias0", "", b.weight(name("attn_q.bias"), "f32", wide)),
			mat("bias1", "", b.weight(name("attn_k.bias"), "f32", kvWide)),
			mat("bias2", "", b.weight(name("attn_v.bias"), "f32", kvWide)),
			buf("out0", q), buf("out1", k), buf("out2", v)},
			n("k", Hidden), n("n0", wide), n("n1", kvWide), n("n2", kvWide))
		b.wave()
		attn := b.buffer(name("attn"), "f32", f("T", wide), false)
		b.step(name("attn"), "attention", "T", "heads", 1, []plan.Arg{buf("q", q), buf("k", k), buf("v", v), buf("pos", pos), buf("seq", seq), buf("pages", pages),
			buf("kcache", caches+2*l), buf("vcache", caches+2*l+1), buf("out", attn)},
			n("heads", Heads), n("kv_heads", KVHeads), n("head_dim", HeadDim), n("rot", HeadDim), n("positions", 48), n("window", 0), n("ring", 0),
			x("base", 1e6), x("freq_scale", 1.0), x("ramp_low", 0.0), x("ramp_high", 0.0), x("magnitude", 1.0), x("scale", 0.25), x("eps", 0.0), x("layout", "halves"))
		b.wave()
		quant := b.buffer(name("attn.q8"), "q8x2", f("T", wide), true)
		b.step(name("attn.q8"), "quantize", "T", "each", 0, []plan.Arg{buf("x", attn), buf("y", quant)}, n("n", wide))
		mid := b.buffer(name("attn_out"), "f32", f("T", Hidden), false)
		b.step(name("attn_out"), "matmul_group", "T", "rows", 16, []plan.Arg{buf("x", quant),
			mat("w0", kind+"q5_0.q8x2", b.weight(name("attn_output.weight"), "q5_0", Hidden, wide)), buf("res", stream), buf("out0", mid)},
			n("k", wide), n("n0", Hidden))
		b.wave()
		ffNorm := b.buffer(name("ffn_norm"), "q8x2", f("T", Hidden), true)
		b.step(name("ffn_norm"), "norm", "T", "each", 0, []plan.Arg{buf("x", mid), mat("w", "", b.weight(name("ffn_norm.weight"), "f32", Hidden)), buf("y", ffNorm)},
			n("n", Hidden), x("eps", eps))
		act := b.buffer(name("ffn_act"), "f32", f("T", FF), false)
		b.step(name("ffn_act"), "gated_mlp", "T", "rows", 16, []plan.Arg{buf("x", ffNorm),
			mat("w0", kind+"q5_0.q8x2", b.weight(name("ffn_gate.weight"), "q5_0", FF, Hidden)),
			mat("w1", kind+"q5_0.q8x2", b.weight(name("ffn_up.weight"), "q5_0", FF, Hidden)), buf("y", act)},
			n("k", Hidden), n("n", FF), x("act", "silu"))
		b.wave()
		actQ := b.buffer(name("ffn_act.q8"), "q8x2", f("T", FF), true)
		b.step(name("ffn_act.q8"), "quantize", "T", "each", 0, []plan.Arg{buf("x", act), buf("y", actQ)}, n("n", FF))
		b.step(name("ffn_out"), "matmul_group", "T", "rows", 16, []plan.Arg{buf("x", actQ),
			mat("w0", kind+"q8_0.q8x2", b.weight(name("ffn_down.weight"), "q8_0", Hidden, FF)), buf("res", mid), buf("out0", mid)},
			n("k", FF), n("n0", Hidden))
		b.wave()
		stream = mid
		if dump {
			b.step(name("out"), "copy", "T", "tokens", 1, []plan.Arg{buf("x", stream), buf("y", caches+2*layers+l)}, n("n", Hidden))
		}
	}
	b.layer = -1
	picked := b.buffer("picked", "f32", f("R", Hidden), true)
	b.step("picked", "select", "R", "each", 0, []plan.Arg{buf("x", stream), buf("rows", rows), buf("y", picked)}, n("n", Hidden))
	final := b.buffer("output_norm", "q8x2", f("R", Hidden), true)
	b.step("output_norm", "norm", "R", "each", 0, []plan.Arg{buf("x", picked), mat("w", "", b.weight("output_norm.weight", "f32", Hidden)), buf("y", final)},
		n("n", Hidden), x("eps", eps))
	b.step("logits", "matmul_group", "R", "rows", 16, []plan.Arg{buf("x", final), mat("w0", kind+"q8_0.q8x2", "token_embd.weight"), buf("out0", logits)},
		n("k", Hidden), n("n0", Vocab))
}

// layOut places each buffer at the lowest address that is free during its lifetime.
func (b *builder) layOut() {
	live := func(u *plan.Buffer) (first, last int) { return b.waves[u.First], b.waves[u.Last-1] }
	round := func(n int64) int64 { return (n + plan.ArenaAlign - 1) / plan.ArenaAlign * plan.ArenaAlign }
	var unshared int64
	for i := range b.prog.Buffers {
		u := &b.prog.Buffers[i]
		first, last := live(u)
		for moved := true; moved; {
			moved = false
			for j := range b.prog.Buffers[:i] {
				o := &b.prog.Buffers[j]
				if f, l := live(o); f <= last && first <= l && u.Offset < o.Offset+o.Size && o.Offset < u.Offset+u.Size {
					u.Offset = round(o.Offset + o.Size)
					moved = true
				}
			}
		}
		unshared += round(u.Size)
		b.plan.Memory.Arena = max(b.plan.Memory.Arena, round(u.Offset+u.Size))
	}
	b.plan.Memory.ArenaUnshared = max(b.plan.Memory.ArenaUnshared, unshared)
	for w := range b.prog.Waves {
		var bytes int64
		for i := range b.prog.Buffers {
			if f, l := live(&b.prog.Buffers[i]); f <= w && w <= l {
				bytes += round(b.prog.Buffers[i].Size)
			}
		}
		b.plan.Memory.ArenaLowerBound = max(b.plan.Memory.ArenaLowerBound, bytes)
	}
}
