package kernel

import (
	"math"

	"pesti/exec/plan"
)

// tokenBlock is the number of query tokens that share one reading of a page.
const tokenBlock = 16

// fewQueries is for how many queries a page is not written out in float32 first: those that the loops
// take at a time.
const fewQueries = 4

// An attention computes, for a share of the query heads and tokens: optional norms of q and k per
// head, RoPE, the cache write, and softmax(scale · q·k) · v over what each token sees. Tokens of one
// sequence are a run of rows at consecutive positions.
//
// Keys and values are visited page by page at absolute positions, with a running maximum per
// query (online softmax, Milakov & Gimelshein 2018), and each page in order of position. What a
// token gets is therefore the same however its prompt was cut. Keys and values of this step are
// stored in pages of the worker's own, in the cache's format, and read from there, never from the
// cache: another worker may be writing it.
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

	worker, workers int // this one, and how many share the work

	// Scratch of this worker.
	newKeys, newValues []byte    // parts of one head that hold a run's own positions
	keyTile, valueTile []float32 // one page of one head
	keyHalf, valueHalf []uint16  // or where it lies, if it is read from there
	queries            queries
	row                []float32 // one head
}

// A queries is the state of the queries of a block, one for each token and head. What is read or
// written in whole vectors has rows of stride elements, a multiple of 16, zero beyond a head's.
type queries struct {
	stride int
	x      []float32 // [n][head_dim]
	acc    []float32 // [n][stride], the weighted sums of values
	scores []float32 // [n][16], of one page, and then the weights
	top    []float32 // [n], running maximum of scores
	sum    []float32 // [n], running sum of weights
	shrink []float32 // [n], what the last page makes of older sums
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
	// Beside a cache that rounds nothing, weights are the nearest to what they should be: long contexts
	// of some models magnify what the last bit of an exponential does.
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
	// What is left is for the tokens of a step: their sines, and a page for every 16 of them in each
	// of the two caches, and two pages more, for the places before the first and after the last.
	tokens := (len(rest)/4 - 4*plan.PageTokens*d) / (2*d + b.int("rot"))
	a.newKeys = scratch[byte](b, &rest, (tokens/plan.PageTokens+2)*a.keys.bytes)
	a.newValues = scratch[byte](b, &rest, (tokens/plan.PageTokens+2)*a.values.bytes)
	a.rope = b.rope(rest)
	return a.run
}

// run walks all pairs of a block of tokens and a head, head by head of the cache, and computes
// those that are this worker's: a contiguous part of the whole cost, each pair belonging to the part
// in which its middle lies.
func (a *attention) run(r *Run) {
	if a.worker >= a.workers {
		return
	}
	group := a.heads / a.kvHeads
	each := 0 // cost of one head
	for start, end := a.next(0, r.T); start < r.T; start, end = a.next(end, r.T) {
		for t := start; t < end; t += tokenBlock {
			each += a.cost(t, min(t+tokenBlock, end))
		}
	}
	a.rope.turn(a.pos[:r.T])
	at, total := 0, each*a.heads
	for head := range a.kvHeads {
		for start, end := a.next(0, r.T); start < r.T; start, end = a.next(end, r.T) {
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
					// The run is written to the cache by the one worker that has its first pair.
					a.store(head, start, end, t == start && from == 0)
					ready = true
				}
				a.block(head, head*group+from, head*group+to, start, t, last)
			}
		}
	}
}

// next returns the run of rows of one sequence that begins at start, of n rows.
func (a *attention) next(start, n int) (int, int) {
	end := min(start+1, n)
	for end < n && a.seq[end] == a.seq[start] {
		end++
	}
	return start, end
}

// sees returns the first position that row t sees; the last is its own.
func (a *attention) sees(t int) int {
	if a.window > 0 {
		return max(0, int(a.pos[t])-a.window+1)
	}
	return 0
}

// cost says what rows [lo, hi), of one sequence, take: the pages that they see, of which each is
// about as much work to make ready as two rows are.
func (a *attention) cost(lo, hi int) int {
	pages := int(a.pos[hi-1])/plan.PageTokens - a.sees(lo)/plan.PageTokens + 1
	return pages * (hi - lo + 2)
}

// store puts keys and values of the run of rows [start, end) in the worker's pages and, where it is
// the one to write them, in the cache.
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

// nth is the i-th of the parts that lie in data.
func nth(data []byte, i, size int) []byte { return data[i*size : (i+1)*size] }

// prepare sets dst to one head of row t after its norm and RoPE.
func (a *attention) prepare(dst, src, norm []float32, t int) {
	if norm != nil {
		a.vec.rmsNorm(dst, src, norm, a.eps)
	} else {
		copy(dst, src)
	}
	a.rope.apply(dst, t)
}

// block computes query heads [from, to), which share a key and value head, for rows [lo, hi), at
// most tokenBlock. The rows of their sequence in this step begin at start.
func (a *attention) block(head, from, to, start, lo, hi int) {
	d, heads, s := a.headDim, to-from, &a.queries
	n := (hi - lo) * heads
	for i := range n {
		a.prepare(s.x[i*d:(i+1)*d], a.q[((lo+i/heads)*a.heads+from+i%heads)*d:][:d], a.qnorm, lo+i/heads)
		s.top[i] = float32(math.Inf(-1))
	}
	clear(s.sum[:n])
	clear(s.acc[:n*s.stride])
	least, most := a.sees(lo), int(a.pos[hi-1])
	for page := least / plan.PageTokens; page <= most/plan.PageTokens; page++ {
		base := page * plan.PageTokens
		a.fetch(head, start, page+1)
		a.load(head, start, page, max(least-base, 0), min(most+1-base, plan.PageTokens), n)
		for t := lo; t < hi; {
			x, y := a.part(t, base)
			first := t
			for t++; t < hi; t++ {
				if x1, y1 := a.part(t, base); x1 != x || y1 != y {
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

// part is the part of the page at base that row t sees, relative to the page.
func (a *attention) part(t, base int) (x, y int) {
	return max(a.sees(t)-base, 0), min(int(a.pos[t])+1-base, plan.PageTokens)
}

// load makes positions [from, to) of a page ready for n queries: from the cache, or from the
// worker's pages for the rows of this step, which begin at row start.
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

// fetch asks for a page of the cache ahead of its use: pages do not follow each other in memory, so
// that the machine does not see which comes next.
func (a *attention) fetch(head, start, page int) {
	if seq := int(a.seq[start]); a.vec.fetch != nil && (page+1)*plan.PageTokens <= int(a.pos[start]) {
		a.vec.fetch(a.keys.part(seq, page, head))
		a.vec.fetch(a.values.part(seq, page, head))
	}
}

// page adds rows [x, y) of the page that is loaded to the sums of queries [from, to).
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
