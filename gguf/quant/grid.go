package quant

import (
	"math"
	"math/bits"
	"strings"
	"sync"
)

// A grid is a set of points, which the IQ types store by their index: the few of
// all combinations of levels that real weights come near to. Which they are is
// part of the format. Points are numbered in the order of their levels, of which
// the last one counts most; so the set alone tells the grid.
type grid struct {
	n      int    // elements of a point
	points []int8 // n for each point
}

// gridOf returns a function that returns the grid of the points in set, which it
// unpacks once, if ever. A point has a number, whose digits are the indices of its
// levels, the first element being the lowest digit; point p is in the set if bit
// p%4 of hexadecimal digit p/4 is 1. Line breaks do not count.
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

// grids are those of the types that have one.
var grids = map[Type]func() *grid{
	IQ2_XXS: iq2XXS, IQ2_XS: iq2XS, IQ2_S: iq2S, IQ3_XXS: iq3XXS, IQ3_S: iq3S, IQ1_S: iq1, IQ1_M: iq1,
}

// Points returns what returns the grid that a type takes its elements from, nil where it has none: eight
// elements for each index, of the IQ3 types four. It is unpacked at the first call. Callers must not change it.
func Points(t Type) func() []int8 {
	g := grids[t]
	if g == nil {
		return nil
	}
	return func() []int8 { return g().points }
}

func (g *grid) point(i int) []int8 { return g.points[i*g.n : (i+1)*g.n] }

// evenSigns completes 7 sign bits with an eighth, so that an even number is set.
func evenSigns(seven uint32) byte {
	s := byte(seven & 127)
	return s | byte(bits.OnesCount8(s)&1)<<7
}

// signed sets y to scale times the point, negative where a bit of signs is set.
func signed(y []float32, scale float32, point []int8, signs byte) {
	y = y[:len(point)]
	for i, g := range point {
		// A branch would be as good as random.
		y[i] = math.Float32frombits(math.Float32bits(scale*float32(g)) ^ uint32(signs>>i&1)<<31)
	}
}
