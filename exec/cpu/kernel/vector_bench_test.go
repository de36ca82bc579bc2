package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pesti/gguf/numfmt"
)

// BenchmarkAttention measures one worker's attention over all heads, for the shapes of three models, in
// GMAC/s and in GB/s of the cache that a step reads.
func BenchmarkAttention(b *testing.B) {
	for _, model := range []struct {
		name string
		layer
	}{
		{"smollm2", layer{heads: 9, kvHeads: 3, headDim: 64, rot: 64, layout: "pairs"}},
		{"qwen", layer{heads: 14, kvHeads: 2, headDim: 64, rot: 64, layout: "halves"}},
		{"gemma", layer{heads: 4, kvHeads: 1, headDim: 256, rot: 256, layout: "halves", norms: true}},
		{"gemma-window", layer{heads: 4, kvHeads: 1, headDim: 256, rot: 256, layout: "halves", norms: true, window: 512}},
	} {
		for _, v := range runnableVectors() {
			for _, kv := range []string{"f16", "f8_e4m3", "q8_0"} {
				for _, shape := range [][2]int{{512, 1}, {4096, 1}, {512, 512}, {4096, 64}} {
					l := model.layer
					l.isa, l.kv, l.sequences, l.ctx, l.positions, l.maxTokens = v.isa, kv, 1, shape[0], shape[0], shape[1]
					b.Run(fmt.Sprintf("%s/%s/%s/ctx=%d/T=%d", model.name, v.isa, kv, shape[0], shape[1]), l.bench)
				}
			}
		}
	}
}

// bench measures a step whose last token is the last of the context. Steps cycle through the caches of
// so many layers that they do not fit in the processor's cache.
func (l *layer) bench(b *testing.B) {
	const beyondCaches = 64 << 20
	rng := rand.New(rand.NewPCG(41, 42))
	var layers []Func
	bytes := 0
	for all := 0; all < beyondCaches; all += bytes {
		c := l.start(rng)
		for _, role := range []string{"q", "k", "v"} {
			x := c.mem[role].f32()
			copy(x, randoms(rng, len(x), 1))
		}
		for i := range l.maxTokens {
			view[int32](c.mem["pos"].data())[i] = int32(l.ctx - l.maxTokens + i)
		}
		bytes = 0
		for _, role := range []string{"kcache", "vcache"} {
			clear(c.mem[role].data())
			bytes += len(c.mem[role].data())
		}
		layers = append(layers, c.bind(b, 0, 1))
	}
	pairs, seen := 0, 0
	for i := range l.maxTokens {
		n := l.ctx - l.maxTokens + i + 1
		if l.window > 0 {
			n = min(n, l.window)
		}
		pairs += n
		seen = max(seen, n)
	}
	next := 0
	perSecond := 1 / fastest(b, func() {
		layers[next](&Run{T: l.maxTokens})
		next = (next + 1) % len(layers)
	}).Seconds() / 1e9
	b.ReportMetric(perSecond*float64(2*pairs*l.heads*l.headDim), "GMAC/s")
	b.ReportMetric(perSecond*float64(bytes)*float64(min(seen+l.maxTokens, l.ctx))/float64(l.ctx), "GB/s")
	b.ReportMetric(0, "ns/op")
}

// fastest returns the time of the fastest of b's runs, the one least disturbed by other load.
func fastest(b *testing.B, run func()) time.Duration {
	best := time.Duration(math.MaxInt64)
	for b.Loop() {
		start := time.Now()
		run()
		best = min(best, time.Since(start))
	}
	return best
}

// BenchmarkVectors measures the other inner loops, each on a row of a small model, in elements per
// nanosecond.
func BenchmarkVectors(b *testing.B) {
	const n = 4864
	rng := rand.New(rand.NewPCG(43, 44))
	x, y, w := randoms(rng, n, 1), make([]float32, n), randoms(rng, n, 1)
	row, halves := make([]byte, numfmt.Q8x2Bytes(n)), make([]uint16, n)
	speed, cos, sin := make([]float64, n/2), make([]float32, n/2), make([]float32, n/2)
	for i := range speed {
		speed[i] = math.Pow(1e4, -float64(i)/float64(n/2))
	}
	for _, v := range runnableVectors() {
		for _, loop := range []struct {
			name string
			run  func()
		}{
			{"norm", func() { v.rmsNorm(y, x, w, 1e-6) }},
			{"quantize to q8x2", func() { v.quantize["q8x2"](row, x) }},
			{"quantize to q8", func() { v.quantize["q8"](row, x) }},
			{"silu", func() { v.gates["silu"](y, x, w) }},
			{"gelu_tanh", func() { v.gates["gelu_tanh"](y, x, w) }},
			{"widen", func() { v.widen(y, halves) }},
			{"sines", func() { v.sines(cos, sin, speed, 1000, 1) }},
			{"turn halves", func() { v.rotateHalves(x[:n/2], x[n/2:], cos, sin) }},
			{"turn pairs", func() { v.rotatePairs(x, cos, sin) }},
		} {
			b.Run(v.isa+"/"+loop.name, func(b *testing.B) {
				b.ReportMetric(n/float64(fastest(b, loop.run).Nanoseconds()), "elems/ns")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
