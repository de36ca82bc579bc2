package cuda_test

import (
	"encoding/json"
	"math"
	"testing"

	"pesti/exec/cuda"
)

// lanes are the float32 lanes of an SM, by generation (CUDA C++ Programming Guide, "Arithmetic Instructions").
var lanes = map[string]int{"t4": 64, "a100": 64, "rtx3090": 128, "rtx4090": 128, "l4": 128, "h100": 128, "h200": 128}

// TestGPUs: the float32 rate of a data sheet follows from the number of SMs and the clock.
func TestGPUs(t *testing.T) {
	if len(cuda.GPUs()) != len(lanes) {
		t.Errorf("%d GPUs, and lanes of %d", len(cuda.GPUs()), len(lanes))
	}
	for _, name := range cuda.GPUs() {
		g, ok := cuda.LookupGPU(name)
		if follows := 2 * float64(lanes[name]*g.SMs) * g.Clock; !ok || math.Abs(g.Flops/follows-1) > 0.01 {
			t.Errorf("%s: %.3g flops, and %d SMs have %.3g", name, g.Flops, g.SMs, follows)
		}
	}
	if _, ok := cuda.LookupGPU("h1000"); ok {
		t.Error("there is a GPU that nobody makes")
	}
}

// TestBound checks each limit with the counts of one millisecond of a GPU's peak rate.
func TestBound(t *testing.T) {
	g, _ := cuda.LookupGPU("H200")
	for _, test := range []struct {
		counts cuda.Counts
		want   cuda.Bound
	}{
		{cuda.Counts{Fetched: 4.2e9, Stored: 0.6e9, Flops: 1}, cuda.Bound{By: "memory", Seconds: 1e-3}},
		{cuda.Counts{Fetched: 32, Flops: 67e9}, cuda.Bound{By: "float", Seconds: 1e-3}},
		{cuda.Counts{DotOps: 512 * 132 * 1.98e6}, cuda.Bound{By: "dp4a", Seconds: 1e-3}},
		{cuda.Counts{TensorInts: 1979e9}, cuda.Bound{By: "tensor", Seconds: 1e-3}},
		{cuda.Counts{TensorFloats: 989.5e9}, cuda.Bound{By: "tensor float", Seconds: 1e-3}},
		{cuda.Counts{Shared: cuda.Traffic{Parts: 132 * 1.98e6}}, cuda.Bound{By: "shared", Seconds: 1e-3}},
		{cuda.Counts{Instructions: cuda.Instructions{cuda.Control: 4 * 132 * 1.98e6, cuda.Move: 1e12}}, cuda.Bound{By: "issue", Seconds: 1e-3}},
		{cuda.Counts{}, cuda.Bound{}},
	} {
		if got := g.Bound(&test.counts); got.By != test.want.By || math.Abs(got.Seconds-test.want.Seconds) > 1e-9 {
			t.Errorf("%+v: got %v, want %v", test.counts, got, test.want)
		}
	}
}

// TestCountsJSON checks that counts are equal after a round trip through JSON.
func TestCountsJSON(t *testing.T) {
	want := cuda.Counts{Kernel: "k", Launches: 1, Instructions: cuda.Instructions{cuda.Float: 2, cuda.Move: 3}, Fetched: 4, Global: cuda.Traffic{Parts: 5}}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got cuda.Counts
	if err := json.Unmarshal(text, &got); err != nil || got != want {
		t.Errorf("%s is %+v, %v", text, got, err)
	}
	if n := want.Instructions.All(); n != 5 {
		t.Errorf("%d instructions", n)
	}
	if parts, least := new(cuda.Traffic).PerRequest(); parts != 0 || least != 0 {
		t.Errorf("no request has %v parts", parts)
	}
}
