package ops

import (
	"fmt"

	"pesti/graph"
	"pesti/ops/ref"
)

// Ops that join the parts of a value that several devices have computed (Shoeybi et al. 2019,
// arXiv:1909.08053). More than three parts need several ops.

// GetPart is get_rows of a part of a table of vocab rows that begins at row first. Rows outside the
// part give zeros, so that the sum over all parts is the look-up.
var GetPart = define("get_part",
	[]spec{{"table", weight, "rows n"}, {"ids", graph.I32, "M"}},
	[]spec{{"y", graph.F32, "M n"}},
	[]graph.AttrSpec{need("first", int64(0)), need("vocab", int64(0)), may("scale", 1.0)}, checkGetPart)

func checkGetPart(n *graph.Node) error {
	first, vocab, t := n.Attr.Int("first"), n.Attr.Int("vocab"), n.Operand("table").Type
	if first < 0 || len(t.Shape) == 2 && t.Shape[0].N > vocab-first {
		return fmt.Errorf("first is %d, expected 0 or more and, with the rows of %v, at most vocab = %d", first, t, vocab)
	}
	return nil
}

func evalGetPart(n *graph.Node, in, out []*Value) error {
	ref.GetPart(out[0].F32, in[0].F32, in[1].I32, in[0].last(), int(n.Attr.Int("first")), n.Float("scale"))
	return nil
}

// Sum adds its operands in order, and then res if it is present. Devices with the same operands get
// the same bits.
var Sum = alias(define("sum",
	[]spec{{"x0", graph.F32, "M n"}, {"x1?", graph.F32, "M n"}, {"x2?", graph.F32, "M n"}, {"res?", graph.F32, "M n"}},
	[]spec{{"y", graph.F32, "M n"}}, nil, nil), [2]int{0, 3})

func evalSum(_ *graph.Node, in, out []*Value) error {
	var xs [][]float32
	for _, v := range in {
		if v != nil {
			xs = append(xs, v.F32)
		}
	}
	ref.Sum(out[0].F32, xs...)
	return nil
}

// sumFLOPs counts the additions.
func sumFLOPs(n *graph.Node, size func(graph.Dim) int64) int64 {
	terms := int64(0)
	for _, v := range n.In {
		if v != nil {
			terms++
		}
	}
	return perElement(terms-1)(n, size)
}

// Concat concatenates the rows of its operands to rows of width elements.
var Concat = define("concat",
	[]spec{{"x0", graph.F32, "M n0"}, {"x1?", graph.F32, "M n1"}, {"x2?", graph.F32, "M n2"}},
	[]spec{{"y", graph.F32, "M width"}},
	[]graph.AttrSpec{need("width", int64(0))}, checkConcat)

func checkConcat(n *graph.Node) error {
	sum := int64(0)
	for _, v := range n.In {
		if v != nil && len(v.Type.Shape) == 2 {
			sum += v.Type.Shape[1].N
		}
	}
	if width := n.Attr.Int("width"); width != sum {
		return fmt.Errorf("width is %d, expected %d, the elements of all operands' rows", width, sum)
	}
	return nil
}

func evalConcat(_ *graph.Node, in, out []*Value) error {
	var xs [][]float32
	var widths []int
	for _, v := range in {
		if v != nil {
			xs, widths = append(xs, v.F32), append(widths, v.last())
		}
	}
	ref.Concat(out[0].F32, widths, xs...)
	return nil
}
