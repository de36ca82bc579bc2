package draw

import (
	"slices"
	"strings"
)

// A kind is a family of operations that share a colour.
type kind struct {
	name  string
	fill  string // of the box
	line  string // its border
	names []string
}

// kinds is the table of colours: light fills, borders of the same hue.
var kinds = []kind{
	{"matmul", "#DCEBFB", "#3B78B8", []string{"matmul", "qkv", "swiglu", "swiglu_quantise", "swiglu_quantise_q8", "swiglu_round", "norm_matmul", "norm_qkv", "norm_swiglu", "matmul_group", "gated", "cuda.gemv", "cuda.gated", "cuda.gemm", "cuda.gemm_gated"}},
	{"attention", "#FDE6D3", "#D07A2D", []string{"attention", "attn_scores", "softmax", "attn_values", "rope", "cuda.attention", "cuda.prefill"}},
	{"norm", "#DDF3E1", "#3F9757", []string{"norm", "rms_norm", "norm_add", "norm_quantise", "norm_quantise_q8", "norm_round", "cuda.norm", "cuda.norm_add"}},
	{"quantise", "#FBF3CC", "#B39A1E", []string{"quantise", "quantise_q8", "round", "cuda.quantise"}},
	{"embed", "#EBE1F8", "#7D5BB5", []string{"embed", "get_rows", "get_part", "cuda.embed", "cuda.embed_part"}},
	{"elementwise", "#E2F3F3", "#3C9191", []string{"add", "mul", "scale", "silu", "gelu_tanh", "gelu_erf", "add_bias"}},
	{rowsKind, "#F9E1EC", "#BC4F83", []string{"select", "select_rows", "copy", "cuda.select", "cuda.copy", "cuda.top"}},
	{"transfer", "#F3E8DC", "#8A5A2B", []string{"transfer", "sum", "concat", "cuda.sum", "cuda.concat"}},
	{stateKind, "#E9ECF1", "#66738A", []string{"state", "kv_write"}},
	{inputKind, "#FFFFFF", "#66738A", []string{"input"}},
	{"reference kernel", "#F8DADA", "#C0392B", nil}, // ref.*: what no other kernel fits
	{"other", "#F4F4F4", "#888888", nil},
}

// Kinds that pictures treat in a way of their own.
const (
	inputKind = "input" // what comes from the caller
	rowsKind  = "rows"  // a selection of rows
	stateKind = cacheName
)

// cacheName is what people call the states of graphs and plans.
const cacheName = "KV cache"

const refPrefix = "ref."

// kindOf returns the kind of an op or a kernel.
func kindOf(name string) string {
	if strings.HasPrefix(name, refPrefix) {
		return "reference kernel"
	}
	for _, k := range kinds {
		for _, n := range k.names {
			if n == name {
				return k.name
			}
		}
	}
	return "other"
}

// styleOf returns the row of a kind.
func styleOf(name string) kind {
	for _, k := range slices.Concat(kinds, timeStyles) {
		if k.name == name {
			return k
		}
	}
	return kinds[len(kinds)-1]
}
