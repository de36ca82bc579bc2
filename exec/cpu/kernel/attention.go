package kernel

import (
	"math"

	"pesti/exec/plan"
)

// tokenBlock is the number of query tokens that share one read of a page.
const tokenBlock = plan.QueryBlock

// fewQueries is the largest number of queries that read a float16 page directly, instead of converting
// it to float32 first. It is the number of queries that the inner loops process at a time.
const fewQueries = 4

// An attention computes, for a share of the query heads and tokens: optional norms of q and k per
// head, RoPE, the cache write, and softmax(scale · q·k) · v over the positions that each token sees.
// Tokens of one sequence are a run of rows at consecutive positions.
//
// Keys and values are read page by page at absolute positions, in order of position, with a running
// maximum per query (online softmax, Milakov & Gimelshein 2018). A token's result is therefore the
// same however its prompt was cut. Each worker also stores this step's keys and values in private
// pages, in the cache's format, and reads them from there and never from the cache, which another
// worker may be writing.
type attention struct {
	heads, kvHeads, headDim int
	window                  int
	scale                   float32
	eps                     float64

	q, k, v, out []float32
	pos, seq     []int32
	keys, values cache
	qnorm, knorm []float32
	rope         rope
	vec          *vectors
	weigh        func(scores, top, sum, shrink []float32, x, y int, scale float32)

	worker, workers int // index of this worker, and number of workers that share the step

	// Scratch of this worker.
	newKeys, newValues []byte    // private pages of one head with the positions of a run
	keyTile, valueTile []float32 // one page of one head in float32
	keyHalf, valueHalf []uint16  // or that page in the cache, if it is read directly
	queries            queries
	row                []float32 // one head
}

// queries is the state of a block's queries, one for each token and head. Arrays that are processed in
// whole vectors have rows of stride elements, a multiple of 16, with zeros after the head's elements.
type queries struct {
	stride int
	x      []float32 // [n][head_dim]
	acc    []float32 // [n][stride], the weighted sums of values
	scores []float32 // [n][16], of one page, and then the weights
	top    []float32 // [n], running maximum of scores
	sum    []float32 // [n], running sum of weights
	shrink []float32 // [n], factor for the sums of earlier pages after the maximum has grown
}

func bindAttention(b *binder) Func {
	a := &attention{
		heads: b.int("heads"), kvHeads: b.int("kv_heads"), headDim: b.int("head_dim"),
		window: b.int("window"), scale: float32(b.float("scale")), eps: b.float("eps"),
		q: b.f32("q"), k: b.f32("k"), v: b.f32("v"), out: b.f32("out"),
		pos: b.i32("pos"), seq: b.i32("seq"),
		qnorm: b.optionalF32("qnorm"), knorm: b.optionalF32("knorm"),
		vec: b.vectors(), worker: b.Worker, workers: b.Workers,
	}
	if b.Step.Split.By == "one" {
		a.workers = 1
	}
	if b.err != nil || a.kvHeads < 1 || a.heads%a.kvHeads != 0 {
		b.fail("%d heads cannot share %d key and value heads", a.heads, a.kvHeads)
		return nil
	}
	d := a.headDim
	a.keys, a.values = b.cache("kcache", a.kvHeads, d), b.cache("vcache", a.kvHeads, d)
	if b.err != nil {
		return nil
	}
	// With a float32 cache, the weights are computed with the exact exponential: in long contexts, some
	// models amplify an error in its last bit.
	if a.weigh = a.vec.weigh; b.operand("kcache").Format == "f32" {
		a.weigh = portable.weigh
	}
	rest := b.Scratch
	n, stride := tokenBlock*a.heads/a.kvHeads, (d+15)/16*16
	a.keyTile = scratch[float32](b, &rest, plan.PageTokens*d)
	a.valueTile = scratch[float32](b, &rest, plan.PageTokens*stride)
	a.queries = queries{
		stride: stride,
		x:      scratch[float32](b, &rest, n*d),
		acc:    scratch[float32](b, &rest, n*stride),
		scores: scratch[float32](b, &rest, n*plan.PageTokens),
		top:    scratch[float32](b, &rest, n),
		sum:    scratch[float32](b, &rest, n),
		shrink: scratch[float32](b, &rest, n),
	}
	a.row = scratch[float32](b, &rest, d)
	// The rest of the scratch is for the sines of the step's tokens and for pages of their keys and of their
	// values: one page for every 16 tokens, and two more because a run need not begin or end on a page boundary.
	tokens := (len(rest)/4 - 4*plan.PageTokens*d) / (2*d + b.int("rot"))
	a.newKeys = scratch[byte](b, &rest, (tokens/plan.PageTokens+2)*a.keys.bytes)
	a.newValues = scratch[byte](b, &rest, (tokens/plan.PageTokens+2)*a.values.bytes)
	a.rope = b.rope(rest)
	return a.run
}

