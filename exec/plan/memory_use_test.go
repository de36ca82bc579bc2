package plan

import (
	"math"
	"testing"
)

// If steps only gather from a table, the rows of a full batch count. If a product reads it too, or if it
// has no more rows than a batch, all of it counts. If both read a packed copy, nothing counts.
// The same holds on the processor of a plan for several devices.
func TestNeed(t *testing.T) {
	const rows, row = 1000, 512
	embed := Step{Kernel: "embed", Args: []Arg{{Role: "tokens", Buffer: 0}, {Role: "table", Buffer: noBuffer, Weight: "table"}}}
	product := func(weight string) Step {
		return Step{Kernel: "matmul_group", Args: []Arg{{Role: "w0", Buffer: noBuffer, Weight: weight, Kernel: "gemv.f32"}}}
	}
	for _, c := range []struct {
		name   string
		ubatch int64
		output string // weight of the last product
		table  int64  // bytes of the table that count
		layout string // of the table
	}{
		{"gathered", 32, "output", 32 * row, ""},
		{"one token", 1, "output", row, ""},
		{"all but a row", rows - 1, "output", (rows - 1) * row, ""},
		{"all rows", rows, "output", rows * row, ""},
		{"a larger batch", rows + 1, "output", rows * row, ""},
		{"tied", 32, "table", rows * row, ""},
		{"packed", 32, "table", 0, "panel16"},
	} {
		const output, unused = 1000, 10_000_000
		p := &Plan{
			Target:  Target{Ubatch: c.ubatch},
			Memory:  Memory{Weight: rows*row + output, Packed: 2, State: 30, IO: 400, Arena: 5000, ArenaLowerBound: 1, ArenaUnshared: unused},
			Weights: []Weight{{Name: "table", Size: rows * row, Dims: []int64{rows, 100}, Layout: c.layout}, {Name: "output", Size: output}},
			Programs: []Program{
				{Waves: []Wave{{Steps: []Step{embed, product("output")}}}},
				{Waves: []Wave{{Steps: []Step{embed}}, {Steps: []Step{product(c.output)}}}},
			},
		}
		want := MemoryUse{Weights: c.table + output, Packed: 2, State: 30, Arena: 5000, IO: 400}
		if got := MemoryUseOf(p); got != want || got.Total() != c.table+output+2+30+5000+400 {
			t.Errorf("%s: %+v, in total %d, expected %+v", c.name, got, got.Total(), want)
		}
		// The same weights on the first of two devices, a processor.
		p.Target.Backend = CUDA
		p.Devices = []Device{{Backend: "cpu", Memory: p.Memory}, {Backend: CUDA, Memory: Memory{Weight: unused, State: 7}}}
		p.Weights = append(p.Weights, Weight{Name: "elsewhere", Size: unused, Devices: []int{1}})
		p.Programs[0].Waves = append(p.Programs[0].Waves, Wave{Steps: []Step{{Kernel: CUDA + ".matmul", Device: 1, Args: []Arg{{Role: "w", Buffer: noBuffer, Weight: "elsewhere"}}}}})
		if got := DeviceMemoryUse(p, 0); got != want {
			t.Errorf("%s, on the host: %+v, expected %+v", c.name, got, want)
		}
		if got, want := DeviceMemoryUse(p, 1), (MemoryUse{Packed: unused, State: 7}); got != want {
			t.Errorf("%s, on the CUDA device: %+v, expected %+v", c.name, got, want)
		}
		want.Packed, want.State = want.Packed+unused, want.State+7
		if got := MemoryUseOf(p); got != want {
			t.Errorf("%s, on both: %+v, expected %+v", c.name, got, want)
		}
	}
}

// A sum beyond an int64 saturates instead of wrapping to a negative number that fits every memory.
// The rows of a table saturate, too.
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
		Weights:  []Weight{{Name: "table", Size: 1 << 30, Dims: []int64{1 << 20, 100}}},
		Programs: []Program{{Waves: []Wave{{Steps: []Step{embed}}}}},
	}
	if got := MemoryUseOf(p); got.Weights != 1<<30 {
		t.Errorf("%d bytes of weights for steps of any number of tokens, expected all", got.Weights)
	}
}
