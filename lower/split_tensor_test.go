package lower

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pesti/conformance/tiny"
	"pesti/frontend"
	"pesti/graph"
	"pesti/graph/graphtest"
	"pesti/graph/pass"
	"pesti/lower/cuda"
	"pesti/ops"
)

// TestSplitTensorKeepsMeaning splits random models over devices and compares their outputs and
// inner values with the unsplit model, both computed by the reference: 1e-5 of the row.
func TestSplitTensorKeepsMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		g, err := m.Graph(frontend.Bounds{Tokens: 12, Sequences: 2, Rows: 4, Context: 32})
		if err != nil {
			t.Fatal(err)
		}
		for _, pattern := range []string{"blk.*.out", "blk.*.q", "blk.*.ffn_act", "blk.*.ffn_out", "blk.*.v_proj"} {
			if rapid.IntRange(0, 3).Draw(t, pattern) == 0 {
				_ = markOutputs(g, []string{pattern}) // fails for models without such a value
			}
		}
		steps := graphtest.Steps(t, g, 3)
		weights := graphtest.FromFile(m.File)
		want, err := graphtest.Eval(g, weights, steps, false)
		if err != nil {
			t.Fatal(err)
		}
		gathers := rapid.Bool().Draw(t, "gathers")
		passes := pass.Graph()
		split := pass.SplitTensor(rapid.IntRange(2, 4).Draw(t, "devices"), func(*graph.Value) bool { return gathers })
		c := g.Clone()
		if _, err := pass.Run(c, slices.Insert(passes, rapid.IntRange(0, 5).Draw(t, "at"), split), pass.Options{Verify: true}); err != nil {
			if strings.Contains(err.Error(), "split it by layers") && !strings.Contains(err.Error(), "\n") {
				t.Skip(err)
			}
			t.Fatal(err)
		}
		got, err := graphtest.Eval(c, weights, steps, false)
		if err != nil {
			t.Fatal(err)
		}
		for i := range steps {
			for _, name := range slices.Sorted(maps.Keys(want[i])) {
				w := want[i][name]
				if err := graphtest.Near(got[i][name].F32, w.F32, w.Shape[0], 1e-5); err != nil {
					t.Fatalf("step %d: %s: %v\n%s", i, name, err, graph.Print(c))
				}
			}
		}
	})
}

// TestSplitTensorShares checks each device's share of models whose heads or blocks do not divide
// evenly.
func TestSplitTensorShares(t *testing.T) {
	for _, c := range []struct {
		name    string
		model   tiny.Config
		devices int
		widths  map[string][]int64 // widths of the parts of a value, by device; 0 for other devices
	}{
		{"even", tiny.Config{Embd: 64, Heads: 4, KVHeads: 2, FF: 128, Vocab: 320}, 2,
			map[string][]int64{"blk.0.q": {32, 32}, "blk.0.cache_k": {16, 16}, "blk.1.ffn_gate": {64, 64}, "logits": {160, 160}}},
		{"three heads", tiny.Config{Embd: 96, Heads: 9, KVHeads: 3, HeadDim: 32, FF: 160, Vocab: 300}, 2,
			map[string][]int64{"blk.0.q": {192, 96}, "blk.0.v": {64, 32}, "blk.1.ffn_up": {96, 64}, "logits": {160, 140}}},
		{"one KV head", tiny.Config{Arch: "gemma3", Embd: 64, Heads: 4, KVHeads: 1, FF: 96}, 3,
			map[string][]int64{"blk.0.q": {64}, "blk.0.cache_v": {16}, "blk.1.ffn_gate": {32, 32, 32}}},
		{"two heads on three", tiny.Config{Embd: 64, Heads: 4, KVHeads: 2, HeadDim: 32, FF: 64}, 3,
			map[string][]int64{"blk.0.q": {64, 64}, "blk.0.ffn_gate": {32, 32}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := frontend.Load(tiny.File(t, c.model))
			if err != nil {
				t.Fatal(err)
			}
			g, err := m.Graph(frontend.Bounds{Tokens: 8, Sequences: 1, Rows: 8, Context: 16})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pass.Run(g, []pass.Pass{pass.SplitTensor(c.devices, cuda.Reads)}, pass.Options{Verify: true}); err != nil {
				t.Fatal(err)
			}
			for name, widths := range c.widths {
				for d, want := range widths {
					v := g.Value(name + partOf(widths, d))
					if v == nil || v.Type.Shape[1].N != want || v.Def.Device != d {
						t.Errorf("part %d of %s is %v, expected %d wide, on its device\n%s", d, name, v, want, graph.Print(g))
					}
				}
				if v := g.Value(name + partOf(widths, len(widths))); len(widths) > 1 && v != nil {
					t.Errorf("%s has a part %v, expected %d", name, v, len(widths))
				}
			}
			sums := 0
			for _, n := range g.Nodes {
				if n.Op == ops.Sum {
					sums++
				}
			}
			if sums == 0 {
				t.Error("no sums of all")
			}
		})
	}
}

func partOf(widths []int64, d int) string {
	if len(widths) == 1 {
		return ""
	}
	return ".part" + string(rune('0'+d))
}

// TestSplitTensorRefuses checks the reasons why a model cannot be split.
func TestSplitTensorRefuses(t *testing.T) {
	for _, c := range []struct {
		model   tiny.Config
		devices int
		want    string
	}{
		{tiny.Config{Heads: 2, KVHeads: 1, FF: 32}, 2,
			"cannot split the matrices of qwen2 between 2 devices (blk.1.ffn_out, for one: its 32 operands form a single unit of 32); split it by layers"},
		{tiny.Config{Vocab: 300}, 12, // the logits are ten rows of blocks
			"cannot split the matrices of qwen2 between 12 devices: 2 of them would get no part"},
	} {
		m, err := frontend.Load(tiny.File(t, c.model))
		if err != nil {
			t.Fatal(err)
		}
		_, err = Compile(m, Options{Target: "cuda", Devices: c.devices, Split: "tensor"})
		var option *OptionError
		if err == nil || !errors.As(err, &option) || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%v, expected an error of an option: %s", err, c.want)
		}
	}
	m, err := frontend.Load(tiny.File(t, tiny.Config{Vocab: 300}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Compile(m, Options{Target: "cuda", Devices: 10, Split: "tensor"}); err != nil {
		t.Error(err)
	}
}
