package gorgoniaref

import (
	"pesti/graph"
	"pesti/ops"
)

// A Need is the memory that a Run takes at its peak, in bytes. It leaves out what grows with
// neither the square of the tokens nor the vocabulary, and is about what was measured: enough to
// refuse what cannot fit.
type Need struct {
	Attention int64 // scores of a block and what is made of them
	Logits    int64
	Weights   int64 // of the part that is computed
}

// Total returns the sum.
func (n *Need) Total() int64 { return n.Attention + n.Logits + n.Weights }

// How many times the bytes of each are resident at the peak, garbage that is not collected yet
// included: 9.5 to 10.5, 2 and 1 times as measured on graphs that are nearly all of one kind.
const (
	copiesOfScores  = 10
	copiesOfLogits  = 2
	copiesOfWeights = 1
)

// NeedOf returns what Run needs for g, for as many tokens as its bound says and the wanted values.
// It returns an error where there is no such value.
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
				rows, cols := extents(node.In[1].Type)
				part.Weights += copiesOfWeights * float * min(int64(rows)*int64(cols), sliceElements)
				n.Logits = max(n.Logits, copiesOfLogits*float*tokens*int64(rows)) // the widest of all products
			}
		}
		n.Attention, n.Weights = max(n.Attention, part.Attention), max(n.Weights, part.Weights)
		i = end
	}
	return n, nil
}
