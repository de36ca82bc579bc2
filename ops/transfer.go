package ops

import "pesti/graph"

// Transfer copies x, which may be on another device, to the device of the node.
var Transfer = crosses(define("transfer", []spec{{"x", graph.F32, "M n"}}, []spec{{"y", graph.F32, "M n"}}, nil, nil))

func evalTransfer(_ *graph.Node, in, out []*Value) error {
	copy(out[0].F32, in[0].F32)
	return nil
}

// crosses marks an op whose operands may be on another device.
func crosses(op *graph.Op) *graph.Op { op.Crosses = true; return op }
