package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pesti/gguf/quant"
)

// BenchmarkMatmul measures multiply-adds per second of one worker in GMAC/s, for one token (the
// speed of decoding) and for a prefill's block.
func BenchmarkMatmul(b *testing.B) {
	const n, k = 1024, 1536
	for _, mm := range Matmuls() {
		if mm.Name[:4] != "gemv" {
			continue
		}
		for _, m := range []int{1, 32} {
			b.Run(fmt.Sprintf("%s/%d", mm.Name, m), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 2))
				c := newGroup(b, rng, mm, m, k, []int{n})
				if info, _ := quant.Lookup(mm.Type); info.Quantize != nil {
					info.Quantize(c.mem["w0"].data(), randoms(rng, n*k, 0.02)) // scales as models have them
				}
				f := c.bind(b, 0, 1)
				run := &Run{T: m}
				for b.Loop() {
					f(run)
				}
				b.ReportMetric(float64(b.N)*n*k*float64(m)/b.Elapsed().Seconds()/1e9, "GMAC/s")
			})
		}
	}
}
