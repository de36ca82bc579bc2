package ops

import (
	"fmt"

	"pesti/graph"
)

// GatedMLPQuantize is quantize(gated_mlp(x, gate, up)).
var GatedMLPQuantize = define("gated_mlp_quantize",
	[]spec{{"x", activation, "M k"}, {"gate", weight, "n k"}, {"up", weight, "n k"}},
	[]spec{{"y", graph.Q8x2, "M n"}},
	[]graph.AttrSpec{need("act", ""), kernels}, checkGated)

func expandGatedMLPQuantize(e *expander, n *graph.Node) []*graph.Value {
	return []*graph.Value{e.rounded(n, Quantize)}
}

// GatedMLPQuantizeQ8 is quantize_q8(gated_mlp(x, gate, up)).
var GatedMLPQuantizeQ8 = define("gated_mlp_quantize_q8",
	[]spec{{"x", activation, "M k"}, {"gate", weight, "n k"}, {"up", weight, "n k"}},
	[]spec{{"y", graph.Q8, "M n"}},
	[]graph.AttrSpec{need("act", ""), kernels}, checkGated)

func expandGatedMLPQuantizeQ8(e *expander, n *graph.Node) []*graph.Value {
	return []*graph.Value{e.rounded(n, QuantizeQ8)}
}

// GatedMLPRound is round(gated_mlp(x, gate, up)).
var GatedMLPRound = define("gated_mlp_round",
	[]spec{{"x", activation, "M k"}, {"gate", weight, "n k"}, {"up", weight, "n k"}},
	[]spec{{"y", graph.BF16, "M n"}},
	[]graph.AttrSpec{need("act", ""), kernels}, checkGated)

func expandGatedMLPRound(e *expander, n *graph.Node) []*graph.Value {
	return []*graph.Value{e.rounded(n, Round)}
}

// rounded adds a gated MLP and the op that rounds its result.
func (e *expander) rounded(n *graph.Node, op *graph.Op) *graph.Value {
	y := n.Out[0].Name
	return e.add(op, nil, y, e.gatedMLP(n, y+".gated", n.Operand("x")))
}

// checkGated checks that the rows of the result are whole blocks.
func checkGated(n *graph.Node) error {
	if err := checkAct(n); err != nil {
		return err
	}
	if rows := n.Operand("gate").Type.Shape[0]; rows.Sym != graph.Const || rows.N%tileBlock != 0 {
		return fmt.Errorf("operand gate is %v of type %v, expected a number of rows that is a multiple of %d", n.Operand("gate"), n.Operand("gate").Type, tileBlock)
	}
	return nil
}
