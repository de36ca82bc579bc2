package conformance

import (
	"math"
	"strings"
	"testing"

	"pesti/conformance/tiny"
	"pesti/exec"
	"pesti/exec/plan"
	"pesti/frontend"
	"pesti/gguf/quant"
	"pesti/graph"
	"pesti/graph/graphtest"
	"pesti/lower"
	"pesti/lower/cpu"
)

// TestTensorTypes runs a model whose matrices, including the embedding and the output projection,
// all have one type, for every type that can be dequantized. It compares every precision, and a
// plan without passes, with the interpreter.
func TestTensorTypes(t *testing.T) {
	tried := 0
	for id := quant.Type(0); ; id++ {
		info, ok := quant.Lookup(id)
		if !ok {
			break
		}
		// Integers are for indices; the frontend refuses them as weights.
		if info.Dequantize == nil || info.Integer {
			continue
		}
		tried++
		t.Run(info.Name, func(t *testing.T) { runType(t, info) })
	}
	if tried < 29 {
		t.Errorf("tried %d types, expected at least the 29 known ones", tried)
	}
}

func runType(t *testing.T, info *quant.Info) {
	file := tiny.File(t, tiny.Config{Arch: "qwen2", Layers: 1, Embd: 256, FF: 256, Heads: 4, Vocab: 260, Types: []quant.Type{info.Type}, Seed: uint64(info.Type)})
	for _, x := range file.Tensors() {
		if len(x.Dims) == 2 && x.Type != info.Type {
			t.Errorf("tensor %s is %s", x.Name, x.Type)
		}
	}
	if found := file.Check(); len(found) > 0 {
		t.Errorf("the model is damaged: %v and %d more", found[0], len(found)-1)
	}
	m, err := frontend.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	var ids []int32 // enough for the prefill program, and one for decode
	for i := range 34 {
		ids = append(ids, int32(i*37%256))
	}
	var want []float32
	for _, c := range []struct {
		options lower.Options
		limit   float64
	}{
		{lower.Options{Precision: "exact"}, 1e-5},
		{lower.Options{Precision: "exact", Passes: "none"}, 1e-5},
		{lower.Options{Precision: "fast"}, 5e-3}, // a float16 cache
	} {
		c.options.Threads, c.options.Verify = 2, true
		r, err := lower.Compile(m, c.options)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			if want, err = graphtest.LastLogits(r.Built, graphtest.FromFile(file), ids); err != nil {
				t.Fatal(err)
			}
		}
		if c.options.Passes == "" {
			checkKernels(t, r.Plan, strings.ToLower(info.Name), c.options.Precision)
		}
		e, err := exec.Open(r.Plan, file, exec.Options{Threads: 2, Poison: true})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		s, err := exec.NewSession(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Feed(t.Context(), ids[:33]); err != nil {
			t.Fatal(err)
		}
		got, err := s.Feed(t.Context(), ids[33:])
		if err != nil {
			t.Fatal(err)
		}
		var worst, size float64
		for i := range want {
			worst = max(worst, math.Abs(float64(got[i])-float64(want[i]))) // NaN stays
			size = max(size, math.Abs(float64(want[i])))
		}
		if !(worst <= c.limit*size) {
			t.Errorf("%+v: logits are %g apart, of %g at most, expected up to %g of that", c.options, worst, size, c.limit)
		}
	}
}

// checkKernels checks that decode and prefill multiply with a kernel for the type itself: with
// float32 activations in exact, and also in fast if the type has no integer kernel.
func checkKernels(t *testing.T, p *plan.Plan, typ, precision string) {
	t.Helper()
	seen := map[string]bool{}
	for _, g := range p.Programs {
		for _, w := range g.Waves {
			for _, st := range w.Steps {
				for _, a := range st.Args {
					if a.Kernel != "" {
						seen[a.Kernel] = true
					}
				}
			}
		}
	}
	act := ".f32"
	if precision == "fast" && cpu.Integer(graph.DType(typ)) {
		act = ".q8x2"
	}
	for _, shape := range []string{"gemv.", "gemm."} {
		if !seen[shape+typ+act] {
			t.Errorf("%s: the plan has kernels %v, expected %s", precision, seen, shape+typ+act)
		}
	}
}