// run visits all pairs of a token block and a query head, grouped by key/value head, and computes this
// worker's pairs. The total cost is divided into equal contiguous parts, one for each worker; a pair
// belongs to the part that contains its midpoint.
func (a *attention) run(r *Run) {
	if a.worker >= a.workers {
		return
	}
	group := a.heads / a.kvHeads
	each := 0 // cost of one head
	for start, end := a.nextRun(0, r.T); start < r.T; start, end = a.nextRun(end, r.T) {
		for t := start; t < end; t += tokenBlock {
			each += a.cost(t, min(t+tokenBlock, end))
		}
	}
	a.rope.setSines(a.pos[:r.T])
	at, total := 0, each*a.heads
	for head := range a.kvHeads {
		for start, end := a.nextRun(0, r.T); start < r.T; start, end = a.nextRun(end, r.T) {
			ready := false
			for t := start; t < end; t += tokenBlock {
				last := min(t+tokenBlock, end)
				cost := a.cost(t, last)
				from, to := 0, 0
				for i := range group {
					if (2*at+cost)*a.workers/(2*total) == a.worker {
						if to == 0 {
							from = i
						}
						to = i + 1
					}
					at += cost
				}
				if from == to {
					continue
				}
				if !ready {
					// The worker that has the run's first pair writes the run to the cache.
					a.store(head, start, end, t == start && from == 0)
					ready = true
				}
				a.block(head, head*group+from, head*group+to, start, t, last)
			}
		}
	}
}

// nextRun returns the run of rows of one sequence that begins at row start of n rows.
func (a *attention) nextRun(start, n int) (int, int) {
	end := min(start+1, n)
	for end < n && a.seq[end] == a.seq[start] {
		end++
	}
	return start, end
}

// firstVisible returns the first position that row t sees. The last one is its own.
func (a *attention) firstVisible(t int) int {
	if a.window > 0 {
		return max(0, int(a.pos[t])-a.window+1)
	}
	return 0
}

// cost estimates the work for rows [lo, hi) of one sequence: for each page that they see, one unit per
// row and two units for loading the page.
func (a *attention) cost(lo, hi int) int {
	pages := int(a.pos[hi-1])/plan.PageTokens - a.firstVisible(lo)/plan.PageTokens + 1
	return pages * (hi - lo + 2)
}

// store writes keys and values of the run of rows [start, end) to the worker's private pages and, if
// write is true, to the cache.
func (a *attention) store(head, start, end int, write bool) {
	first := int(a.pos[start]) / plan.PageTokens
	for t := start; t < end; t++ {
		page, at := int(a.pos[t])/plan.PageTokens, int(a.pos[t])%plan.PageTokens
		row := (t*a.kvHeads + head) * a.headDim
		value := a.v[row : row+a.headDim]
		a.prepare(a.row, a.k[row:row+a.headDim], a.knorm, t)
		a.keys.putKey(nth(a.newKeys, page-first, a.keys.bytes), at, a.row)
		a.values.putValue(nth(a.newValues, page-first, a.values.bytes), at, value)
		if write {
			a.keys.putKey(a.keys.part(int(a.seq[t]), page, head), at, a.row)
			a.values.putValue(a.values.part(int(a.seq[t]), page, head), at, value)
		}
	}
}

// nth returns the i-th block of size bytes in data.
func nth(data []byte, i, size int) []byte { return data[i*size : (i+1)*size] }

// prepare sets dst to one head of row t after norm and RoPE.
func (a *attention) prepare(dst, src, norm []float32, t int) {
	if norm != nil {
		a.vec.rmsNorm(dst, src, norm, a.eps)
	} else {
		copy(dst, src)
	}
	a.rope.apply(dst, t)
}

