package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pesti/exec/plan"
	"pesti/gguf/numfmt"
	"pesti/ops/ref"
)

// A layer is an attention whose tokens can be run in steps of any size.
type layer struct {
	heads, kvHeads, headDim, rot int
	window, positions, ctx       int
	ring                         bool
	layout, kv                   string
	norms, freqs                 bool
	rampHigh                     float64 // YaRN from pair 0 to this one, 0 for none
	sequences, maxTokens         int     // most tokens in a step
	isa                          string  // instruction set of the inner loops; "" for portable

	qnorm, knorm, freq []float32
	pages              []int32
}

func (l *layer) name() string {
	return fmt.Sprintf("%d/%d×%d rot=%d window=%d ring=%v positions=%d %s %s norms=%v", l.heads, l.kvHeads, l.headDim, l.rot, l.window, l.ring, l.positions, l.layout, l.kv, l.norms)
}

const (
	testBase  = 10000.0
	testScale = 0.2
	testEps   = 1e-6
)

func (l *layer) magnitude() float64 {
	if l.rampHigh > 0 {
		return 1.25
	}
	return 1
}

// A token is one row of q, k and v with its sequence and position.
type token struct {
	seq, pos int
	q, k, v  []float32
}

func (l *layer) tokens(rng *rand.Rand, seq, n int) []token {
	all := make([]token, n)
	for i := range all {
		all[i] = token{seq, i, randoms(rng, l.heads*l.headDim, 1), randoms(rng, l.kvHeads*l.headDim, 1), randoms(rng, l.kvHeads*l.headDim, 1)}
	}
	return all
}

// start returns a call of the attention kernel with empty caches.
func (l *layer) start(rng *rand.Rand) *call {
	ring := 0
	if l.ring {
		ring = 1
	}
	c := newCall("attention", "T", "heads", 1,
		intParam("heads", l.heads), intParam("kv_heads", l.kvHeads), intParam("head_dim", l.headDim), intParam("rot", l.rot),
		intParam("positions", l.positions), intParam("window", l.window), intParam("ring", ring),
		floatParam("base", testBase), floatParam("freq_scale", 0.5),
		floatParam("ramp_low", 0), floatParam("ramp_high", l.rampHigh), floatParam("magnitude", l.magnitude()), floatParam("scale", testScale), floatParam("eps", testEps),
		plan.Param{Name: "layout", Value: l.layout})
	c.isa, c.ctx, c.pages = l.isa, l.ctx, (l.ctx+15)/16
	c.scratch = 4 * (97*l.headDim + 240 + l.heads*(32*l.headDim+544) + l.maxTokens*(2*l.headDim+l.rot))
	c.put("q", make([]float32, l.maxTokens*l.heads*l.headDim))
	c.put("k", make([]float32, l.maxTokens*l.kvHeads*l.headDim))
	c.put("v", make([]float32, l.maxTokens*l.kvHeads*l.headDim))
	c.putInts("pos", make([]int32, l.maxTokens))
	c.putInts("seq", make([]int32, l.maxTokens))
	c.put("out", make([]float32, l.maxTokens*l.heads*l.headDim))
	format, _ := plan.LookupFormat(l.kv)
	size, _ := format.Size(int64(l.sequences * l.positions * l.kvHeads * l.headDim))
	for _, role := range []string{"kcache", "vcache"} {
		data := c.add(role, l.kv, int(size)).data()
		for i := range data {
			data[i] = 0xff // NaN: what was not written must not be read
		}
	}
	if l.pages == nil {
		for _, p := range rng.Perm(l.sequences * c.pages) {
			l.pages = append(l.pages, int32(p))
		}
		l.qnorm, l.knorm = randoms(rng, l.headDim, 1), randoms(rng, l.headDim, 1)
		for range l.rot / 2 {
			l.freq = append(l.freq, 1+rng.Float32())
		}
	}
	c.putInts("pages", l.pages)
	if l.norms {
		c.put("qnorm", l.qnorm)
		c.put("knorm", l.knorm)
	}
	if l.freqs {
		c.put("freqs", l.freq)
	}
	return c
}

