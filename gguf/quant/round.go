package quant

import "math"

// This file holds helper functions of the quantizers. Each step rounds to float32,
// so that the stored bytes are the same on every machine.

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// largest returns the element of largest magnitude, the first of equals.
func largest(x []float32) float32 {
	m := x[0]
	for _, v := range x[1:] {
		if abs(v) > abs(m) {
			m = v
		}
	}
	return m
}

// bounds returns the least and the greatest element.
func bounds(x []float32) (lowest, highest float32) {
	lowest, highest = x[0], x[0]
	for _, v := range x[1:] {
		lowest, highest = min(lowest, v), max(highest, v)
	}
	return lowest, highest
}

// inverse returns 1/d, or 0 for a block of zeros.
func inverse(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}

// truncate drops the fraction of v and returns the low byte. NaN, infinities and
// values beyond the range of int32 become 0.
func truncate(v float32) uint8 {
	if v > -1<<31 && v < 1<<31 {
		return uint8(int32(v))
	}
	return 0
}

// roundAway rounds to the nearest integer, halves away from zero.
func roundAway(v float32) float32 { return float32(math.Round(float64(v))) }
