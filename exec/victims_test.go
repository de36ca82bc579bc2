package exec

import (
	"slices"
	"testing"

	"pesti/conformance/tiny"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/gguf/quant"
	"pesti/lower"
)

// A victim is a plan to damage, with its model.
type victim struct {
	name string
	file *gguf.File
	plan *plan.Plan
}

// victims returns plans of every kind: fused and not, both precisions, a ring, and one of so few
// steps that many damaged copies still load.
func victims(t testing.TB) []victim {
	t.Helper()
	small := tiny.Config{Layers: 1, Heads: 2, KVHeads: 1, FF: 64, Vocab: 258, Context: 64}
	with := func(set func(c *tiny.Config)) tiny.Config { c := small; set(&c); return c }
	qwen2 := with(func(c *tiny.Config) { c.Arch, c.Types = "qwen2", []quant.Type{quant.Q5_0, quant.Q8_0, quant.Q4_0} })
	gemma3 := with(func(c *tiny.Config) { c.Arch, c.Window, c.Types = "gemma3", 4, []quant.Type{quant.F16} })
	llama := with(func(c *tiny.Config) { c.Arch, c.Tied = "llama", true })
	var list []victim
	for _, v := range []struct {
		name   string
		config tiny.Config
		lower.Options
	}{
		{"fast", qwen2, lower.Options{Precision: "fast"}},
		{"ring", gemma3, lower.Options{Precision: "exact"}},
		{"unfused", llama, lower.Options{Precision: "exact", Passes: "none"}},
		{"unfused ring", gemma3, lower.Options{Precision: "exact", Passes: "-fuse_attention", KV: "f16"}},
	} {
		v.Ctx, v.Ubatch, v.Sequences, v.Rows, v.Threads = 40, 6, 2, 3, 2
		m, err := frontend.Load(tiny.File(t, v.config))
		if err != nil {
			t.Fatal(err)
		}
		r, err := lower.Compile(m, v.Options)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, victim{v.name, m.File, r.Plan})
	}
	unfused := list[2]
	return append(list, victim{"bodiless", unfused.file, bodiless(t, unfused.plan)})
}

// bodiless returns a copy of p without its blocks: the head reads the embedding.
func bodiless(t testing.TB, p *plan.Plan) *plan.Plan {
	t.Helper()
	p, err := plan.Parse(plan.Print(p))
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for i := range p.Programs {
		g := &p.Programs[i]
		stream, known := plan.Arg{}, map[int]bool{}
		for w := range g.Waves {
			g.Waves[w].Steps = slices.DeleteFunc(g.Waves[w].Steps, func(st plan.Step) bool { return st.Layer >= 0 })
			for s := range g.Waves[w].Steps {
				st := &g.Waves[w].Steps[s]
				sig, _ := plan.LookupKernel(st.Kernel)
				for a := range st.Args {
					arg := &st.Args[a]
					o := sig.Operand(arg.Role)
					switch {
					case o.Dir == plan.WeightIn:
						used[arg.Weight] = true
					case o.Dir == plan.Out:
						stream = *arg
						known[arg.Buffer] = true
					case o.Input == "" && !known[arg.Buffer]:
						arg.Buffer = stream.Buffer
					}
				}
			}
		}
		g.Waves = slices.DeleteFunc(g.Waves, func(w plan.Wave) bool { return len(w.Steps) == 0 })
	}
	p.Buffers = slices.DeleteFunc(p.Buffers, func(b plan.Buffer) bool { return b.Class == plan.State })
	p.Weights = slices.DeleteFunc(p.Weights, func(w plan.Weight) bool { return !used[w.Name] })
	mend(p, mendNumbers|mendSums)
	return p
}
