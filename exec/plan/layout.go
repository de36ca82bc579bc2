package plan

import "fmt"

// A Layout is an order of a weight's elements that kernels prefer to the file's order. A matrix of
// n rows of k elements is divided into panels of Rows rows, the last one padded with zero rows. A
// panel is divided into blocks, each with Block elements of every row of the panel, Bytes long in
// all. The kernels define the order inside a block.
type Layout struct {
	Name  string // as in the names of kernels: "panel16"
	Type  string // of the weight: "q5_0"
	Rows  int64
	Block int64
	Bytes int64
}

// layouts has a row for each layout and type. Blocks are as large as in the file, except that
// scales of q4_k and q5_k take eight bits instead of six.
var layouts = []Layout{
	{"panel16", "f32", 16, 1, 64},
	{"panel16", "f16", 16, 1, 32},
	{"panel16", "bf16", 16, 1, 32},
	{"panel16", "f8_e4m3", 16, 1, 16},
	{"panel16", "q4_0", 16, 32, 288},
	{"panel16", "q4_1", 16, 32, 320},
	{"panel16", "q5_0", 16, 32, 352},
	{"panel16", "q5_1", 16, 32, 384},
	{"panel16", "q8_0", 16, 32, 544},
	{"panel16", "q4_k", 16, 256, 2368},
	{"panel16", "q5_k", 16, 256, 2880},
	{"panel16", "q6_k", 16, 256, 3360},

	{SOA, "q4_0", 1, 32, 18},
	{SOA, "q4_1", 1, 32, 20},
	{SOA, "q5_0", 1, 32, 22},
	{SOA, "q5_1", 1, 32, 24},
	{SOA, "q8_0", 1, 32, 34},
	{SOA, "q4_k", 1, 256, 148},
	{SOA, "q5_k", 1, 256, 180},
	{SOA, "q6_k", 1, 256, 210},
	{SOA, "f32", 1, 32, 128},
	{SOA, "f16", 1, 32, 64},
	{SOA, "bf16", 1, 32, 64},
	{SOA, SidecarType, 1, 32, 32},
}

// Layouts returns the layouts, one row per layout and type.
func Layouts() []Layout { return layouts }

// LookupLayout returns the layout with a name for weights of a type.
func LookupLayout(name, kind string) (*Layout, bool) {
	for i := range layouts {
		if l := &layouts[i]; l.Name == name && l.Type == kind {
			return l, true
		}
	}
	return nil, false
}

// Size returns the bytes that a matrix of n rows of k elements takes.
func (l *Layout) Size(n, k int64) (int64, error) {
	if n < 1 || k < 1 || k%l.Block != 0 {
		return 0, fmt.Errorf("%d rows of %d elements, expected a multiple of %d elements in layout %s of %s", n, k, l.Block, l.Name, l.Type)
	}
	panels := (n-1)/l.Rows + 1
	blocks, ok := mul(panels, k/l.Block)
	if ok {
		if bytes, ok := mul(blocks, l.Bytes); ok {
			return bytes, nil
		}
	}
	return 0, fmt.Errorf("%d rows of %d elements exceed %d bytes in layout %s of %s", n, k, maxInt, l.Name, l.Type)
}
