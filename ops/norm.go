package ops

import (
	"fmt"

	"pesti/graph"
	"pesti/ops/ref"
)

// RMSNorm is w ⊙ x / √(mean(x²) + eps) over each row (Zhang & Sennrich 2019), or over each group
// of `group` elements with the same w: the q and k norms of each head.
var RMSNorm = alias(define("rms_norm",
	[]spec{{"x", graph.F32, "M n"}, {"w", graph.F32, "g"}},
	[]spec{{"y", graph.F32, "M n"}},
	[]graph.AttrSpec{need("eps", 0.0), may("group", int64(0))},
	func(n *graph.Node) error {
		x, w, group := n.Operand("x").Type.Shape, n.Operand("w").Type.Shape, n.Attr.Int("group")
		if len(x) != 2 || len(w) != 1 {
			return nil // the specs report the error
		}
		want := x[1]
		if group != 0 {
			want = graph.N(group)
			if group < 0 || x[1].Sym != graph.Const || x[1].N%group != 0 {
				return fmt.Errorf("group is %d, expected a divisor of the row length %v", group, x[1])
			}
		}
		if w[0] != want {
			return fmt.Errorf("operand w is %v of type %v, expected %v elements", n.Operand("w"), n.Operand("w").Type, want)
		}
		return nil
	}), [2]int{0, 0})

func evalRMSNorm(n *graph.Node, in, out []*Value) error {
	group := int(n.Attr.Int("group"))
	if group == 0 {
		group = in[0].last()
	}
	ref.RMSNorm(out[0].F32, in[0].F32, in[1].F32, group, n.Attr.Float("eps"))
	return nil
}

// NormAdd is x + rms_norm(d, w): a post-norm and the residual addition after it.
var NormAdd = alias(define("norm_add",
	[]spec{{"d", graph.F32, "M n"}, {"w", graph.F32, "n"}, {"x", graph.F32, "M n"}},
	[]spec{{"y", graph.F32, "M n"}},
	[]graph.AttrSpec{need("eps", 0.0)}, nil), [2]int{0, 2})

func expandNormAdd(e *expander, n *graph.Node) []*graph.Value {
	y := n.Out[0].Name
	norm := e.add(RMSNorm, graph.Attrs{"eps": n.Attr.Float("eps")}, y+".norm", n.Operand("d"), n.Operand("w"))
	return []*graph.Value{e.add(Add, nil, y, n.Operand("x"), norm)}
}
