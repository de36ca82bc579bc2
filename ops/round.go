package ops

import (
	"fmt"

	"pesti/gguf/numfmt"
	"pesti/graph"
)

// tileBlock is the number of activations in a block of products in tiles.
const tileBlock = 32

// Round rounds activations to bf16. The interpreter carries the rounded values.
var Round = define("round",
	[]spec{{"x", graph.F32, "M n"}},
	[]spec{{"y", graph.BF16, "M n"}}, nil, checkRound)

func checkRound(n *graph.Node) error {
	if s := n.Operand("x").Type.Shape; len(s) == 2 && (s[1].Sym != graph.Const || s[1].N%tileBlock != 0) {
		return fmt.Errorf("operand x is %v of type %v, expected a row length that is a multiple of %d", n.Operand("x"), n.Operand("x").Type, tileBlock)
	}
	return nil
}

func evalRound(_ *graph.Node, in, out []*Value) error {
	row := make([]byte, 2*len(in[0].F32))
	numfmt.EncodeBF16(row, in[0].F32)
	numfmt.DecodeBF16(out[0].F32, row)
	return nil
}

// NormRound is round(rms_norm(x, w)).
var NormRound = define("norm_round",
	[]spec{{"x", graph.F32, "M n"}, {"w", graph.F32, "n"}},
	[]spec{{"y", graph.BF16, "M n"}},
	[]graph.AttrSpec{need("eps", 0.0)}, checkRound)

func expandNormRound(e *expander, n *graph.Node) []*graph.Value {
	return []*graph.Value{e.roundedNorm(n, Round)}
}
