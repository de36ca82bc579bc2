package exec_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pesti/conformance/demo"
	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/cuda"
	"pesti/exec/cuda/virtual"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf"
	"pesti/gguf/quant"
	"pesti/lower"
)

// splitModels differ in what can be split: heads and blocks that are divisible or not, a single key head,
// whose attention stays on the first device, norms after products, biases, blocks of 256, and sidecar files.
var splitModels = []struct {
	name      string
	model     tiny.Config
	devices   int
	precision string
	passes    string
	fp8       bool // matrices in a sidecar file
}{
	{"even", tiny.Config{Embd: 64, Heads: 4, KVHeads: 2, FF: 128, Types: []quant.Type{quant.Q8_0, quant.F16}}, 2, "exact", "", false},
	{"three heads", tiny.Config{Arch: "llama", Embd: 96, Heads: 9, KVHeads: 3, HeadDim: 32, FF: 160, Vocab: 259, Tied: true, Types: []quant.Type{quant.Q5_0, quant.Q4_0}}, 2, "exact", "", false},
	{"three heads", tiny.Config{Arch: "llama", Embd: 96, Heads: 9, KVHeads: 3, HeadDim: 32, FF: 160, Vocab: 259, Tied: true, Types: []quant.Type{quant.Q5_0, quant.Q4_0}}, 3, "fast", "", false},
	{"qwen3", tiny.Config{Arch: "qwen3", Embd: 64, Heads: 6, KVHeads: 3, HeadDim: 32, FF: 96}, 4, "exact", "", false},
	{"gemma3", tiny.Config{Arch: "gemma3", Embd: 64, Heads: 4, KVHeads: 1, HeadDim: 32, FF: 96, Window: 20, Tied: true}, 3, "exact", "", false},
	{"blocks of 256", tiny.Config{Embd: 64, Heads: 4, KVHeads: 2, HeadDim: 128, FF: 512, Types: []quant.Type{quant.Q4_K, quant.Q6_K}}, 2, "fast", "", false},
	{"FP8", tiny.Config{Embd: 64, Heads: 4, KVHeads: 2, HeadDim: 32, FF: 96}, 2, "exact", "", true},
	{"on the host", tiny.Config{Embd: 64, Heads: 4, KVHeads: 2, HeadDim: 32, FF: 96, Types: []quant.Type{quant.Q5_1}}, 2, "exact", "none", false},
}

// A split is an engine that records layers and logits.
type split struct {
	*exec.Session
	layers map[string][]float32 // residual streams of the last step
}

// openSplit opens a model on a number of virtual devices.
func openSplit(t *testing.T, f *gguf.File, o lower.Options, observed bool) *split {
	t.Helper()
	m, err := frontend.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	o.Target, o.Verify = plan.CUDA, true
	if o.Devices > 1 {
		o.Split = "tensor"
	}
	res, err := lower.Compile(m, o)
	if err != nil {
		t.Fatal(err)
	}
	if s := plan.Summarize(res.Plan); s.Fallbacks != 0 && o.Passes == "" {
		t.Fatalf("%d fallbacks, expected none", s.Fallbacks)
	}
	p, err := plan.Parse(plan.Print(res.Plan)) // as after a round trip through a file
	if err != nil {
		t.Fatal(err)
	}
	s := &split{layers: map[string][]float32{}}
	run := exec.Options{Poison: true, Sidecar: o.Sidecar, Driver: virtual.New(virtual.Config{Devices: slices.Repeat([]cuda.Properties{virtual.Default()}, max(o.Devices, 1))})}
	if observed {
		run.Observe = func(o exec.Observation) {
			if strings.HasPrefix(o.Name, "blk.") && strings.HasSuffix(o.Name, ".out") {
				s.layers[o.Name] = slices.Clone(o.Data)
			}
		}
	}
	e, err := exec.Open(p, f, run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	if s.Session, err = exec.NewSession(e); err != nil {
		t.Fatal(err)
	}
	return s
}

// sameWithin compares rows relative to the largest element of each.
func sameWithin(t *testing.T, what string, got, want []float32, width int, tol float64) {
	t.Helper()
	if len(got) != len(want) || len(want) == 0 {
		t.Fatalf("%s: %d elements, expected %d", what, len(got), len(want))
	}
	for at := 0; at < len(want); at += width {
		largest := 0.0
		for _, x := range want[at : at+width] {
			largest = max(largest, math.Abs(float64(x)))
		}
		for i, x := range want[at : at+width] {
			if d := math.Abs(float64(x) - float64(got[at+i])); !(d <= tol*largest) {
				t.Fatalf("%s: row %d element %d is %v, expected %v within %v of %v", what, at/width, i, got[at+i], x, tol, largest)
			}
		}
	}
}

// TestSplitTensorRuns splits models over virtual devices and compares every layer and all logits, for a
// chunk, a few tokens and single tokens, with one device: within 1e-5 of the row in exact. In fast, the
// rounding of activations to 15 bits may differ.
func TestSplitTensorRuns(t *testing.T) {
	steps := [][]int32{make([]int32, 64), {9, 4, 42}, {11}, {12}}
	for i := range steps[0] {
		steps[0][i] = int32(i*i*37+5) % 258
	}
	if testing.Short() { // slow under the race detector
		steps = steps[1:3]
	}
	for _, c := range splitModels {
		t.Run(fmt.Sprintf("%s on %d/%s", c.name, c.devices, c.precision), func(t *testing.T) {
			o := lower.Options{Precision: c.precision, Ctx: 80, Ubatch: 64, Passes: c.passes}
			f := tiny.File(t, c.model)
			if c.fp8 {
				o.Sidecar = sidecarOf(t, load(t, c.model))
			}
			whole := openSplit(t, f, o, true)
			o.Devices = c.devices
			parts := openSplit(t, f, o, true)
			tol := map[string]float64{"exact": 1e-5, "fast": 1e-3}[c.precision]
			for _, ids := range steps {
				want, err := whole.Feed(t.Context(), ids)
				if err != nil {
					t.Fatal(err)
				}
				got, err := parts.Feed(t.Context(), ids)
				if err != nil {
					t.Fatal(err)
				}
				sameWithin(t, "logits", got, want, len(want), tol)
				if len(whole.layers) == 0 {
					t.Fatal("no layers seen")
				}
				for layer, want := range whole.layers {
					sameWithin(t, layer, parts.layers[layer], want, c.model.Embd, tol)
				}
			}
		})
	}
}

// TestSplitTensorDecodes continues a prompt on two and on three devices with replayed launches. The tokens
// must be those of one device.
func TestSplitTensorDecodes(t *testing.T) {
	f, err := gguf.Parse("demo", demo.GGUF())
	if err != nil {
		t.Fatal(err)
	}
	tokens := 32
	if testing.Short() {
		tokens = 3
	}
	o := lower.Options{Precision: "exact", Ctx: 64, Ubatch: 8}
	text := func(devices int) (ids []int32) {
		o.Devices = devices
		s := openSplit(t, f, o, false)
		next := []int32{5, 17, 301}
		for range tokens {
			logits, err := s.Feed(t.Context(), next)
			if err != nil {
				t.Fatal(err)
			}
			next = []int32{argmax(logits)}
			ids = append(ids, next...)
		}
		return ids
	}
	want := text(1)
	for _, devices := range []int{2, 3} {
		if got := text(devices); !slices.Equal(got, want) {
			t.Errorf("%d devices: tokens %v, expected %v", devices, got, want)
		}
	}
}
