package kernel

import "math"

// A rope turns heads by rotary position embedding (Su et al. 2021); see ref.Rotary. The sines of
// a step are computed once for all heads.
type rope struct {
	half     int       // pairs in a head
	halves   bool      // pairs are (i, i+half), not (2i, 2i+1)
	speed    []float64 // angle per position of each pair
	cos, sin []float32 // of each row of the step, half each
}

// rope binds the rotation. What is left of the scratch holds the sines.
func (b *binder) rope(rest []byte) rope {
	rot := b.int("rot")
	r := rope{half: rot / 2, speed: make([]float64, rot/2)}
	switch layout := b.str("layout"); layout {
	case "halves":
		r.halves = true
	case "pairs":
	default:
		b.fail("layout=%q, expected pairs or halves", layout)
	}
	base, scale, freqs := b.float("base"), b.float("freq_scale"), b.optionalF32("freqs")
	for i := range r.speed {
		r.speed[i] = scale * math.Pow(base, -2*float64(i)/float64(rot))
		if freqs != nil {
			r.speed[i] /= float64(freqs[i])
		}
	}
	sines := view[float32](rest)
	r.cos, r.sin = sines[:len(sines)/2], sines[len(sines)/2:]
	return r
}

// turn computes the sines of the positions of a step.
func (r *rope) turn(pos []int32) {
	for t, p := range pos {
		cos, sin := r.cos[t*r.half:(t+1)*r.half], r.sin[t*r.half:(t+1)*r.half]
		for i := range cos {
			s, c := math.Sincos(float64(p) * r.speed[i])
			cos[i], sin[i] = float32(c), float32(s)
		}
	}
}

// apply turns one head of row t in place.
func (r *rope) apply(x []float32, t int) {
	cos, sin := r.cos[t*r.half:(t+1)*r.half], r.sin[t*r.half:(t+1)*r.half]
	step, other := 2, 1
	if r.halves {
		step, other = 1, r.half
	}
	for i := range cos {
		a, b := i*step, i*step+other
		x0, x1 := x[a], x[b]
		x[a] = float32(x0*cos[i]) - float32(x1*sin[i])
		x[b] = float32(x0*sin[i]) + float32(x1*cos[i])
	}
}
