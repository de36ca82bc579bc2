package kernel

import (
	"math"

	"pesti/exec/plan"
)

// tokenBlock is the number of query tokens that share one reading of a page.
const tokenBlock = 16

// An attention computes, for a range of query heads: optional norms of q and k per head, RoPE,
// the cache write, and softmax(scale · q·k) · v over what each token sees. Tokens of one
// sequence are a run of rows at consecutive positions.
//
// Keys and values are visited page by page at absolute positions, with a running maximum per
// query (online softmax, Milakov & Gimelshein 2018), and each page in order of position. What a
// token gets is therefore the same however its prompt was cut. Keys and values of this step are
// taken from the operands, rounded to the cache's format, never from the cache: another worker
// may be writing it.
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
	split        split

	// Scratch of this worker.
	keyTile, valueTile []float32 // one page of one head
	query              []float32 // tokenBlock tokens of the heads of a group
	top, sum           []float32 // running maximum and sum per query
	row                []float32 // one head
}

func bindAttention(b *binder) Func {
	a := &attention{
		heads: b.int("heads"), kvHeads: b.int("kv_heads"), headDim: b.int("head_dim"),
		window: b.int("window"), scale: float32(b.float("scale")), eps: b.float("eps"),
		q: b.f32("q"), k: b.f32("k"), v: b.f32("v"), out: b.f32("out"),
		pos: b.i32("pos"), seq: b.i32("seq"),
		qnorm: b.optionalF32("qnorm"), knorm: b.optionalF32("knorm"), split: b.split(),
	}
	if b.err != nil || a.kvHeads < 1 || a.heads%a.kvHeads != 0 {
		b.fail("%d heads cannot share %d key and value heads", a.heads, a.kvHeads)
		return nil
	}
	group := a.heads / a.kvHeads
	width := a.kvHeads * a.headDim
	a.keys, a.values = b.cache("kcache", width), b.cache("vcache", width)
	rest := b.Scratch
	a.keyTile = scratch[float32](b, &rest, plan.PageTokens*a.headDim)
	a.valueTile = scratch[float32](b, &rest, plan.PageTokens*a.headDim)
	a.query = scratch[float32](b, &rest, tokenBlock*group*a.headDim)
	a.top = scratch[float32](b, &rest, tokenBlock*group)
	a.sum = scratch[float32](b, &rest, tokenBlock*group)
	a.row = scratch[float32](b, &rest, a.headDim)
	a.rope = b.rope(rest)
	return a.run
}

func (a *attention) run(r *Run) {
	first, last := a.split.of(a.heads)
	if first >= last {
		return
	}
	a.rope.turn(a.pos[:r.T])
	group := a.heads / a.kvHeads
	for head := first / group; head*group < last; head++ {
		from, to := max(first, head*group), min(last, (head+1)*group)
		for start := 0; start < r.T; {
			end := start + 1
			for end < r.T && a.seq[end] == a.seq[start] {
				end++
			}
			if from == head*group {
				a.write(head, start, end)
			}
			for t := start; t < end; t += tokenBlock {
				a.block(head, from, to, start, t, min(t+tokenBlock, end))
			}
			start = end
		}
	}
}

// write stores keys and values of rows [start, end) in the cache.
func (a *attention) write(head, start, end int) {
	for t := start; t < end; t++ {
		a.key(a.row, head, t)
		a.keys.store(int(a.seq[t]), int(a.pos[t]), head*a.headDim, a.row)
		a.values.store(int(a.seq[t]), int(a.pos[t]), head*a.headDim, a.value(head, t))
	}
}

// key sets dst to the normed, turned key of row t.
func (a *attention) key(dst []float32, head, t int) {
	at := (t*a.kvHeads + head) * a.headDim
	a.prepare(dst, a.k[at:at+a.headDim], a.knorm, t)
}

// value is the value of row t.
func (a *attention) value(head, t int) []float32 {
	at := (t*a.kvHeads + head) * a.headDim
	return a.v[at : at+a.headDim]
}

// prepare sets dst to one head of row t after its norm and RoPE.
func (a *attention) prepare(dst, src, norm []float32, t int) {
	if norm != nil {
		rmsNorm(dst, src, norm, a.eps)
	} else {
		copy(dst, src)
	}
	a.rope.apply(dst, t)
}

