//go:build amd64 && !purego

package kernel

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"pesti/exec/cpu/isa"
)

// TestFloatSets checks that products of float32 activations with panels have the same bits with AVX2 and AVX-512, for
// every type of weights and any number of tokens.
func TestFloatSets(t *testing.T) {
	if _, err := isa.UpTo("avx512vnni"); err != nil {
		t.Skipf("runs in make prove, on the emulator: %v", err)
	}
	for _, mm := range Matmuls() {
		if mm.ISA != "avx512vnni" || mm.Act != "f32" || strings.HasPrefix(mm.Name, "gemm") {
			continue
		}
		t.Run(mm.Name, func(t *testing.T) {
			l, _ := LookupLayout(mm.Layout, mm.Type)
			for _, elements := range []int{1, 31, 32, 33, 100, 290, 900} {
				n, k := 37, (elements+l.Block-1)/l.Block*l.Block
				const most = 19
				rng := rand.New(rand.NewPCG(61, uint64(k)))
				c := newCall("matmul_group", "T", "rows", 16, intParam("k", k), intParam("n0", n))
				c.scratch = scratchOf(mm.Act, most, k)
				c.setActivations(mm.Act, most, k, numbers(rng, most*k))
				c.putWeight(rng, "w0", strings.Replace(mm.Name, "."+mm.Layout, "", 1), mm.Type, n, k)
				c.pack("w0", mm, n, k)
				out := c.put("out0", make([]float32, most*n)).data()
				for m := 1; m <= most; m++ {
					c.isa = "avx2"
					c.run(t, 1, Run{T: m}, "out0")
					want := bytes.Clone(out[:4*m*n])
					c.isa = mm.ISA
					c.run(t, 2, Run{T: m}, "out0")
					if !bytes.Equal(out[:4*m*n], want) {
						t.Fatalf("%d×%d times %d rows differs from the product with AVX2", n, k, m)
					}
				}
			}
		})
	}
}
