package plan

import "testing"

// A table from which steps only gather counts in part, one that a product reads too in full, and one that
// lies in another layout, which both read there, not at all.
func TestNeed(t *testing.T) {
	const part = 16 * mapUnit // of a step of 31 or 32 tokens
	embed := Step{Kernel: "embed", Args: []Arg{{Role: "tokens", Buffer: 0}, {Role: "table", Buffer: noBuffer, Weight: "table"}}}
	product := func(weight string) Step {
		return Step{Kernel: "matmul_group", Args: []Arg{{Role: "w0", Buffer: noBuffer, Weight: weight, Kernel: "gemv.f32"}}}
	}
	for _, c := range []struct {
		name   string
		size   int64 // of the table
		ubatch int64
		output string // the weight that the last product reads
		table  int64  // what counts of it
		layout string // of the table
	}{
		{"gathered", 100 << 20, 32, "output", part, ""},
		{"odd step", 100 << 20, 31, "output", part, ""},
		{"one token", 100 << 20, 1, "output", mapUnit, ""},
		{"tied", 100 << 20, 32, "table", 100 << 20, ""},
		{"just as large", part, 32, "output", part, ""},
		{"small", part - 1, 32, "output", part - 1, ""},
		{"empty", 0, 32, "output", 0, ""},
		{"packed", 100 << 20, 32, "table", 0, "r16"},
	} {
		const output, unused = 1000, 10_000_000
		p := &Plan{
			Target:  Target{Ubatch: c.ubatch},
			Memory:  Memory{Weight: c.size + output, Packed: 2, State: 30, IO: 400, Arena: 5000, ArenaLowerBound: 1, ArenaUnshared: unused},
			Weights: []Weight{{Name: "table", Size: c.size, Layout: c.layout}, {Name: "output", Size: output}},
			Programs: []Program{
				{Waves: []Wave{{Steps: []Step{embed, product("output")}}}},
				{Waves: []Wave{{Steps: []Step{embed}}, {Steps: []Step{product(c.output)}}}},
			},
		}
		want := Need{Weights: c.table + output, Packed: 2, State: 30, Arena: 5000, IO: 400}
		if got := NeedOf(p); got != want || got.Total() != c.table+output+2+30+5000+400 {
			t.Errorf("%s: %+v, in total %d, expected %+v", c.name, got, got.Total(), want)
		}
	}
}