// step runs one step of tokens and returns their output rows.
func (l *layer) step(t *testing.T, c *call, workers int, tokens []token) [][]float32 {
	for i, tok := range tokens {
		copy(c.mem["q"].f32()[i*l.heads*l.headDim:], tok.q)
		copy(c.mem["k"].f32()[i*l.kvHeads*l.headDim:], tok.k)
		copy(c.mem["v"].f32()[i*l.kvHeads*l.headDim:], tok.v)
		view[int32](c.mem["pos"].data())[i] = int32(tok.pos)
		view[int32](c.mem["seq"].data())[i] = int32(tok.seq)
	}
	c.run(t, workers, Run{T: len(tokens)}, "out")
	var rows [][]float32
	for i := range tokens {
		rows = append(rows, slices.Clone(c.mem["out"].f32()[i*l.heads*l.headDim:][:l.heads*l.headDim]))
	}
	return rows
}

// reference computes the tokens of one sequence with ops/ref and a contiguous cache.
func (l *layer) reference(tokens []token) [][]float32 {
	width := l.kvHeads * l.headDim
	positions := (len(tokens) + 15) / 16 * 16
	keys, values := ref.KV{Width: width, Positions: positions}, ref.KV{Width: width, Positions: positions}
	switch n := positions * width; l.kv {
	case "f32":
		keys.F32, values.F32 = make([]float32, n), make([]float32, n)
	case "f16":
		keys.F16, values.F16 = make([]uint16, n), make([]uint16, n)
	case "f8_e4m3":
		keys.FP8, values.FP8 = make([]uint8, n), make([]uint8, n)
	case "q8_0":
		keys.Q8, values.Q8 = make([]byte, n/numfmt.BlockLen*numfmt.Q8_0Bytes), make([]byte, n/numfmt.BlockLen*numfmt.Q8_0Bytes)
	}
	rotary := ref.Rotary{HeadDim: l.headDim, Rot: l.rot, Base: testBase, FreqScale: 0.5, RampHigh: l.rampHigh, Magnitude: l.magnitude(), Halves: l.layout == "halves"}
	if l.freqs {
		rotary.Freqs = l.freq
	}
	prepare := func(x, norm []float32, pos []int32) []float32 {
		y := slices.Clone(x)
		if l.norms {
			ref.RMSNorm(y, x, norm, l.headDim, testEps)
		}
		rotary.Rope(y, y, pos)
		return y
	}
	var rows [][]float32
	geometry := ref.Heads{Heads: l.heads, KVHeads: l.kvHeads, HeadDim: l.headDim, Window: l.window, Positions: positions}
	scores := make([]float32, l.heads*positions)
	for _, tok := range tokens {
		pos, seq := []int32{int32(tok.pos)}, []int32{0}
		ref.KVWrite(&keys, prepare(tok.k, l.knorm, pos), pos, seq)
		ref.KVWrite(&values, tok.v, pos, seq)
		row, acc := make([]float32, width), make([]float64, l.headDim)
		ref.AttnScores(scores, prepare(tok.q, l.qnorm, pos), &keys, pos, seq, geometry, testScale, row)
		ref.Softmax(scores, scores, positions)
		out := make([]float32, l.heads*l.headDim)
		ref.AttnValues(out, scores, &values, pos, seq, geometry, row, acc)
		rows = append(rows, out)
	}
	return rows
}

// tolerance returns the largest difference of two correct results. Two keys that differ in the last bit
// of float32 may be rounded to neighboring numbers of the cache: a relative difference of 2⁻¹¹ in
// float16 and 1/8 in FP8, and of 1/100 of the block's largest element in q8_0.
func (l *layer) tolerance() float64 {
	return map[string]float64{"f32": 2e-6, "f16": 2e-4, "f8_e4m3": 2e-2, "q8_0": 2e-3}[l.kv]
}

