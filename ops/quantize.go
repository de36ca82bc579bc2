package ops

import (
	"fmt"

	"pesti/gguf/numfmt"
	"pesti/graph"
)

// Quantize stores activations in the q8x2 format. The interpreter keeps the dequantized values.
var Quantize = define("quantize",
	[]spec{{"x", graph.F32, "M n"}},
	[]spec{{"y", graph.Q8x2, "M n"}}, nil, checkBlocks)

// QuantizeQ8 stores activations in the q8 format. The interpreter keeps the dequantized values.
var QuantizeQ8 = define("quantize_q8",
	[]spec{{"x", graph.F32, "M n"}},
	[]spec{{"y", graph.Q8, "M n"}}, nil, checkBlocks)

func checkBlocks(n *graph.Node) error {
	if s := n.Operand("x").Type.Shape; len(s) == 2 && (s[1].Sym != graph.Const || s[1].N%numfmt.BlockLen != 0) {
		return fmt.Errorf("operand x is %v of type %v, expected a row length that is a multiple of %d", n.Operand("x"), n.Operand("x").Type, numfmt.BlockLen)
	}
	return nil
}

func evalQuantize(_ *graph.Node, in, out []*Value) error {
	k := in[0].last()
	row := make([]byte, numfmt.Q8x2Bytes(k))
	for at := 0; at < len(in[0].F32); at += k {
		numfmt.QuantizeQ8x2(row, in[0].F32[at:at+k])
		numfmt.DequantizeQ8x2(out[0].F32[at:at+k], row)
	}
	return nil
}

func evalQuantizeQ8(_ *graph.Node, in, out []*Value) error {
	k := in[0].last()
	row := make([]byte, numfmt.Q8Bytes(k))
	for at := 0; at < len(in[0].F32); at += k {
		numfmt.QuantizeQ8(row, in[0].F32[at:at+k])
		numfmt.DequantizeQ8(out[0].F32[at:at+k], row)
	}
	return nil
}

// NormQuantize is quantize(rms_norm(x, w)).
var NormQuantize = define("norm_quantize",
	[]spec{{"x", graph.F32, "M n"}, {"w", graph.F32, "n"}},
	[]spec{{"y", graph.Q8x2, "M n"}},
	[]graph.AttrSpec{need("eps", 0.0)}, checkBlocks)

// NormQuantizeQ8 is quantize_q8(rms_norm(x, w)).
var NormQuantizeQ8 = define("norm_quantize_q8",
	[]spec{{"x", graph.F32, "M n"}, {"w", graph.F32, "n"}},
	[]spec{{"y", graph.Q8, "M n"}},
	[]graph.AttrSpec{need("eps", 0.0)}, checkBlocks)

func expandNormQuantize(e *expander, n *graph.Node) []*graph.Value {
	return []*graph.Value{e.roundedNorm(n, Quantize)}
}

func expandNormQuantizeQ8(e *expander, n *graph.Node) []*graph.Value {
	return []*graph.Value{e.roundedNorm(n, QuantizeQ8)}
}

// roundedNorm adds a norm and the op that rounds it.
func (e *expander) roundedNorm(n *graph.Node, op *graph.Op) *graph.Value {
	y := n.Out[0].Name
	norm := e.add(RMSNorm, graph.Attrs{"eps": n.Attr.Float("eps")}, y+".norm", n.Operand("x"), n.Operand("w"))
	return e.add(op, nil, y, norm)
}
