package quant

import (
	"math"
	"math/bits"
	"strings"
	"sync"
)

// A grid is a codebook of the IQ types, which store indices of its points. It has
// those combinations of levels that occur often in weights, and is part of the
// format. Points are sorted by their levels, the last element being the most
// significant, so that the set of points determines their indices.
type grid struct {
	n      int    // elements of a point
	points []int8 // n for each point
}

// gridOf returns a function that returns the grid of the points in set, unpacked at
// the first call. The digits of a point's number are the indices of its levels, the
// first element being the lowest digit. Point p is in the set if bit p%4 of
// hexadecimal digit p/4 is 1. Line breaks are ignored.
func gridOf(n int, levels []int8, set string) func() *grid {
	return sync.OnceValue(func() *grid { return unpack(n, levels, set) })
}

func unpack(n int, levels []int8, set string) *grid {
	g := &grid{n: n}
	p := 0
	for _, digit := range set {
		four := strings.IndexRune("0123456789abcdef", digit)
		if four < 0 {
			continue
		}
		for bit := range 4 {
			if four>>bit&1 == 1 {
				for at, i := p+bit, 0; i < n; at, i = at/len(levels), i+1 {
					g.points = append(g.points, levels[at%len(levels)])
				}
			}
		}
		p += 4
	}
	return g
}

// grids holds the grid of each type that has one.
var grids = map[Type]func() *grid{
	IQ2_XXS: iq2XXS, IQ2_XS: iq2XS, IQ2_S: iq2S, IQ3_XXS: iq3XXS, IQ3_S: iq3S, IQ1_S: iq1, IQ1_M: iq1,
}

// Points returns a function that returns the grid of a type, or nil if it has none: eight elements for each
// index, four for the IQ3 types. The grid is unpacked at the first call. Callers must not change it.
func Points(t Type) func() []int8 {
	g := grids[t]
	if g == nil {
		return nil
	}
	return func() []int8 { return g().points }
}

func (g *grid) point(i int) []int8 { return g.points[i*g.n : (i+1)*g.n] }

// evenSigns adds an eighth sign bit to 7, so that the number of bits set is even.
func evenSigns(seven uint32) byte {
	s := byte(seven & 127)
	return s | byte(bits.OnesCount8(s)&1)<<7
}

// signed sets y to scale times the point, with the sign of an element negative if its bit in signs is set.
func signed(y []float32, scale float32, point []int8, signs byte) {
	y = y[:len(point)]
	for i, g := range point {
		// A branch would be mispredicted half of the time.
		y[i] = math.Float32frombits(math.Float32bits(scale*float32(g)) ^ uint32(signs>>i&1)<<31)
	}
}
