package ref

import (
	"math"
	"testing"

	"pesti/gguf/numfmt"
)

// TestQ8 checks that a cache of q8_0 blocks returns each row within half a quantization step, at
// any position, and NaN for blocks with a NaN or an infinity.
func TestQ8(t *testing.T) {
	const width, positions = 64, 32
	for _, layout := range []string{"plain", "paged", "ring"} {
		c := caches(width, positions, false)[layout]
		c.F32, c.Q8 = nil, make([]byte, 2*positions*width/numfmt.BlockLen*numfmt.Q8_0Bytes)
		rows := map[[2]int][]float32{}
		for seq := range 2 {
			for pos := range positions {
				row := random(uint64(seq*positions+pos), width)
				switch pos {
				case 3:
					clear(row[:numfmt.BlockLen])
				case 4:
					row[5] = float32(math.Inf(-1))
				case 5:
					row[5] = float32(math.NaN())
				case 6:
					row[5] = 60000 * 127 // the scale is still a float16
				}
				c.Store(seq, pos, row)
				rows[[2]int{seq, pos}] = row
			}
		}
		got := make([]float32, width)
		for at, row := range rows {
			c.Load(got, at[0], at[1])
			for b := 0; b < width; b += numfmt.BlockLen {
				top := 0.0
				for _, v := range row[b : b+numfmt.BlockLen] {
					top = max(top, math.Abs(float64(v))) // NaN wins
				}
				for i, v := range row[b : b+numfmt.BlockLen] {
					off := math.Abs(float64(got[b+i] - v))
					if finite := top <= math.MaxFloat32; finite && !(off <= top/254*1.002+top*0x1p-11) || !finite && got[b+i] == got[b+i] {
						t.Fatalf("%s: position %v, element %d is %v, stored %v in a block up to %v", layout, at, b+i, got[b+i], v, top)
					}
				}
			}
		}
	}
}
