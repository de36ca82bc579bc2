package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pesti/gguf/quant"
)

// BenchmarkMatmul measures one worker's matmul in GMAC/s (multiply-adds) and in GB/s of weights, for
// the batch sizes of single-sequence decoding, batched decoding and prompts. Weights are larger than a
// core's caches.
func BenchmarkMatmul(b *testing.B) {
	const n, k = 4864, 896
	for _, mm := range runnable() {
		if mm.Name[:4] != "gemv" {
			continue
		}
		for _, m := range []int{1, 2, 4, 8, 64} {
			if mm.ISA == "portable" && m > 4 { // slow, and no faster than with 4
				continue
			}
			b.Run(fmt.Sprintf("%s/%s/%d", mm.Name, mm.ISA, m), func(b *testing.B) {
				k := k
				if info, _ := quant.ByName(mm.Type.String()); k%info.BlockLen != 0 {
					k = 768
				}
				rng := rand.New(rand.NewPCG(1, 2))
				c := newCall("matmul_group", "T", "rows", 16, intParam("k", k), intParam("n0", n))
				c.isa, c.scratch = mm.ISA, scratchOf(mm.Act, m, k)
				c.putActivations(rng, mm.Act, m, k)
				c.putWeight(rng, "w0", mm.Name, mm.Type, n, k)
				c.pack("w0", mm, n, k)
				c.put("out0", make([]float32, m*n))
				f := c.bind(b, 0, 1)
				run := &Run{T: m}
				for b.Loop() {
					f(run)
				}
				perSecond := float64(b.N) / b.Elapsed().Seconds() / 1e9
				b.ReportMetric(perSecond*float64(n*k*m), "GMAC/s")
				b.ReportMetric(perSecond*float64(len(c.mem["w0"].data())), "GB/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkPack measures packing in GB/s of the file.
func BenchmarkPack(b *testing.B) {
	const n, k = 1024, 768
	for _, l := range Layouts() {
		packers := map[string]Packer{"portable": l.Pack}
		for _, p := range runnablePacks() {
			if p.kind == l.Type {
				packers[p.isa] = l.packer(p)
			}
		}
		for isa, pack := range packers {
			b.Run(l.Type.String()+"/"+isa, func(b *testing.B) {
				info, _ := quant.Lookup(l.Type)
				file := randomBlocks(rand.New(rand.NewPCG(1, 2)), info, n*k)
				dst := make([]byte, l.Size(n, k))
				b.SetBytes(int64(len(file)))
				for b.Loop() {
					pack(dst, file, n, k, 0, l.Panels(n))
				}
			})
		}
	}
}