// block computes query heads [from, to), which share a key and value head, for rows [lo, hi), at
// most tokenBlock. The rows of their sequence in this step begin at start.
func (a *attention) block(head, from, to, start, lo, hi int) {
	d, heads := a.headDim, to-from
	queries := (hi - lo) * heads
	for i := range queries {
		t, h := lo+i/heads, from+i%heads
		src := a.q[(t*a.heads+h)*d:][:d]
		a.prepare(a.query[i*d:(i+1)*d], src, a.qnorm, t)
		clear(a.out[(t*a.heads+h)*d:][:d])
		a.top[i], a.sum[i] = float32(math.Inf(-1)), 0
	}
	least, most := a.sees(lo), int(a.pos[hi-1])
	for page := least / plan.PageTokens; page <= most/plan.PageTokens; page++ {
		base := page * plan.PageTokens
		a.load(head, start, base, max(base, least), min(base+plan.PageTokens, most+1))
		for t := lo; t < hi; t++ {
			// The part of the page that this token sees, relative to the page.
			x, y := max(a.sees(t)-base, 0), min(int(a.pos[t])+1-base, plan.PageTokens)
			if x >= y {
				continue
			}
			for h := range heads {
				i := (t-lo)*heads + h
				out := a.out[(t*a.heads+from+h)*d:][:d]
				a.top[i], a.sum[i] = a.page(out, a.query[i*d:(i+1)*d], x, y, a.top[i], a.sum[i])
			}
		}
	}
	for i := range queries {
		t, h := lo+i/heads, from+i%heads
		out := a.out[(t*a.heads+h)*d:][:d]
		for j := range out {
			out[j] /= a.sum[i]
		}
	}
}

// sees returns the first position that row t sees; the last is its own.
func (a *attention) sees(t int) int {
	if a.window > 0 {
		return max(0, int(a.pos[t])-a.window+1)
	}
	return 0
}

// load fills the tiles with positions [from, to) of the page at base: from the cache, or from the
// rows of this step, which begin at row start.
func (a *attention) load(head, start, base, from, to int) {
	d, seq, first := a.headDim, int(a.seq[start]), int(a.pos[start])
	for p := from; p < to; p++ {
		k, v := a.keyTile[(p-base)*d:][:d], a.valueTile[(p-base)*d:][:d]
		if p < first {
			a.keys.load(k, seq, p, head*d)
			a.values.load(v, seq, p, head*d)
			continue
		}
		t := start + p - first
		a.key(k, head, t)
		a.keys.round(k, k)
		a.values.round(v, a.value(head, t))
	}
}

// page adds rows [x, y) of the tiles to the sum out of one query, whose running maximum and sum
// of weights it takes and returns.
func (a *attention) page(out, q []float32, x, y int, top, sum float32) (float32, float32) {
	d := a.headDim
	var w [plan.PageTokens]float32
	max := top
	for j := x; j < y; j += 4 {
		// Rows past the last repeat it; what they give is not used.
		r0, r1, r2, r3 := j*d, min(j+1, y-1)*d, min(j+2, y-1)*d, min(j+3, y-1)*d
		var s [4]float32
		s[0], s[1], s[2], s[3] = dot4(q, a.keyTile[r0:r0+d], a.keyTile[r1:r1+d], a.keyTile[r2:r2+d], a.keyTile[r3:r3+d])
		for i := j; i < y && i < j+4; i++ {
			w[i] = s[i-j] * a.scale
			if w[i] > max {
				max = w[i]
			}
		}
	}
	if max > top {
		shrink := exp(top - max)
		sum *= shrink
		for i := range out {
			out[i] *= shrink
		}
	}
	for j := x; j < y; j++ {
		w[j] = exp(w[j] - max)
		sum += w[j]
	}
	j := x
	for ; j+4 <= y; j += 4 {
		w0, w1, w2, w3 := w[j], w[j+1], w[j+2], w[j+3]
		tile := a.valueTile[j*d:][:4*d]
		v0, v1, v2, v3 := tile[:d], tile[d:2*d], tile[2*d:3*d], tile[3*d:4*d]
		v0, v1, v2, v3 = v0[:len(out)], v1[:len(out)], v2[:len(out)], v3[:len(out)]
		for i := range out {
			o := out[i] + float32(w0*v0[i])
			o += float32(w1 * v1[i])
			o += float32(w2 * v2[i])
			out[i] = o + float32(w3*v3[i])
		}
	}
	for ; j < y; j++ {
		w, v := w[j], a.valueTile[j*d:][:len(out)]
		for i := range out {
			out[i] += float32(w * v[i])
		}
	}
	return max, sum
}

func exp(x float32) float32 { return float32(math.Exp(float64(x))) }
