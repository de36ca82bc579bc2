package ref

import "math"

// Heads is the geometry of an attention: Heads query heads share KVHeads key and value heads in
// equal groups. A token at position p sees the cached positions j with p − Window < j ≤ p, or all j
// ≤ p if Window is 0. Scores have Positions columns.
type Heads struct {
	Heads, KVHeads, HeadDim int
	Window, Positions       int
}

// visible returns the half-open range of cached positions that a token sees.
func (h *Heads) visible(pos int) (lo, hi int) {
	if h.Window > 0 {
		lo = max(0, pos-h.Window+1)
	}
	return lo, min(pos+1, h.Positions)
}

// kv returns the part of a cached row that belongs to query head i.
func (h *Heads) kv(row []float32, i int) []float32 {
	at := i / (h.Heads / h.KVHeads) * h.HeadDim
	return row[at : at+h.HeadDim]
}

// AttnScores writes scale · q·k to dst [T, Heads, Positions], and −Inf for positions that a token
// does not see. q is [T, Heads·HeadDim]; row is scratch for one cached row.
func AttnScores(dst, q []float32, keys *KV, pos, seq []int32, h Heads, scale float64, row []float32) {
	masked := float32(math.Inf(-1))
	for i := range dst {
		dst[i] = masked
	}
	for t := range pos {
		lo, hi := h.visible(int(pos[t]))
		for j := lo; j < hi; j++ {
			keys.Load(row, int(seq[t]), j)
			for i := range h.Heads {
				at := t*h.Heads + i
				dst[at*h.Positions+j] = float32(scale * Dot(q[at*h.HeadDim:(at+1)*h.HeadDim], h.kv(row, i)))
			}
		}
	}
}

// Softmax is exp(x − max) / Σ exp(x − max) over each row of n elements. A row of only −Inf gives
// zeros; a NaN makes its whole row NaN.
func Softmax(dst, x []float32, n int) {
	for at := 0; at < len(x); at += n {
		softmax(dst[at:at+n], x[at:at+n])
	}
}

func softmax(dst, x []float32) {
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, float64(v)) // NaN wins
	}
	if math.IsInf(top, -1) {
		clear(dst)
		return
	}
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	for i, v := range x {
		dst[i] = float32(math.Exp(float64(v)-top) / sum)
	}
}

// AttnValues writes to dst [T, Heads·HeadDim] the sums of the cached values that each token sees,
// weighted by probs [T, Heads, Positions]. row is scratch for one cached row, acc for HeadDim sums.
func AttnValues(dst, probs []float32, values *KV, pos, seq []int32, h Heads, row []float32, acc []float64) {
	acc = acc[:h.HeadDim]
	for t := range pos {
		lo, hi := h.visible(int(pos[t]))
		for i := range h.Heads {
			at := t*h.Heads + i
			clear(acc)
			for j := lo; j < hi; j++ {
				values.Load(row, int(seq[t]), j)
				p := float64(probs[at*h.Positions+j])
				for d, v := range h.kv(row, i) {
					acc[d] += p * float64(v)
				}
			}
			for d, sum := range acc {
				dst[at*h.HeadDim+d] = float32(sum)
			}
		}
	}
}
