package ops

import (
	"fmt"

	"pesti/graph"
)

// Input is a value that the caller gives for each step, dtype[sym]: tokens, pos and seq (i32[T]),
// rows (i32[R]).
var Input = &graph.Op{
	Name:       "input",
	Everywhere: true,
	Out:        1,
	Attrs:      []graph.AttrSpec{need("dtype", ""), need("sym", "")},
	Infer: func(n *graph.Node) ([]graph.Type, error) {
		if err := oneOf(n, "dtype", string(graph.I32)); err != nil {
			return nil, err
		}
		if err := oneOf(n, "sym", string(graph.T), string(graph.S), string(graph.R)); err != nil {
			return nil, err
		}
		return []graph.Type{{DType: graph.DType(n.Attr.Str("dtype")), Shape: []graph.Dim{graph.Of(graph.Sym(n.Attr.Str("sym")))}}}, nil
	},
}

// State is one layer's cache of keys or values: a row of width elements for each position of each
// sequence. A window > 0 means that at most the last window positions are ever read.
var State = define("state", nil, []spec{{"y", graph.KV, "C width"}},
	[]graph.AttrSpec{need("width", int64(0)), may("window", int64(0))},
	func(n *graph.Node) error {
		if w := n.Attr.Int("width"); w <= 0 {
			return fmt.Errorf("width is %d, expected a positive number", w)
		}
		return notNegative(n, "window")
	})
