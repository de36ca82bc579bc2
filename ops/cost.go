package ops

import "pesti/graph"

// Cost estimates one execution of n: floating-point operations, and bytes, if every operand and
// result moves once (of a table, only the rows that get_rows reads). size returns the extent of a
// dim, so that a node can be costed for any number of tokens.
func Cost(n *graph.Node, size func(graph.Dim) int64) (flops, bytes int64) {
	count := perElement(1)
	if row := Of(n.Op); row != nil && row.FLOPs != nil {
		count = row.FLOPs
	}
	for i, v := range n.In {
		switch {
		case v == nil:
		case i == 0 && (n.Op == GetRows || n.Op == GetPart || n.Op == SelectRows):
			bytes += v.Type.Bytes(size) / max(1, size(v.Type.Shape[0])) * size(n.Out[0].Type.Shape[0])
		default:
			bytes += v.Type.Bytes(size)
		}
	}
	for i, v := range n.Out {
		if !writesResult(n.Op, i) {
			bytes += v.Type.Bytes(size)
		}
	}
	return count(n, size), bytes
}

func writesResult(op *graph.Op, result int) bool {
	for _, w := range op.Writes {
		if w[0] == result {
			return true
		}
	}
	return false
}

// perElement returns a FLOPs function that counts k operations for each element of the results.
func perElement(k int64) func(*graph.Node, func(graph.Dim) int64) int64 {
	return func(n *graph.Node, size func(graph.Dim) int64) int64 {
		total := int64(0)
		for _, v := range n.Out {
			elems := k
			for _, d := range v.Type.Shape {
				elems *= size(d)
			}
			total += elems
		}
		return total
	}
}

func noFLOPs(*graph.Node, func(graph.Dim) int64) int64 { return 0 }
