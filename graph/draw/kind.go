package draw

import (
	"slices"
	"strings"

	"pesti/graph"
	"pesti/ops"
)

// A kind is a family of ops and kernels that share a color. The table of package ops has the kind of each op.
type kind struct {
	name    string
	fill    string // of the box
	line    string // its border
	kernels []string
}

// kinds is the table of colors: light fills, borders of the same hue.
var kinds = []kind{
	{"matmul", "#DCEBFB", "#3B78B8", []string{"matmul_group", "gated_mlp", "cuda.gemv", "cuda.gated_mlp", "cuda.gemm", "cuda.gemm_gated_mlp"}},
	{"attention", "#FDE6D3", "#D07A2D", []string{"attention", "cuda.attention", "cuda.prefill"}},
	{"norm", "#DDF3E1", "#3F9757", []string{"norm", "norm_add", "cuda.norm", "cuda.norm_add"}},
	{"quantize", "#FBF3CC", "#B39A1E", []string{"quantize", "cuda.quantize"}},
	{"embed", "#EBE1F8", "#7D5BB5", []string{"embed", "cuda.embed", "cuda.embed_part"}},
	{"elementwise", "#E2F3F3", "#3C9191", nil},
	{rowsKind, "#F9E1EC", "#BC4F83", []string{"select", "copy", "cuda.select", "cuda.copy", "cuda.top"}},
	{"transfer", "#F3E8DC", "#8A5A2B", []string{"transfer", "cuda.sum", "cuda.concat"}},
	{stateKind, "#E9ECF1", "#66738A", nil},
	{inputKind, "#FFFFFF", "#66738A", nil},
	{"reference kernel", "#F8DADA", "#C0392B", nil}, // ref.*
	{otherKind, "#F4F4F4", "#888888", nil},
}

// Kinds with a special meaning in pictures.
const (
	inputKind = "input" // supplied by the caller
	rowsKind  = "rows"  // a selection of rows
	stateKind = cacheName
	otherKind = "other" // what is in no table
)

// cacheName is the displayed name of states.
const cacheName = "KV cache"

const refPrefix = "ref."

// kindOfOp returns the kind of an op.
func kindOfOp(op *graph.Op) string {
	if row := ops.Of(op); row != nil {
		return styleOf(row.Kind).name
	}
	return otherKind
}

// kindOfKernel returns the kind of a kernel.
func kindOfKernel(name string) string {
	if strings.HasPrefix(name, refPrefix) {
		return "reference kernel"
	}
	for _, k := range kinds {
		if slices.Contains(k.kernels, name) {
			return k.name
		}
	}
	return otherKind
}

// styleOf returns the row of a kind, or of otherKind.
func styleOf(name string) kind {
	for _, k := range slices.Concat(kinds, timeStyles) {
		if k.name == name {
			return k
		}
	}
	return kinds[len(kinds)-1]
}
