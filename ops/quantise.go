package ops

import (
	"fmt"

	"pesti/graph"
	"pesti/ops/ref"
)

// Quantise stores activations in the q8x2 format. The interpreter carries the dequantised values.
var Quantise = define("quantise",
	[]spec{{"x", graph.F32, "M n"}},
	[]spec{{"y", graph.Q8x2, "M n"}}, nil, checkQ8x2)

func checkQ8x2(n *graph.Node) error {
	if s := n.In[0].Type.Shape; len(s) == 2 && (s[1].Sym != graph.Const || s[1].N%ref.Q8x2Block != 0) {
		return fmt.Errorf("operand x is %v of type %v, expected a row length that is a multiple of %d", n.In[0], n.In[0].Type, ref.Q8x2Block)
	}
	return nil
}

func evalQuantise(_ *graph.Node, in, out []*Value) error {
	k := in[0].last()
	row := make([]byte, ref.Q8x2Bytes(k))
	for at := 0; at < len(in[0].F32); at += k {
		ref.QuantiseQ8x2(row, in[0].F32[at:at+k])
		ref.DequantiseQ8x2(out[0].F32[at:at+k], row)
	}
	return nil
}

// NormQuantise is quantise(rms_norm(x, w)).
var NormQuantise = define("norm_quantise",
	[]spec{{"x", graph.F32, "M n"}, {"w", graph.F32, "n"}},
	[]spec{{"y", graph.Q8x2, "M n"}},
	[]graph.AttrSpec{need("eps", 0.0)}, checkQ8x2)

func expandNormQuantise(e *expander, n *graph.Node) []*graph.Value {
	y := n.Out[0].Name
	norm := e.add(RMSNorm, graph.Attrs{"eps": n.Attr.Float("eps")}, y+".norm", n.In[0], n.In[1])
	return []*graph.Value{e.add(Quantise, nil, y, norm)}
}
