package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pesti/exec/cuda"
	"pesti/ops/ref"
)

// A layer is an attention with its tokens, which can be computed in steps of any size.
type layer struct {
	heads, kvHeads, headDim, rot int
	window, positions            int
	ring, halves, norms          bool
	kv                           string
	steps                        []int // tokens of sequence 0; the last of a step is followed by one of sequence 1

	rope         ref.Rotary
	qnorm, knorm []float32
}

const (
	layerScale = 0.2
	layerEps   = 1e-6
)

// reference computes tokens of one sequence with ops/ref and a contiguous cache.
func (l *layer) reference(q, k, v []float32, n int) []float32 {
	width, positions := l.kvHeads*l.headDim, (n+15)/16*16
	keys, values := ref.KV{Width: width, Positions: positions}, ref.KV{Width: width, Positions: positions}
	switch size := positions * width; l.kv {
	case "f32":
		keys.F32, values.F32 = make([]float32, size), make([]float32, size)
	case "f16":
		keys.F16, values.F16 = make([]uint16, size), make([]uint16, size)
	case "f8_e4m3":
		keys.FP8, values.FP8 = make([]byte, size), make([]byte, size)
	}
	pos, seq := make([]int32, n), make([]int32, n)
	for i := range pos {
		pos[i] = int32(i)
	}
	prepare := func(x, norm []float32) []float32 {
		y := slices.Clone(x)
		if l.norms {
			ref.RMSNorm(y, x, norm, l.headDim, layerEps)
		}
		l.rope.Rope(y, y, pos)
		return y
	}
	ref.KVWrite(&keys, prepare(k, l.knorm), pos, seq)
	ref.KVWrite(&values, v, pos, seq)
	h := ref.Heads{Heads: l.heads, KVHeads: l.kvHeads, HeadDim: l.headDim, Window: l.window, Positions: positions}
	scores, out := make([]float32, n*l.heads*positions), make([]float32, n*l.heads*l.headDim)
	row := make([]float32, width)
	ref.AttnScores(scores, prepare(q, l.qnorm), &keys, pos, seq, h, layerScale, row)
	ref.Softmax(scores, scores, positions)
	ref.AttnValues(out, scores, &values, pos, seq, h, row, make([]float64, l.headDim))
	return out
}

// table returns the cosines and sines of all positions in the layout that kernels read.
func (l *layer) table(positions int) []float32 {
	var t []float32
	for p := range positions {
		for i := range l.rot / 2 {
			sin, cos := math.Sincos(float64(p) * l.rope.Speed(i))
			t = append(t, float32(cos*l.rope.Magnitude), float32(sin*l.rope.Magnitude))
		}
	}
	return t
}

