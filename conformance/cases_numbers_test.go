package conformance

import (
	"maps"
	"testing"

	"pesti/conformance/testenv"
	"pesti/frontend"
	"pesti/gguf/quant"
	"pesti/lower"
)

// TestLabelIsNoType checks that tensor types come from the tensors, not from the label Q4_K_M in
// the model's name.
func TestLabelIsNoType(t *testing.T) {
	types := map[quant.Type]int{}
	for _, x := range openModel(t, testenv.Qwen).file.Tensors() {
		if len(x.Dims) > 1 {
			types[x.Type]++
		}
	}
	want := map[quant.Type]int{quant.Q5_0: 133, quant.Q8_0: 13, quant.Q6_K: 12, quant.Q4_K: 12}
	if !maps.Equal(types, want) {
		t.Errorf("the Q4_K_M model has matrices of types %v, expected %v", types, want)
	}
}

// TestCacheBytes checks the bytes that a position takes in a float16 cache: computed from the
// hyper-parameters, and measured as the growth of a plan with more positions. Gemma's sliding
// layers keep only their window and the current step, so only its global layers, 3 of 18, grow.
func TestCacheBytes(t *testing.T) {
	for _, c := range []struct {
		model          string
		bytes, growing int64 // per position
	}{
		{testenv.SmolLM2, 23040, 23040},
		{testenv.Qwen, 12288, 12288},
		{testenv.Gemma, 18432, 18432 * 3 / 18},
	} {
		m, err := frontend.Load(openModel(t, c.model).file)
		if err != nil {
			t.Fatal(err)
		}
		const each = 2 * 2 // keys and values, two bytes per element
		bytes := int64(0)
		for _, l := range m.Params.Layers {
			bytes += each * l.KVHeads * m.Params.HeadDim
		}
		if bytes != c.bytes {
			t.Errorf("%s: %d bytes of cache per position, expected %d", c.model, bytes, c.bytes)
		}
		state := func(ctx int64) int64 {
			res, err := lower.Compile(m, lower.Options{Ctx: ctx, Ubatch: 64, KV: "f16"})
			if err != nil {
				t.Fatal(err)
			}
			return res.Plan.Memory.State
		}
		if grown := state(2048) - state(1024); grown != 1024*c.growing {
			t.Errorf("%s: 1024 more positions take %d bytes, expected %d each", c.model, grown, c.growing)
		}
	}
}
