package cuda_test

import (
	"testing"

	"pesti/exec/cuda"
	"pesti/exec/cuda/kernels"
)

// TestSharedMemory loads kernels with the largest dynamic shared memory that Calls use, and checks that it fits in a
// block together with their static shared memory.
func TestSharedMemory(t *testing.T) {
	for _, set := range kernels.Sets() {
		t.Run(set.ISA, func(t *testing.T) {
			b := newBench(t, set.ISA)
			on := b.dev.Properties()
			var calls []cuda.Call
			add := func(call cuda.Call, err error) {
				if err == nil {
					calls = append(calls, call)
				}
			}
			for _, exact := range []bool{false, true} {
				for m := range uint32(9) {
					for k := uint32(1024); k <= 32768; k += 256 {
						p := cuda.Product{K: k, M: m + 1}
						p.Ops[0].Weight.Rows = 64
						add(p.Call(on, exact))
					}
				}
			}
			for _, format := range []string{"f32", "f16", "f8_e4m3"} {
				for heads := range uint32(64) {
					for d := uint32(64); d <= 256; d += 64 {
						a := cuda.Attention{Heads: heads + 1, KVHeads: 1, HeadDim: d, Positions: 4096, M: 1}
						add(a.Call(on, format))
						add(a.Prefill(on, format))
					}
				}
			}
			most := map[string]int{}
			for _, c := range calls {
				most[c.Kernel] = max(most[c.Kernel], c.Shared, on.Shared-cuda.StaticShared)
			}
			if len(most) != 7+9+9 {
				t.Errorf("%d kernels", len(most))
			}
			for kernel, bytes := range most {
				name, ptx, err := set.Module(kernel)
				b.check(err)
				if b.modules[name] == nil {
					b.modules[name], err = b.dev.Load(ptx)
					b.check(err)
				}
				if _, err := b.modules[name].Function(kernel, bytes); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
