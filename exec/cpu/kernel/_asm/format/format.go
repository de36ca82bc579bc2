// Package format describes the integer types in layout panel16 (panel16.go of package kernel) for the
// generators. It imports nothing.
package format

// A Format describes an integer type.
type Format struct {
	Name string
	Bits int  // bits of an element
	Zero int  // log2 of the zero point, or 0 if there is none
	Min  bool // whether blocks have a minimum as well as a scale
	Sub  int  // elements that share a scale in a block of 256, or 0 for blocks of 32
}

// Formats are all integer types with kernels.
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

// Vector is the size in bytes of the scales of 64 elements in a block of 256. They precede the units of these
// elements: 16 bytes for each sub-block, then 16 for each sub-block's minima.
const Vector = 64

// Head returns the bytes of float16 scales at the beginning of a block.
func (f Format) Head() int {
	if f.Min {
		return 64
	}
	return 32
}

// Units returns the offset in a block of the units from element 32·i on.
func (f Format) Units(i int) int {
	at := f.Head() + 64*f.Bits*i
	if f.Sub > 0 {
		at += Vector * (i/2 + 1)
	}
	return at
}

// Size returns the bytes of a block of a panel.
func (f Format) Size() int {
	if f.Sub > 0 {
		return f.Units(8) - Vector
	}
	return f.Units(1)
}

// ScaleAt returns the offset in a block of 256 of the scales of sub-block j, and MinAt of its minima.
func (f Format) ScaleAt(j int) int {
	n := 64 / f.Sub
	return f.Units(2*(j/n)) - Vector + 16*(j%n)
}

func (f Format) MinAt(j int) int { return f.ScaleAt(j) + Vector/2 }

// Ahead is the prefetch distance in bytes. Software prefetches help because hardware prefetchers stop at the end
// of a 4 KiB page.
const Ahead = 2048

// A Piece is a part of a unit that is stored in the high bits of another unit's vector.
type Piece struct {
	Vector int
	Right  int    // right shift of the vector
	Mask   uint64 // of the piece after the shift
}

// Named returns the format of a type.
func Named(name string) Format {
	for _, f := range Formats {
		if f.Name == name {
			return f
		}
	}
	panic("no format " + name)
}

// Pieces lists, by bits of an element and by unit, the pieces of the units that have no vector of their own.
var Pieces = map[int]map[int][]Piece{
	4: {4: {{0, 4, 0x0f}}, 5: {{1, 4, 0x0f}}, 6: {{2, 4, 0x0f}}, 7: {{3, 4, 0x0f}}},
	5: {
		5: {{0, 5, 0x07}, {1, 2, 0x18}},
		6: {{2, 5, 0x07}, {3, 2, 0x18}},
		7: {{4, 5, 0x07}, {1, 4, 0x08}, {3, 3, 0x10}},
	},
	6: {6: {{0, 6, 0x03}, {1, 4, 0x0c}, {2, 2, 0x30}}, 7: {{3, 6, 0x03}, {4, 4, 0x0c}, {5, 2, 0x30}}},
}

// Offsets of the fields of a qscale (planar.go of package kernel), and its size.
const (
	Scale  = 0
	Offset = 4
	Sum    = 8
	Half   = 12
	Bytes  = 16
)
