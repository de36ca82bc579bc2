package gorgoniaref

import (
	"pesti/graph"
	"pesti/ops"
)

// A Need is the peak memory of a Run in bytes. It omits what grows neither with the square of the
// tokens nor with the vocabulary. It approximates measurements, which is enough to refuse a run
// that cannot fit.
type Need struct {
	Attention int64 // scores of a block, and values computed from them
	Logits    int64
	Weights   int64 // of one part
}

// Total returns the sum.
func (n *Need) Total() int64 { return n.Attention + n.Logits + n.Weights }

// How many copies of each are resident at the peak, including garbage that is not yet collected. On
// graphs that consist almost only of one kind, 9.5 to 10.5, 2 and 1 were measured.
const (
	copiesOfScores  = 10
	copiesOfLogits  = 2
	copiesOfWeights = 1
)

// NeedOf returns the memory that Run needs for g with the wanted values, for as many tokens as the
// bound of g. It returns an error if a value does not exist.
func NeedOf(g *graph.Graph, want []string) (Need, error) {
	const float = 8
	r := &run{most: sliceElements}
	if err := r.want(g, want); err != nil {
		return Need{}, err
	}
	var n Need
	tokens := g.Max(graph.T)
	for i := 0; i < len(g.Nodes); {
		end := r.partEnd(g.Nodes, i)
		var part Need
		for _, node := range g.Nodes[i:end] {
			switch node.Op {
			case ops.AttnScores:
				part.Attention += copiesOfScores * float * node.Attr.Int("heads") * tokens * tokens
			case ops.Matmul:
				rows, cols := extents(node.Operand("w").Type)
				part.Weights += copiesOfWeights * float * min(int64(rows)*int64(cols), sliceElements)
				n.Logits = max(n.Logits, copiesOfLogits*float*tokens*int64(rows)) // the widest of all products
			}
		}
		n.Attention, n.Weights = max(n.Attention, part.Attention), max(n.Weights, part.Weights)
		i = end
	}
	return n, nil
}