// TestAttention compares the fused attention with the separate ops, and checks that chunk sizes, other
// sequences in the step and the number of workers do not change a bit.
func TestAttention(t *testing.T) {
	layers := []layer{
		{heads: 3, kvHeads: 3, headDim: 8, rot: 8, positions: 128, layout: "pairs", kv: "f32"},
		{heads: 7, kvHeads: 1, headDim: 6, rot: 4, positions: 128, layout: "halves", kv: "f16", freqs: true},
		{heads: 4, kvHeads: 2, headDim: 32, rot: 32, positions: 128, layout: "halves", kv: "f16", norms: true},
		{heads: 2, kvHeads: 1, headDim: 20, rot: 20, positions: 128, window: 20, layout: "pairs", kv: "f32", norms: true},
		{heads: 2, kvHeads: 1, headDim: 16, rot: 16, positions: 64, window: 20, ring: true, layout: "halves", kv: "f16"},
		{heads: 4, kvHeads: 2, headDim: 16, rot: 12, positions: 128, layout: "pairs", kv: "f16", freqs: true, rampHigh: 4},
		{heads: 2, kvHeads: 2, headDim: 16, rot: 2, positions: 48, window: 1, ring: true, layout: "halves", kv: "f32"},
		{heads: 3, kvHeads: 1, headDim: 64, rot: 64, positions: 128, layout: "halves", kv: "f8_e4m3"},
		{heads: 4, kvHeads: 2, headDim: 20, rot: 12, positions: 64, window: 20, ring: true, layout: "pairs", kv: "f8_e4m3", norms: true},
		{heads: 3, kvHeads: 1, headDim: 64, rot: 64, positions: 128, layout: "halves", kv: "q8_0"},
		{heads: 4, kvHeads: 2, headDim: 32, rot: 32, positions: 64, window: 20, ring: true, layout: "pairs", kv: "q8_0", norms: true},
	}
	for _, set := range runnableVectors() {
		for i, l := range layers {
			l.isa, l.sequences, l.ctx, l.maxTokens = set.isa, 2, 128, 45
			t.Run(set.isa+" "+l.name(), func(t *testing.T) { l.test(t, rand.New(rand.NewPCG(17, uint64(i)))) })
		}
	}
}

// test runs the layer in steps of several sizes and compares.
func (l *layer) test(t *testing.T, rng *rand.Rand) {
	a, b := l.tokens(rng, 0, 100), l.tokens(rng, 1, 40)
	l.start(rng) // draws the weights
	want := l.reference(a)
	var first [][]float32
	same := func(got [][]float32, how string) {
		t.Helper()
		if first == nil {
			first = got
		}
		for j := range first {
			if !sameBits(first[j], got[j]) {
				t.Fatalf("%s: token %d differs", how, j)
			}
		}
	}
	chunks := []int{45, 1, 7, 16, 17, 32}
	if testing.Short() { // slow under the race detector
		chunks = chunks[:3]
	}
	for _, chunk := range chunks {
		for workers := 1; workers <= 3; workers++ {
			c := l.start(rng)
			var got [][]float32
			for part := range slices.Chunk(a, chunk) {
				got = append(got, l.step(t, c, workers, part)...)
			}
			same(got, fmt.Sprintf("chunks of %d on %d workers", chunk, workers))
		}
	}
	for j, row := range first {
		for d, got := range row {
			if w := want[j][d]; !(math.Abs(float64(got-w)) <= l.tolerance()*(1+math.Abs(float64(w)))) {
				t.Fatalf("token %d, element %d is %v, expected %v", j, d, got, w)
			}
		}
	}
	// With another sequence before or after it in the step, of another length.
	for _, before := range []bool{true, false} {
		c := l.start(rng)
		var got [][]float32
		at := 0
		for part := range slices.Chunk(a, 11) {
			other := b[at:min(at+5, len(b))]
			at += len(other)
			if before {
				rows := l.step(t, c, 2, slices.Concat(other, part))
				got = append(got, rows[len(other):]...)
			} else {
				got = append(got, l.step(t, c, 2, slices.Concat(part, other))[:len(part)]...)
			}
		}
		same(got, "together with another sequence")
	}
	// Going back and over the same tokens again.
	if !l.ring {
		c := l.start(rng)
		for part := range slices.Chunk(b, 45) {
			for k := range part {
				part[k].seq = 0
			}
			l.step(t, c, 1, part)
		}
		var got [][]float32
		for part := range slices.Chunk(a, 45) {
			got = append(got, l.step(t, c, 1, part)...)
		}
		same(got, "over an older sequence")
	}
}

