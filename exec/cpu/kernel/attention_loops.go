package kernel

import (
	"math"

	"pesti/exec/plan"
)

// The inner loops of attention over one page, in portable Go. The order of a query's operations
// depends on the page and on the positions that the query sees, not on other queries.

// portableScores sets scores [n][16] to the products of the queries x [n][d] and the columns of tile
// [d][16], summed in parts of 32 elements. Columns of unused positions give results that nobody reads.
func portableScores(scores, x, tile []float32, n int) {
	const part = 32
	d := len(x) / n
	for i := range n {
		x, scores := x[i*d:(i+1)*d], scores[i*plan.PageTokens:][:plan.PageTokens]
		for j := 0; j < plan.PageTokens; j += 4 {
			var t0, t1, t2, t3 float32
			for at := 0; at < d; at += part {
				var s0, s1, s2, s3 float32
				for k, v := range x[at:min(at+part, d)] {
					w := (*[4]float32)(tile[(at+k)*plan.PageTokens+j:])
					s0 += float32(v * w[0])
					s1 += float32(v * w[1])
					s2 += float32(v * w[2])
					s3 += float32(v * w[3])
				}
				t0, t1, t2, t3 = t0+s0, t1+s1, t2+s2, t3+s3
			}
			scores[j], scores[j+1], scores[j+2], scores[j+3] = t0, t1, t2, t3
		}
	}
}

// portableWeigh is the online-softmax step: for each query it replaces columns [x, y) of the scores by
// the weights exp(scale·score − max), updates the running maximum top and the running sum, and sets
// shrink to the factor by which sums over earlier pages must be multiplied.
func portableWeigh(scores, top, sum, shrink []float32, x, y int, scale float32) {
	for i, older := range top {
		w := scores[i*plan.PageTokens:][x:y]
		highest := older
		for j := range w {
			w[j] *= scale
			if w[j] > highest {
				highest = w[j]
			}
		}
		top[i], shrink[i] = highest, exp(older-highest)
		total := float32(sum[i] * shrink[i])
		for j := range w {
			w[j] = exp(w[j] - highest)
			total += w[j]
		}
		sum[i] = total
	}
}

func exp(x float32) float32 { return float32(math.Exp(float64(x))) }

// portableAccumulate multiplies each row of acc [n][stride] by its shrink factor and adds rows [x, y)
// of tile [16][stride] times their weights [n][16].
func portableAccumulate(acc, weights, shrink, tile []float32, n, x, y int) {
	stride := len(acc) / n
	for i := range n {
		acc, w := acc[i*stride:(i+1)*stride], weights[i*plan.PageTokens:][:plan.PageTokens]
		for k := range acc {
			acc[k] *= shrink[i]
		}
		j := x
		for ; j+4 <= y; j += 4 {
			w0, w1, w2, w3 := w[j], w[j+1], w[j+2], w[j+3]
			v0, v1 := tile[j*stride:][:len(acc)], tile[(j+1)*stride:][:len(acc)]
			v2, v3 := tile[(j+2)*stride:][:len(acc)], tile[(j+3)*stride:][:len(acc)]
			for k := range acc {
				sum := acc[k] + float32(w0*v0[k])
				sum += float32(w1 * v1[k])
				sum += float32(w2 * v2[k])
				acc[k] = sum + float32(w3*v3[k])
			}
		}
		for ; j < y; j++ {
			w, v := w[j], tile[j*stride:][:len(acc)]
			for k := range acc {
				acc[k] += float32(w * v[k])
			}
		}
	}
}

// portableDivide sets dst to src / by.
func portableDivide(dst, src []float32, by float32) {
	for i := range dst {
		dst[i] = src[i] / by
	}
}
