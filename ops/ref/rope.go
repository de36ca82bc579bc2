package ref

import "math"

// A Rotary holds the parameters of a rotary position embedding (Su et al. 2021, arXiv:2104.09864).
// It rotates the first Rot dims of each head in pairs (2i, 2i+1), or (i, i + Rot/2) if Halves is
// set, by the angle pos · Speed(i), and multiplies them by Magnitude.
type Rotary struct {
	HeadDim, Rot    int
	Base, FreqScale float64
	Freqs           []float32 // Rot/2 divisors of the speeds, or none
	Halves          bool

	// FreqScale scales the speed of every pair. If RampHigh is above RampLow, it applies in full to
	// pairs from RampHigh on, not to pairs up to RampLow, and to pairs between in a share that
	// grows with i: YaRN (Peng et al. 2023, arXiv:2309.00071).
	RampLow, RampHigh float64
	Magnitude         float64 // 1 without YaRN
}

// Speed returns the angle per position of pair i < Rot/2: Base^(−2i/Rot) / Freqs[i], scaled by
// FreqScale.
func (r *Rotary) Speed(i int) float64 {
	speed := math.Pow(r.Base, -2*float64(i)/float64(r.Rot))
	if r.Freqs != nil {
		speed /= float64(r.Freqs[i])
	}
	if r.RampHigh > r.RampLow {
		slowed := min(max((float64(i)-r.RampLow)/(r.RampHigh-r.RampLow), 0), 1)
		return speed * (1 - slowed + float64(slowed*r.FreqScale))
	}
	return speed * r.FreqScale
}

// Rope rotates every head of x [len(pos), heads·HeadDim].
func (r *Rotary) Rope(dst, x []float32, pos []int32) {
	if len(pos) == 0 {
		return
	}
	copy(dst, x)
	width := len(x) / len(pos)
	for i := range r.Rot / 2 {
		speed := r.Speed(i)
		for t, p := range pos {
			row := dst[t*width : (t+1)*width]
			sin, cos := math.Sincos(float64(p) * speed)
			sin, cos = sin*r.Magnitude, cos*r.Magnitude
			a, b := 2*i, 2*i+1
			if r.Halves {
				a, b = i, i+r.Rot/2
			}
			for ; a < width; a, b = a+r.HeadDim, b+r.HeadDim {
				x, y := float64(row[a]), float64(row[b])
				// The conversions prevent fused multiply-adds, which would change the last bit.
				row[a] = float32(float64(x*cos) - float64(y*sin))
				row[b] = float32(float64(x*sin) + float64(y*cos))
			}
		}
	}
}
