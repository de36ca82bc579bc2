package ops

import (
	"pesti/graph"
	"pesti/ops/ref"
)

// GetRows gathers table rows, times scale: the token embedding.
var GetRows = define("get_rows",
	[]spec{{"table", weight, "vocab n"}, {"ids", graph.I32, "M"}},
	[]spec{{"y", graph.F32, "M n"}},
	[]graph.AttrSpec{may("scale", 1.0)}, nil)

func evalGetRows(n *graph.Node, in, out []*Value) error {
	return ref.GetRows(out[0].F32, in[0].F32, in[1].I32, in[0].last(), n.Float("scale"))
}

// SelectRows keeps the rows whose logits the caller requests.
var SelectRows = define("select_rows",
	[]spec{{"x", graph.F32, "T n"}, {"rows", graph.I32, "R"}},
	[]spec{{"y", graph.F32, "R n"}}, nil, nil)

func evalSelectRows(_ *graph.Node, in, out []*Value) error {
	return ref.GetRows(out[0].F32, in[0].F32, in[1].I32, in[0].last(), 1)
}
