package ref

import "math"

// A Rotary says how a rotary position embedding (Su et al. 2021) turns the first Rot dims of each
// head: dims (2i, 2i+1), or (i, i + Rot/2) where Halves is set, by the angle
// pos · FreqScale · Base^(−2i/Rot) / Freqs[i]. No Freqs means ones.
type Rotary struct {
	HeadDim, Rot    int
	Base, FreqScale float64
	Freqs           []float32 // Rot/2 or none
	Halves          bool
}

// Rope turns every head of x [len(pos), heads·HeadDim].
func (r *Rotary) Rope(dst, x []float32, pos []int32) {
	if len(pos) == 0 {
		return
	}
	copy(dst, x)
	width := len(x) / len(pos)
	for t, p := range pos {
		row := dst[t*width : (t+1)*width]
		for i := range r.Rot / 2 {
			angle := float64(p) * r.FreqScale * math.Pow(r.Base, -2*float64(i)/float64(r.Rot))
			if r.Freqs != nil {
				angle /= float64(r.Freqs[i])
			}
			sin, cos := math.Sincos(angle)
			a, b := 2*i, 2*i+1
			if r.Halves {
				a, b = i, i+r.Rot/2
			}
			for ; a < width; a, b = a+r.HeadDim, b+r.HeadDim {
				x, y := float64(row[a]), float64(row[b])
				// The conversions keep compilers from fusing, which would change the last bit.
				row[a] = float32(float64(x*cos) - float64(y*sin))
				row[b] = float32(float64(x*sin) + float64(y*cos))
			}
		}
	}
}
