package cuda

import (
	"encoding/binary"
	"math"

	"pesti/exec/plan"
	"pesti/ops/ref"
)

// A Rope is the parameters of a rotary position embedding (Su et al. 2021, arXiv:2104.09864), by which
// attention steps share a table.
type Rope struct {
	Rot                                           int64
	Base, FreqScale, RampLow, RampHigh, Magnitude float64
	Freqs                                         string // the weight with divisors of the speeds, or ""
}

// RopeOf returns the rotation of an attention step.
func RopeOf(st *plan.Step) Rope {
	b := &binder{Binding: &Binding{Step: st}}
	r := Rope{Rot: param[int64](b, "rot"), Base: param[float64](b, "base"), FreqScale: param[float64](b, "freq_scale"),
		RampLow: param[float64](b, "ramp_low"), RampHigh: param[float64](b, "ramp_high"), Magnitude: param[float64](b, "magnitude")}
	for _, a := range st.Args {
		if a.Role == "freqs" {
			r.Freqs = a.Weight
		}
	}
	return r
}

// Size is the bytes of the table for so many positions.
func (r *Rope) Size(positions int) int { return positions * int(r.Rot) / 2 * 8 }

// Table fills dst with cosine and sine of each pair's angle at each position, times the magnitude:
// float32 [positions, Rot/2, 2]. Angles are taken in float64, as the reference takes them; freqs are
// Rot/2 divisors of the speeds, or none.
func (r *Rope) Table(dst []byte, positions int, freqs []float32) {
	rotary := ref.Rotary{Rot: int(r.Rot), Base: r.Base, FreqScale: r.FreqScale, Freqs: freqs, RampLow: r.RampLow, RampHigh: r.RampHigh}
	half := int(r.Rot / 2)
	speeds := make([]float64, half)
	for i := range speeds {
		speeds[i] = rotary.Speed(i)
	}
	for p := range positions {
		for i, speed := range speeds {
			sin, cos := math.Sincos(float64(p) * speed)
			at := dst[8*(p*half+i):]
			binary.LittleEndian.PutUint32(at, math.Float32bits(float32(cos*r.Magnitude)))
			binary.LittleEndian.PutUint32(at[4:], math.Float32bits(float32(sin*r.Magnitude)))
		}
	}
}
