package conformance

import (
	"maps"
	"testing"

	"pesti/conformance/testenv"
	"pesti/frontend"
	"pesti/gguf/quant"
	"pesti/lower"
)

// TestLabelIsNoType: a model that is called Q4_K_M holds what it holds.
func TestLabelIsNoType(t *testing.T) {
	types := map[quant.Type]int{}
	for _, x := range openModel(t, testenv.Qwen).file.Tensors() {
		if len(x.Dims) > 1 {
			types[x.Type]++
		}
	}
	want := map[quant.Type]int{quant.Q5_0: 133, quant.Q8_0: 13, quant.Q6_K: 12, quant.Q4_K: 12}
	if !maps.Equal(types, want) {
		t.Errorf("Q4_K_M holds matrices of %v, expected %v", types, want)
	}
}

// TestCacheBytes holds what a position takes in caches of float16, by the hyper-parameters and by
// what more positions add to a plan. Gemma's sliding layers keep their window and what a step
// writes, so that there only the global ones, 3 of 18, grow.
func TestCacheBytes(t *testing.T) {
	for _, c := range []struct {
		model          string
		bytes, growing int64 // of a position
	}{
		{testenv.SmolLM2, 23040, 23040},
		{testenv.Qwen, 12288, 12288},
		{testenv.Gemma, 18432, 18432 * 3 / 18},
	} {
		m, err := frontend.Load(openModel(t, c.model).file)
		if err != nil {
			t.Fatal(err)
		}
		const each = 2 * 2 // keys and values, of two bytes
		bytes := int64(0)
		for _, l := range m.Params.Layers {
			bytes += each * l.KVHeads * m.Params.HeadDim
		}
		if bytes != c.bytes {
			t.Errorf("%s: %d bytes of cache a position, expected %d", c.model, bytes, c.bytes)
		}
		state := func(ctx int64) int64 {
			res, err := lower.Compile(m, lower.Options{Ctx: ctx, Ubatch: 64, KV: "f16"})
			if err != nil {
				t.Fatal(err)
			}
			return res.Plan.Memory.State
		}
		if grown := state(2048) - state(1024); grown != 1024*c.growing {
			t.Errorf("%s: 1024 positions more take %d bytes, expected %d each", c.model, grown, c.growing)
		}
	}
}
