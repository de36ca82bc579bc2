package memplan

import "math/rand/v2"

// scattered returns n buffers with sizes over four orders of magnitude; most live briefly, some long.
func scattered(rng *rand.Rand, n int) []Buffer {
	bufs := make([]Buffer, n)
	for i := range bufs {
		first := rng.IntN(n)
		span := 1 + rng.IntN(4)
		if rng.IntN(5) == 0 {
			span = 1 + rng.IntN(n)
		}
		bufs[i] = Buffer{Size: int64(1) << rng.IntN(14) * int64(1+rng.IntN(100)), First: first, Last: first + span}
	}
	return bufs
}

// dissected cuts a rectangle of the given steps and units of memory into n buffers without waste, and shuffles
// them. An optimal plan fills the rectangle, so the bound is the optimum. These are the instances on which
// greedy rules fail: every misplaced buffer costs memory.
func dissected(rng *rand.Rand, n, steps int, units int64) []Buffer {
	type rect struct {
		first, last int
		units       int64
	}
	rects := []rect{{0, steps, units}}
	for tries := 0; len(rects) < n && tries < 100*n; tries++ {
		i := rng.IntN(len(rects))
		r := rects[i]
		if rng.IntN(2) == 0 && r.last-r.first > 1 {
			cut := r.first + 1 + rng.IntN(r.last-r.first-1)
			rects[i].last = cut
			rects = append(rects, rect{cut, r.last, r.units})
		} else if r.units > 1 {
			low := 1 + rng.Int64N(r.units-1)
			rects[i].units = low
			rects = append(rects, rect{r.first, r.last, r.units - low})
		}
	}
	rng.Shuffle(len(rects), func(i, j int) { rects[i], rects[j] = rects[j], rects[i] })
	bufs := make([]Buffer, len(rects))
	for i, r := range rects {
		bufs[i] = Buffer{Size: r.units * DefaultAlign, First: r.first, Last: r.last}
	}
	return bufs
}

// transformer returns the buffers of the layers of a decoder in prefill: per layer the norm, q, k, v, the
// attention's output, the projection, the gate and its product, and a double-buffered residual stream.
func transformer(layers int, tokens, hidden, kv, ffn int64) []Buffer {
	var bufs []Buffer
	add := func(width int64, first, last int) {
		bufs = append(bufs, Buffer{Size: tokens * width * 4, First: first, Last: last})
	}
	const waves = 8
	for l := range layers {
		t := l * waves
		add(hidden, t, t+5)         // the residual stream into attention
		add(hidden, t, t+2)         // its norm
		add(hidden, t+1, t+4)       // q
		add(kv, t+1, t+3)           // k
		add(kv, t+1, t+3)           // v
		add(hidden, t+3, t+5)       // attention
		add(hidden, t+4, t+waves+1) // the residual stream into the feed-forward part
		add(hidden, t+5, t+7)       // its norm
		add(ffn, t+6, t+8)          // the gated product
		add(64, t+2, t+3)           // a step's workspace
	}
	return bufs
}