// TestAttention runs two sequences in steps of several sizes and compares the results with the
// reference. The bits are the same if a separate launch stores keys and values, and if tokens come
// one at a time. The kernel for many tokens meets the same requirements, for its own steps.
func TestAttention(t *testing.T) {
	earliest, latest := newBench(t, "sm_75"), newBench(t, "sm_89")
	for i, l := range []layer{
		{heads: 2, kvHeads: 1, headDim: 16, rot: 16, positions: 320, kv: "f32", steps: []int{255, 1, 1, 33}},
		{heads: 7, kvHeads: 1, headDim: 64, rot: 64, positions: 64, kv: "f16", halves: true, steps: []int{3, 1, 16, 1}},
		{heads: 4, kvHeads: 2, headDim: 128, rot: 64, positions: 64, kv: "f32", halves: true, norms: true, steps: []int{17, 2}},
		{heads: 4, kvHeads: 1, headDim: 256, rot: 256, positions: 64, kv: "f16", halves: true, norms: true, steps: []int{20, 1}},
		{heads: 3, kvHeads: 3, headDim: 40, rot: 0, positions: 32, kv: "f8_e4m3", steps: []int{9, 2}},
		{heads: 4, kvHeads: 2, headDim: 32, rot: 32, positions: 64, window: 20, kv: "f8_e4m3", halves: true, norms: true, steps: []int{16, 28, 1}},
		{heads: 2, kvHeads: 1, headDim: 16, rot: 16, positions: 320, kv: "f8_e4m3", steps: []int{254, 1, 1, 1, 1}},
		{heads: 2, kvHeads: 1, headDim: 24, rot: 8, positions: 320, window: 20, kv: "f16", norms: true, steps: []int{260, 10, 1}},
		{heads: 2, kvHeads: 2, headDim: 16, rot: 16, positions: 48, window: 20, ring: true, kv: "f16", halves: true, steps: []int{16, 28, 20, 1, 1}},
		{heads: 2, kvHeads: 1, headDim: 8, rot: 2, positions: 336, window: 300, ring: true, kv: "f32", steps: []int{30, 20, 33, 33, 30, 30, 33, 33, 30, 33, 33, 33, 1}},
	} {
		t.Run(fmt.Sprintf("%d/%d×%d window=%d ring=%v %s", l.heads, l.kvHeads, l.headDim, l.window, l.ring, l.kv), func(t *testing.T) {
			for _, b := range []*bench{earliest, latest} {
				b.t = t
				if b == earliest || l.kv == "f8_e4m3" { // later GPUs have FP8 instructions
					l.test(b, rand.New(rand.NewPCG(17, uint64(i))))
				}
			}
		})
	}
}

func (l *layer) test(b *bench, rng *rand.Rand) {
	qw, kw := l.heads*l.headDim, l.kvHeads*l.headDim
	l.rope = ref.Rotary{HeadDim: l.headDim, Rot: l.rot, Base: 10000, FreqScale: 1, Magnitude: 1.25, Halves: l.halves}
	l.qnorm, l.knorm = randoms(rng, l.headDim), randoms(rng, l.headDim)
	n := []int{0, len(l.steps)}
	for _, s := range l.steps {
		n[0] += s
	}
	var q, k, v, want [2][]float32
	for s := range 2 {
		q[s], k[s], v[s] = randoms(rng, n[s]*qw), randoms(rng, n[s]*kw), randoms(rng, n[s]*kw)
		want[s] = l.reference(q[s], k[s], v[s], n[s])
	}
	got := l.run(b, rng, l.steps, stored, q, k, v)
	tolerance := map[string]float64{"f32": 3e-6, "f16": 3e-4, "f8_e4m3": 3e-2}[l.kv]
	for s := range got {
		for i, w := range want[s] {
			if !(math.Abs(float64(got[s][i]-w)) <= tolerance) {
				b.t.Fatalf("sequence %d token %d head %d element %d is %v, expected %v ± %v",
					s, i/qw, i%qw/l.headDim, i%l.headDim, got[s][i], w, tolerance)
			}
		}
	}
	again := l.run(b, rng, l.steps, together, q, k, v)
	for s := range got {
		if !sameBits(got[s], again[s]) {
			b.t.Fatalf("sequence %d: bits differ where keys and values are stored ahead", s)
		}
	}
	far, again := l.run(b, rng, l.steps, prefilled, q, k, v), l.run(b, rng, l.split(), prefilled, q, k, v)
	for s := range far {
		for i, w := range want[s] {
			if !(math.Abs(float64(far[s][i]-w)) <= tolerance) {
				b.t.Fatalf("prefill: sequence %d token %d head %d element %d is %v, expected %v ± %v",
					s, i/qw, i%qw/l.headDim, i%l.headDim, far[s][i], w, tolerance)
			}
		}
		if !sameBits(far[s][:len(again[s])], again[s]) {
			b.t.Fatalf("prefill: sequence %d: bits differ in other steps", s)
		}
	}
	if n[0] > 100 { // single tokens would take long
		return
	}
	// One token of each sequence at a time, while both sequences have tokens.
	ones := make([]int, n[1])
	for i := range ones {
		ones[i] = 1
	}
	short := q
	short[0] = q[0][:len(ones)*qw]
	again = l.run(b, rng, ones, together, short, k, v)
	for s := range again {
		if !sameBits(got[s][:len(again[s])], again[s]) {
			b.t.Fatalf("sequence %d: bits differ where tokens come one at a time", s)
		}
	}
}

