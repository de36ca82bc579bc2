package kernel

import (
	"math"

	"pesti/ops/ref"
)

// A rope applies rotary position embedding (Su et al. 2021) to heads; see ref.Rotary. The sines of a
// step are computed once for all heads.
type rope struct {
	half      int       // pairs in a head
	halves    bool      // pairs are (i, i+half) instead of (2i, 2i+1)
	speed     []float64 // angle per position of each pair
	magnitude float64
	cos, sin  []float32 // of each row of the step, half each
	vec       *vectors
}

// rotary reads the parameters of the rotation.
func (b *binder) rotary() *ref.Rotary {
	r := &ref.Rotary{
		HeadDim: b.int("head_dim"), Rot: b.int("rot"), Base: b.float("base"), FreqScale: b.float("freq_scale"),
		RampLow: b.float("ramp_low"), RampHigh: b.float("ramp_high"), Magnitude: b.float("magnitude"), Freqs: b.optionalF32("freqs"),
	}
	switch layout := b.str("layout"); layout {
	case "halves":
		r.Halves = true
	case "pairs":
	default:
		b.fail("layout=%q, expected pairs or halves", layout)
	}
	return r
}

// rope binds the rotation. The sines are stored in rest, the unused scratch.
func (b *binder) rope(rest []byte) rope {
	rotary := b.rotary()
	r := rope{half: rotary.Rot / 2, halves: rotary.Halves, speed: make([]float64, rotary.Rot/2), magnitude: rotary.Magnitude, vec: b.vectors()}
	for i := range r.speed {
		r.speed[i] = rotary.Speed(i)
	}
	sines := view[float32](rest)
	r.cos, r.sin = sines[:len(sines)/2], sines[len(sines)/2:]
	return r
}

// setSines computes the sines of the positions of a step.
func (r *rope) setSines(pos []int32) {
	for t, p := range pos {
		r.vec.sines(r.cos[t*r.half:(t+1)*r.half], r.sin[t*r.half:(t+1)*r.half], r.speed, float64(p), r.magnitude)
	}
}

// apply rotates one head of row t in place.
func (r *rope) apply(x []float32, t int) {
	cos, sin := r.cos[t*r.half:(t+1)*r.half], r.sin[t*r.half:(t+1)*r.half]
	if r.halves {
		r.vec.rotateHalves(x[:r.half], x[r.half:2*r.half], cos, sin)
	} else {
		r.vec.rotatePairs(x[:2*r.half], cos, sin)
	}
}

// portableSines sets cos and sin to magnitude times the cosine and sine of pos·speed.
func portableSines(cos, sin []float32, speed []float64, pos, magnitude float64) {
	for i := range cos {
		s, c := math.Sincos(pos * speed[i])
		cos[i], sin[i] = float32(c*magnitude), float32(s*magnitude)
	}
}

// portableRotateHalves rotates the pairs (x[i], y[i]).
func portableRotateHalves(x, y, cos, sin []float32) {
	for i := range x {
		x0, x1 := x[i], y[i]
		x[i] = float32(x0*cos[i]) - float32(x1*sin[i])
		y[i] = float32(x0*sin[i]) + float32(x1*cos[i])
	}
}

// portableRotatePairs rotates the pairs (x[2i], x[2i+1]).
func portableRotatePairs(x, cos, sin []float32) {
	for i := range cos {
		x0, x1 := x[2*i], x[2*i+1]
		x[2*i] = float32(x0*cos[i]) - float32(x1*sin[i])
		x[2*i+1] = float32(x0*sin[i]) + float32(x1*cos[i])
	}
}