// TestAttentionShares checks that exactly one worker computes each head of each token and writes each
// byte of the caches, and that the work is evenly shared.
func TestAttentionShares(t *testing.T) {
	l := layer{heads: 9, kvHeads: 3, headDim: 8, rot: 8, positions: 512, ctx: 512, layout: "halves", kv: "f16", sequences: 2, maxTokens: 130}
	rng := rand.New(rand.NewPCG(29, 30))
	a, b := l.tokens(rng, 0, 300), l.tokens(rng, 1, 40)
	for _, tokens := range [][]token{a[:1], a[299:], slices.Concat(a[299:], b[39:]), a[:130], a[170:300], slices.Concat(a[200:290], b)} {
		for workers := 1; workers <= 4; workers++ {
			computed := make([]int, len(tokens)*l.heads)
			stored := map[string][]int{}
			var shares []int
			for w := range workers {
				c := l.start(rng)
				for i, tok := range tokens {
					view[int32](c.mem["pos"].data())[i], view[int32](c.mem["seq"].data())[i] = int32(tok.pos), int32(tok.seq)
				}
				out := c.mem["out"].f32()
				for _, role := range []string{"kcache", "vcache"} {
					clear(c.mem[role].data()) // so that what is computed is a number
				}
				for i := range out {
					out[i] = float32(math.Inf(1))
				}
				for role, x := range map[string]float32{"k": 1, "v": 1} {
					for i := range c.mem[role].f32() {
						c.mem[role].f32()[i] = x
					}
				}
				c.bind(t, w, workers)(&Run{T: len(tokens)})
				share := 0
				for i := range computed {
					if out[i*l.headDim] < math.MaxFloat32 {
						computed[i]++
						share += tokens[i/l.heads].pos/plan.PageTokens + 1
					}
				}
				shares = append(shares, share)
				for _, role := range []string{"kcache", "vcache"} {
					if stored[role] == nil {
						stored[role] = make([]int, len(c.mem[role].data()))
					}
					for i, x := range c.mem[role].data() {
						if x != 0 {
							stored[role][i]++
						}
					}
				}
			}
			for i, n := range computed {
				if n != 1 {
					t.Fatalf("%d tokens, %d workers: head %d of token %d was computed %d times", len(tokens), workers, i%l.heads, i/l.heads, n)
				}
			}
			for role, bytes := range stored {
				for i, n := range bytes {
					if n > 1 {
						t.Fatalf("%d tokens, %d workers: byte %d of %s was written by %d workers", len(tokens), workers, i, role, n)
					}
				}
			}
			// Each end of a share may be off by half a block of tokens of one head.
			pages := 0
			for _, tok := range tokens {
				pages = max(pages, tok.pos/plan.PageTokens+1)
			}
			if apart := 2 * tokenBlock * pages; slices.Max(shares)-slices.Min(shares) > apart {
				t.Errorf("%d tokens, %d workers read %v pages, expected shares at most %d apart", len(tokens), workers, shares, apart)
			}
		}
	}
}

// TestAttentionNaN checks that a NaN in one token's key, value or query appears in the results of the
// tokens that see it and in no earlier one.
func TestAttentionNaN(t *testing.T) {
	eachSet(t, func(t *testing.T, v *vectors) { testAttentionNaN(t, v.isa) })
}

func testAttentionNaN(t *testing.T, isa string) {
	for _, role := range []string{"q", "k", "v"} {
		l := layer{isa: isa, heads: 2, kvHeads: 1, headDim: 8, rot: 8, positions: 32, ctx: 32, layout: "halves", kv: "f16", sequences: 1, maxTokens: 20}
		rng := rand.New(rand.NewPCG(19, 20))
		a := l.tokens(rng, 0, 20)
		map[string][]float32{"q": a[10].q, "k": a[10].k, "v": a[10].v}[role][3] = float32(math.NaN())
		rows := l.step(t, l.start(rng), 1, a)
		for i, row := range rows {
			want := i >= 10 && role != "q" || i == 10
			if got := row[3] != row[3]; got != want {
				t.Errorf("NaN in %s of token 10: token %d has NaN: %v, expected %v", role, i, got, want)
			}
		}
	}
}