// split returns the halves of the layer's steps, but no more of them than there are steps: the second sequence has one
// token for each step.
func (l *layer) split() []int {
	var steps []int
	for _, s := range l.steps {
		if s > 1 {
			steps = append(steps, s/2)
			s -= s / 2
		}
		steps = append(steps, s)
	}
	return steps[:len(l.steps)]
}

// A way is a way to compute a step: with one launch, with a separate launch before it that stores keys and values, or
// with that launch and the kernel for many tokens.
type way int

const (
	together way = iota
	stored
	prefilled
)

// run runs both sequences in steps, on a new cache with shuffled pages, and returns the results.
func (l *layer) run(b *bench, rng *rand.Rand, steps []int, how way, q, k, v [2][]float32) (out [2][]float32) {
	qw, kw := l.heads*l.headDim, l.kvHeads*l.headDim
	size := map[string]int{"f32": 4, "f16": 2, "f8_e4m3": 1}[l.kv]
	seqPages := l.positions / 16
	pages := make([]int32, 2*seqPages)
	for i, p := range rng.Perm(2 * seqPages) {
		pages[i] = int32(p)
	}
	most := slices.Max(steps) + 1
	a := cuda.Attention{
		KCache: b.alloc(2 * l.positions * kw * size), VCache: b.alloc(2 * l.positions * kw * size), Pages: b.put(pages),
		Arrived: b.put(make([]uint32, most*l.kvHeads)), Heads: uint32(l.heads), KVHeads: uint32(l.kvHeads), HeadDim: uint32(l.headDim),
		Rot: uint32(l.rot), Positions: uint32(l.positions), Window: uint32(l.window), SeqPages: uint32(seqPages), Scale: layerScale, Eps: layerEps,
	}
	if l.ring {
		a.Ring = 1
	}
	if l.halves {
		a.Halves = 1
	}
	if l.norms {
		a.QNorm, a.KNorm = b.put(l.qnorm), b.put(l.knorm)
	}
	if l.rot > 0 {
		a.Rope = b.put(l.table(len(q[0])/qw + len(steps)))
	}
	a.Work = b.alloc(int(a.AttentionWork(most)))
	var next [2]int
	for _, step := range steps {
		var rq, rk, rv []float32
		var pos, seq []int32
		add := func(s int) {
			i := next[s]
			rq, rk, rv = append(rq, q[s][i*qw:(i+1)*qw]...), append(rk, k[s][i*kw:(i+1)*kw]...), append(rv, v[s][i*kw:(i+1)*kw]...)
			pos, seq = append(pos, int32(i)), append(seq, int32(s))
			next[s]++
		}
		for range step {
			add(0)
		}
		add(1)
		a.Q, a.K, a.V, a.Pos, a.Seq, a.M = b.put(rq), b.put(rk), b.put(rv), b.put(pos), b.put(seq), uint32(len(pos))
		a.Out = b.alloc(4 * len(rq))
		a.Stored = 0
		if how != together {
			b.launch(a.StoreKV(l.kv))
			a.Stored = 1
		}
		if how == prefilled {
			b.launch(a.Prefill(b.dev.Properties(), l.kv))
		} else {
			b.launch(a.Call(b.dev.Properties(), l.kv))
		}
		got := get[float32](b, a.Out, len(rq))
		for i, s := range seq {
			out[s] = append(out[s], got[i*qw:(i+1)*qw]...)
		}
		if n := slices.Max(get[uint32](b, a.Arrived, most*l.kvHeads)); n != 0 {
			b.t.Fatalf("a counter of blocks that have arrived is left at %d: the next launch would not wait", n)
		}
	}
	return out
}
