package plan

import (
	"math"
	"testing"
)

// A table counts in part if steps only gather its rows, in full if a product reads it too, and not
// at all if both read a packed copy.
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
		output string // weight of the last product
		table  int64  // bytes of the table that count
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
		want := MemoryUse{Weights: c.table + output, Packed: 2, State: 30, Arena: 5000, IO: 400}
		if got := MemoryUseOf(p); got != want || got.Total() != c.table+output+2+30+5000+400 {
			t.Errorf("%s: %+v, in total %d, expected %+v", c.name, got, got.Total(), want)
		}
	}
}

// A sum beyond an int64 saturates instead of wrapping to a negative number that fits every memory.
// The bytes of a table's pages saturate, too.
func TestNeedSaturates(t *testing.T) {
	for _, n := range []MemoryUse{
		{State: math.MaxInt64, Tables: math.MaxInt64},
		{Weights: math.MaxInt64 - 1, Packed: 2},
		{Weights: 1, Packed: 1, State: 1, Tables: 1, Arena: math.MaxInt64, IO: math.MaxInt64},
	} {
		if got := n.Total(); got != math.MaxInt64 {
			t.Errorf("%+v: in total %d, expected %d", n, got, int64(math.MaxInt64))
		}
	}
	embed := Step{Kernel: "embed", Args: []Arg{{Role: "table", Buffer: noBuffer, Weight: "table"}}}
	p := &Plan{
		Target:   Target{Ubatch: math.MaxInt64},
		Memory:   Memory{Weight: 1 << 30},
		Weights:  []Weight{{Name: "table", Size: 1 << 30}},
		Programs: []Program{{Waves: []Wave{{Steps: []Step{embed}}}}},
	}
	if got := MemoryUseOf(p); got.Weights != 1<<30 {
		t.Errorf("%d bytes of weights for steps of any number of tokens, expected all", got.Weights)
	}
}