// TestRefAttention compares the unfused kernels with the fused one, on paged and ring caches.
func TestRefAttention(t *testing.T) {
	for i, l := range []layer{
		{heads: 4, kvHeads: 2, headDim: 8, rot: 8, positions: 64, layout: "pairs", kv: "f16"},
		{heads: 4, kvHeads: 1, headDim: 8, rot: 6, positions: 48, window: 9, ring: true, layout: "halves", kv: "f32", freqs: true},
		{heads: 2, kvHeads: 1, headDim: 12, rot: 10, positions: 64, layout: "pairs", kv: "f32", rampHigh: 3},
	} {
		l.sequences, l.ctx, l.maxTokens = 2, 64, 24
		rng := rand.New(rand.NewPCG(21, uint64(i)))
		a := l.tokens(rng, 1, 60)
		fused := l.start(rng)
		c := l.start(rng)
		width, heads := l.kvHeads*l.headDim, l.heads*l.headDim
		c.put("scores", make([]float32, l.maxTokens*l.heads*l.ctx))
		sub := func(kernel string, roles map[string]string, params ...plan.Param) *call {
			s := newCall(kernel, "T", "one", 1, append(params, c.step.Params...)...)
			s.ctx, s.pages, s.scratch = c.ctx, c.pages, 4*width+8*l.headDim
			for role, from := range roles {
				s.mem[role], s.ops[role] = c.mem[from], c.ops[from]
			}
			for _, role := range []string{"pos", "seq", "pages", "freqs"} {
				if m := c.mem[role]; m != nil {
					s.mem[role], s.ops[role] = m, c.ops[role]
				}
			}
			return s
		}
		steps := []*call{
			sub("ref.rope", map[string]string{"x": "q", "y": "q"}),
			sub("ref.rope", map[string]string{"x": "k", "y": "k"}, intParam("heads", l.kvHeads)),
			sub("ref.kv_write", map[string]string{"cache": "kcache", "x": "k"}, intParam("width", width)),
			sub("ref.kv_write", map[string]string{"cache": "vcache", "x": "v"}, intParam("width", width)),
			sub("ref.attn_scores", map[string]string{"q": "q", "kcache": "kcache", "y": "scores"}),
			sub("ref.softmax", map[string]string{"x": "scores", "y": "scores"}),
			sub("ref.attn_values", map[string]string{"probs": "scores", "vcache": "vcache", "y": "out"}),
		}
		at := 0
		for part := range slices.Chunk(a, l.maxTokens) {
			want := l.step(t, fused, 2, part)
			for j, tok := range part {
				copy(c.mem["q"].f32()[j*heads:], tok.q)
				copy(c.mem["k"].f32()[j*width:], tok.k)
				copy(c.mem["v"].f32()[j*width:], tok.v)
				view[int32](c.mem["pos"].data())[j], view[int32](c.mem["seq"].data())[j] = int32(tok.pos), 1
			}
			for _, s := range steps {
				s.run(t, 2, Run{T: len(part)})
			}
			for j := range part {
				for d, w := range want[j] {
					if got := c.mem["out"].f32()[j*heads+d]; !(math.Abs(float64(got-w)) <= l.tolerance()*(1+math.Abs(float64(w)))) {
						t.Fatalf("%s: token %d, element %d is %v, the fused kernel has %v", l.name(), at+j, d, got, w)
					}
				}
			}
			at += len(part)
		}
	}
}

// TestNoAllocations checks that bound kernels allocate nothing.
func TestNoAllocations(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	check := func(name string, c *call, r Run) {
		f := c.bind(t, 0, 2)
		if n := testing.AllocsPerRun(5, func() { f(&r) }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	for _, mm := range Matmuls() {
		check(mm.Name, newGroup(t, rng, mm, 9, 256, []int{33, 16}), Run{T: 9})
	}
	for _, v := range runnableVectors() {
		for _, tc := range rowCases() {
			c := tc.call(rng, "T")
			c.isa = v.isa
			check(v.isa+" "+tc.name, c, Run{T: rowM, R: 1})
		}
		for kv := range cacheFormats {
			l := layer{isa: v.isa, heads: 4, kvHeads: 2, headDim: 32, rot: 8, positions: 64, ctx: 64, layout: "pairs", kv: kv, norms: true, sequences: 1, maxTokens: 24}
			c := l.start(rng)
			l.step(t, c, 1, l.tokens(rng, 0, 24))
			check(v.isa+" attention on "+kv, c, Run{T: 24})
		}
	}
}
