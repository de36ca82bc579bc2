package ops

import (
	"fmt"

	"pesti/gguf/numfmt"
	"pesti/graph"
)

// Quantise stores activations in the q8x2 format. The interpreter carries the dequantised values.
var Quantise = define("quantise",
	[]spec{{"x", graph.F32, "M n"}},
	[]spec{{"y", graph.Q8x2, "M n"}}, nil, checkBlocks)

// QuantiseQ8 stores activations in the q8 format, likewise.
var QuantiseQ8 = define("quantise_q8",
	[]spec{{"x", graph.F32, "M n"}},
	[]spec{{"y", graph.Q8, "M n"}}, nil, checkBlocks)

func checkBlocks(n *graph.Node) error {
	if s := n.In[0].Type.Shape; len(s) == 2 && (s[1].Sym != graph.Const || s[1].N%numfmt.BlockLen != 0) {
		return fmt.Errorf("operand x is %v of type %v, expected a row length that is a multiple of %d", n.In[0], n.In[0].Type, numfmt.BlockLen)
	}
	return nil
}

func evalQuantise(_ *graph.Node, in, out []*Value) error {
	k := in[0].last()
	row := make([]byte, numfmt.Q8x2Bytes(k))
	for at := 0; at < len(in[0].F32); at += k {
		numfmt.QuantizeQ8x2(row, in[0].F32[at:at+k])
		numfmt.DequantizeQ8x2(out[0].F32[at:at+k], row)
	}
	return nil
}

func evalQuantiseQ8(_ *graph.Node, in, out []*Value) error {
	k := in[0].last()
	row := make([]byte, numfmt.Q8Bytes(k))
	for at := 0; at < len(in[0].F32); at += k {
		numfmt.QuantizeQ8(row, in[0].F32[at:at+k])
		numfmt.DequantizeQ8(out[0].F32[at:at+k], row)
	}
	return nil
}

// NormQuantise is quantise(rms_norm(x, w)).
var NormQuantise = define("norm_quantise",
	[]spec{{"x", graph.F32, "M n"}, {"w", graph.F32, "n"}},
	[]spec{{"y", graph.Q8x2, "M n"}},
	[]graph.AttrSpec{need("eps", 0.0)}, checkBlocks)

// NormQuantiseQ8 is quantise_q8(rms_norm(x, w)).
var NormQuantiseQ8 = define("norm_quantise_q8",
	[]spec{{"x", graph.F32, "M n"}, {"w", graph.F32, "n"}},
	[]spec{{"y", graph.Q8, "M n"}},
	[]graph.AttrSpec{need("eps", 0.0)}, checkBlocks)

func expandNormQuantise(e *expander, n *graph.Node) []*graph.Value {
	return []*graph.Value{e.roundedNorm(n, Quantise)}
}

func expandNormQuantiseQ8(e *expander, n *graph.Node) []*graph.Value {
	return []*graph.Value{e.roundedNorm(n, QuantiseQ8)}
}

// roundedNorm adds a norm and what rounds it.
func (e *expander) roundedNorm(n *graph.Node, op *graph.Op) *graph.Value {
	y := n.Out[0].Name
	norm := e.add(RMSNorm, graph.Attrs{"eps": n.Attr.Float("eps")}, y+".norm", n.In[0], n.In[1])
	return e.add(op, nil, y, norm)
}