// block computes query heads [from, to), which share a key/value head, for at most tokenBlock rows
// [lo, hi). The run that they belong to begins at row start.
func (a *attention) block(head, from, to, start, lo, hi int) {
	d, heads, s := a.headDim, to-from, &a.queries
	n := (hi - lo) * heads
	for i := range n {
		a.prepare(s.x[i*d:(i+1)*d], a.q[((lo+i/heads)*a.heads+from+i%heads)*d:][:d], a.qnorm, lo+i/heads)
		s.top[i] = float32(math.Inf(-1))
	}
	clear(s.sum[:n])
	clear(s.acc[:n*s.stride])
	least, most := a.firstVisible(lo), int(a.pos[hi-1])
	for page := least / plan.PageTokens; page <= most/plan.PageTokens; page++ {
		base := page * plan.PageTokens
		a.prefetch(head, start, page+1)
		a.load(head, start, page, max(least-base, 0), min(most+1-base, plan.PageTokens), n)
		for t := lo; t < hi; {
			x, y := a.visible(t, base)
			first := t
			for t++; t < hi; t++ {
				if x1, y1 := a.visible(t, base); x1 != x || y1 != y {
					break
				}
			}
			if x < y {
				a.page((first-lo)*heads, (t-lo)*heads, x, y)
			}
		}
	}
	for i := range n {
		out := a.out[((lo+i/heads)*a.heads+from+i%heads)*d:][:d]
		a.vec.divide(out, s.acc[i*s.stride:][:d], s.sum[i])
	}
}

// visible returns the range of positions that row t sees of the page at position base, relative to base.
func (a *attention) visible(t, base int) (x, y int) {
	return max(a.firstVisible(t)-base, 0), min(int(a.pos[t])+1-base, plan.PageTokens)
}

// load makes positions [from, to) of a page available to n queries: from the cache, or, for the
// positions of this step's run, which begins at row start, from the worker's private pages.
func (a *attention) load(head, start, page, from, to, n int) {
	const whole = plan.PageTokens
	seq, first := int(a.seq[start]), int(a.pos[start])
	own := min(max(first-page*whole, from), to)
	a.keyHalf, a.valueHalf = nil, nil
	if from < own {
		keys, values := a.keys.part(seq, page, head), a.values.part(seq, page, head)
		if own == whole && from == 0 && n <= fewQueries && a.keys.half && a.vec.scoresHalf != nil && a.queries.stride == a.headDim {
			a.keyHalf, a.valueHalf = view[uint16](keys), view[uint16](values)
			return
		}
		a.keys.keys(a.keyTile, keys, from, own)
		a.values.values(a.valueTile, a.queries.stride, values, from, own)
	}
	if own < to {
		i := page - first/whole
		a.keys.keys(a.keyTile, nth(a.newKeys, i, a.keys.bytes), own, to)
		a.values.values(a.valueTile, a.queries.stride, nth(a.newValues, i, a.values.bytes), own, to)
	}
}

// prefetch prefetches a page of the cache. Pages are not contiguous in memory, so the hardware
// prefetcher cannot predict the next one.
func (a *attention) prefetch(head, start, page int) {
	if seq := int(a.seq[start]); a.vec.prefetch != nil && (page+1)*plan.PageTokens <= int(a.pos[start]) {
		a.vec.prefetch(a.keys.part(seq, page, head))
		a.vec.prefetch(a.values.part(seq, page, head))
	}
}

// page adds positions [x, y) of the loaded page to the sums of queries [from, to).
func (a *attention) page(from, to, x, y int) {
	s, n := &a.queries, to-from
	scores, shrink := s.scores[from*plan.PageTokens:to*plan.PageTokens], s.shrink[from:to]
	queries, acc := s.x[from*a.headDim:to*a.headDim], s.acc[from*s.stride:to*s.stride]
	if a.keyHalf != nil {
		a.vec.scoresHalf(scores, queries, a.keyHalf, n)
	} else {
		a.vec.scores(scores, queries, a.keyTile, n)
	}
	a.weigh(scores, s.top[from:to], s.sum[from:to], shrink, x, y, a.scale)
	if a.valueHalf != nil {
		a.vec.accumulateHalf(acc, scores, shrink, a.valueHalf, n, x, y)
	} else {
		a.vec.accumulate(acc, scores, shrink, a.valueTile, n, x, y)
	}
}
