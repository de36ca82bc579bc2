package exec_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/cuda/virtual"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/graph"
	"pesti/graph/graphtest"
	"pesti/lower"
)

// onDevice runs ids through a model on the virtual device, in parts, and returns the logits of each. It
// checks that no step runs on the host.
func onDevice(t *testing.T, m *frontend.Model, o lower.Options, ids []int32) []float32 {
	t.Helper()
	o.Target = plan.CUDA
	r, err := lower.Compile(m, o)
	if err != nil {
		t.Fatal(err)
	}
	if s := plan.Summarize(r.Plan); s.Fallbacks != 0 {
		t.Errorf("%d fallbacks, expected none", s.Fallbacks)
	}
	e, err := exec.Open(r.Plan, m.File, exec.Options{Poison: true, Sidecar: o.Sidecar, Driver: virtual.New(virtual.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	logits := inParts(t, e, ids)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	return logits
}

// onProcessor does the same on the CPU.
func onProcessor(t *testing.T, m *frontend.Model, o lower.Options, ids []int32) []float32 {
	t.Helper()
	e, err := exec.Open(compile(t, m, o).Plan, m.File, exec.Options{Poison: true, Sidecar: o.Sidecar})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	return inParts(t, e, ids)
}

// inParts feeds all but the last two ids as a whole chunk and a rest, then the last two one by one, and
// returns the logits of each part.
func inParts(t *testing.T, e *exec.Engine, ids []int32) (logits []float32) {
	t.Helper()
	s, n := session(t, e), len(ids)-2
	for _, part := range [][]int32{ids[:n], ids[n : n+1], ids[n+1:]} {
		logits = append(logits, feed(t, s, part)...)
	}
	return logits
}

// flip is the bound of logits with an FP8 cache. A number so close to the midpoint of two FP8 numbers that
// the order of a sum decides its rounding occurs about once in a hundred thousand. FP8 itself changes logits
// by about 1 %.
const flip = 1e-4

// TestDeviceModels compares the results of every program, for models of all architectures with weights and
// caches of all types, on the modules of every target, with the graph's reference semantics. For FP8 caches,
// which the reference does not have, it compares with the CPU with such a cache. The bounds are those of the
// CPU. All targets must give the same bits.
func TestDeviceModels(t *testing.T) {
	if testing.Short() {
		t.Skip("slow under the race detector")
	}
	all := maps.Clone(configs)
	all["qwen3"] = tiny.Config{Arch: "qwen3", Types: mixed, HeadDim: 32}
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			m := load(t, c)
			s := sidecarOf(t, m)
			ids := prompt(67)
			inFile := graphtest.FromFile(m.File)
			inSidecar := func(w *graph.Value) ([]float32, error) {
				if b, ok := s.Weight(w.Name); ok {
					return s.Values(b, 0, b.Rows)
				}
				return inFile(w)
			}
			interpreted := func(weights func(*graph.Value) ([]float32, error), o lower.Options) (want []float32) {
				built := compile(t, m, o).Built
				for n := len(ids) - 2; n <= len(ids); n++ {
					row, err := graphtest.LastLogits(built, weights, ids[:n])
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, row...)
				}
				return want
			}
			const fp8 = "f8_e4m3"
			plain := interpreted(inFile, lower.Options{})
			own := interpreted(inSidecar, lower.Options{Sidecar: s})
			cached := onProcessor(t, m, lower.Options{Precision: "exact", KV: fp8, Sidecar: s}, ids)
			if d := apart(cached, own); d < 1e-3 {
				t.Fatalf("a cache in FP8 changes logits by %g, expected more", d)
			}
			bits := map[string][]float32{}
			for _, c := range []struct {
				o     lower.Options
				want  []float32
				limit float64
			}{
				{lower.Options{ISA: "sm_75", Precision: "exact"}, plain, 1e-5},
				{lower.Options{ISA: "sm_75", Precision: "exact", Sidecar: s}, own, 1e-5},
				{lower.Options{ISA: "sm_75", Precision: "exact", Sidecar: s, KV: fp8}, cached, flip},
				{lower.Options{ISA: "sm_75", Precision: "fast"}, plain, 5e-3},
				{lower.Options{ISA: "sm_75", Precision: "fast", KV: "f32"}, plain, 1e-3},
				{lower.Options{ISA: "sm_80", Precision: "fast", KV: "f32"}, plain, 1e-3},
				{lower.Options{ISA: "sm_89", Precision: "exact", Sidecar: s, KV: fp8}, cached, flip},
				{lower.Options{ISA: "sm_89", Precision: "fast", KV: fp8}, onProcessor(t, m, lower.Options{Activations: "q8x2", KV: fp8}, ids), 5e-3},
			} {
				got := onDevice(t, m, c.o, ids)
				same := fmt.Sprint(c.o.Precision, c.o.KV, c.o.Sidecar != nil)
				if bits[same] != nil && !slices.Equal(bits[same], got) {
					t.Errorf("%s %s kv=%s: other bits than on the modules of another target", c.o.ISA, c.o.Precision, c.o.KV)
				}
				bits[same] = got
				d := apart(got, c.want)
				t.Logf("%s %s kv=%s FP8 weights=%v: %.1e of at most %.0e", c.o.ISA, c.o.Precision, c.o.KV, c.o.Sidecar != nil, d, c.limit)
				if !(d <= c.limit) {
					t.Errorf("%s %s kv=%s FP8 weights=%v: logits are %g apart, expected up to %g", c.o.ISA, c.o.Precision, c.o.KV, c.o.Sidecar != nil, d, c.limit)
				}
			}
		})
	}
}
