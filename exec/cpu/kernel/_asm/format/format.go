// Package format tells the programs that write kernels how integers lie in layout r16, which panel16.go
// of package kernel describes. It imports nothing.
package format

// A Format is how a type holds its weights.
type Format struct {
	Name string
	Bits int  // of an element
	Zero int  // what is subtracted from an element, as a logarithm to base 2; 0 where it is nothing
	Min  bool // whether there is a minimum beside the scale
	Sub  int  // elements that share a scale in a block of 256, or 0 where blocks are of 32
}

// Formats are all that integers are multiplied in.
var Formats = []Format{
	{Name: "Q4_0", Bits: 4, Zero: 3},
	{Name: "Q4_1", Bits: 4, Min: true},
	{Name: "Q5_0", Bits: 5, Zero: 4},
	{Name: "Q5_1", Bits: 5, Min: true},
	{Name: "Q8_0", Bits: 8, Zero: 7},
	{Name: "Q4_K", Bits: 4, Min: true, Sub: 32},
	{Name: "Q5_K", Bits: 5, Min: true, Sub: 32},
	{Name: "Q6_K", Bits: 6, Zero: 5, Sub: 16},
}

// A Piece is bits of a unit that lie above the unit of a vector.
type Piece struct {
	Vector int
	Right  int    // by how much they are shifted
	Mask   uint64 // of the bits of the unit
}

// Pieces tells, by the bits of an element, where the units are that have no vector of their own.
var Pieces = map[int]map[int][]Piece{
	4: {4: {{0, 4, 0x0f}}, 5: {{1, 4, 0x0f}}, 6: {{2, 4, 0x0f}}, 7: {{3, 4, 0x0f}}},
	5: {
		5: {{0, 5, 0x07}, {1, 2, 0x18}},
		6: {{2, 5, 0x07}, {3, 2, 0x18}},
		7: {{4, 5, 0x07}, {1, 4, 0x08}, {3, 3, 0x10}},
	},
	6: {6: {{0, 6, 0x03}, {1, 4, 0x0c}, {2, 2, 0x30}}, 7: {{3, 6, 0x03}, {4, 4, 0x0c}, {5, 2, 0x30}}},
}

// Where the parts of a qblock lie, in planar.go, and its size.
const (
	Scale  = 64
	Offset = 68
	Sum    = 72
	Half   = 76
	Bytes  = 80
)
