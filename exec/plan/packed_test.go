package plan_test

import (
	"reflect"
	"strings"
	"testing"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

// packed returns a plan of one layer whose products read their weights in layout panel16.
func packed(t *testing.T) editor {
	e := editor{plantest.Plan(1), t}
	for i := range e.Programs {
		for _, wave := range e.Programs[i].Waves {
			for j := range wave.Steps {
				for k := range wave.Steps[j].Args {
					if a := &wave.Steps[j].Args[k]; a.Kernel != "" {
						e.pack(a)
					}
				}
			}
		}
	}
	if e.Memory.Packed == 0 {
		t.Fatal("nothing was packed")
	}
	return e
}

func (e editor) pack(a *plan.Arg) {
	w := e.weight(a.Weight)
	l, ok := plan.LookupLayout("panel16", w.Type)
	if !ok {
		return
	}
	parts := strings.Split(a.Kernel, ".")
	a.Kernel = plan.MatmulName(parts[0], w.Type, l.Name, parts[2])
	if w.Layout == "" {
		size, err := l.Size(w.Dims[0], w.Dims[1])
		if err != nil {
			e.t.Fatal(err)
		}
		w.Layout, w.Packed = l.Name, size
		e.Memory.Packed += size
	}
}

func TestPackedText(t *testing.T) {
	p := packed(t).Plan
	if err := plan.Verify(p); err != nil {
		t.Fatal(err)
	}
	back, err := plan.Parse(plan.Print(p))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, p) {
		t.Error("the text of a plan with packed weights reads as another plan")
	}
}

func TestPackedRefused(t *testing.T) {
	const name = "blk.0.attn_q.weight"
	product := func(e editor) *plan.Arg { return e.arg("blk.0.qkv", "w0") }
	for _, c := range []struct {
		name string
		edit func(e editor)
		want []string
	}{
		{"size", func(e editor) { e.weight(name).Packed -= 64; e.Memory.Packed -= 64 }, []string{name, "packed is", "expected"}},
		{"size without layout", func(e editor) { e.weight("blk.0.attn_norm.weight").Packed = 64 }, []string{"attn_norm", "packed is 64", "without a layout"}},
		{"layout", func(e editor) { e.weight(name).Layout = "r17" }, []string{name, `"r17"`}},
		{"layout of a type without", func(e editor) { w := e.weight(name); w.Type = "iq1_s" }, []string{name, "iq1_s"}},
		{"layout of a row", func(e editor) { e.weight("blk.0.attn_norm.weight").Layout = "panel16" }, []string{"attn_norm", "rows and their length"}},
		{"sum", func(e editor) { e.Memory.Packed++ }, []string{"packed", "expected the sum"}},
		{"kernel for the file's order", func(e editor) { a := product(e); a.Kernel = strings.Replace(a.Kernel, ".panel16", "", 1) }, []string{"w0", "kernel is", "panel16"}},
		{"kernel for a layout", func(e editor) {
			w := e.weight(name)
			e.Memory.Packed -= w.Packed
			w.Layout, w.Packed = "", 0
		}, []string{"w0", "panel16"}},
		{"layout that no product reads", func(e editor) {
			w := *e.weight("token_embd.weight")
			w.Name = "table.weight"
			e.Weights = append(e.Weights, w)
			e.Memory.Weight += w.Size
			e.Memory.Packed += w.Packed
			for _, program := range []string{"decode", "prefill"} {
				e.stepOf(program, "embd").Args[1].Weight = w.Name
			}
		}, []string{"table.weight", "no product"}},
	} {
		e := packed(t)
		c.edit(e)
		err := plan.Verify(e.Plan)
		if err == nil {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q, want it to name %q", c.name, err, part)
			}
		}
	}
}

// The mapping of a weight that products read packed takes no memory, even if steps gather its rows.
func TestPackedNeed(t *testing.T) {
	plain, p := plan.MemoryUseOf(plantest.Plan(1)), packed(t)
	got := plan.MemoryUseOf(p.Plan)
	var moved int64
	for i := range p.Weights {
		if w := &p.Weights[i]; w.Layout != "" {
			moved += p.Weights[i].Size
		}
	}
	if got.Packed != p.Memory.Packed || got.Weights != plain.Weights-moved {
		t.Errorf("weights %d and packed %d, expected %d and %d", got.Weights, got.Packed, plain.Weights-moved, p.Memory.Packed)
	}
}

func TestLayoutSize(t *testing.T) {
	l, ok := plan.LookupLayout("panel16", "q5_0")
	if !ok {
		t.Fatal("no layout panel16 of q5_0")
	}
	for _, c := range []struct{ n, k, want int64 }{{1, 32, 352}, {16, 32, 352}, {17, 64, 4 * 352}} {
		if got, err := l.Size(c.n, c.k); err != nil || got != c.want {
			t.Errorf("%d×%d: %d bytes, %v, expected %d", c.n, c.k, got, err, c.want)
		}
	}
	for _, c := range []struct{ n, k int64 }{{0, 32}, {1, 0}, {1, 33}, {1 << 62, 1 << 10}, {1<<63 - 1, 1<<63 - 32}} {
		if got, err := l.Size(c.n, c.k); err == nil {
			t.Errorf("%d×%d: %d bytes, expected an error", c.n, c.k, got)
		}
	}
}
