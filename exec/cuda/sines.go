package cuda

import (
	"encoding/binary"
	"math"

	"pesti/exec/plan"
	"pesti/ops/ref"
)

// Sines fills dst with the cosine and sine of each pair's angle at each position from 0, times the
// magnitude: float32 [positions, Rot/2, 2]. Angles are computed in float64, as in ops/ref. freqs are Rot/2
// divisors of the speeds, or nil.
func Sines(dst []byte, r plan.Rotation, freqs []float32) {
	rotary := ref.Rotary{Rot: int(r.Rot), Base: r.Base, FreqScale: r.FreqScale, Freqs: freqs, RampLow: r.RampLow, RampHigh: r.RampHigh}
	half := int(r.Rot / 2)
	speeds := make([]float64, half)
	for i := range speeds {
		speeds[i] = rotary.Speed(i)
	}
	for p := range len(dst) / (8 * half) {
		for i, speed := range speeds {
			sin, cos := math.Sincos(float64(p) * speed)
			at := dst[8*(p*half+i):]
			binary.LittleEndian.PutUint32(at, math.Float32bits(float32(cos*r.Magnitude)))
			binary.LittleEndian.PutUint32(at[4:], math.Float32bits(float32(sin*r.Magnitude)))
		}
	}
}
