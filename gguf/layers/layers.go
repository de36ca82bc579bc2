// Package layers reads the layer in a name such as blk.3.attn_q.weight, and merges what several layers have
// in common.
//
// It imports nothing of this module.
package layers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Any is the beginning of a name that stands for the names of several layers.
const Any = "blk.N."

// Of returns the layer in a name: 3 for "blk.3.attn_q.weight". ok is false for a name outside of all layers.
func Of(name string) (layer int, ok bool) {
	rest, found := strings.CutPrefix(name, "blk.")
	number, _, dot := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if !found || !dot || err != nil || n < 0 || strconv.Itoa(n) != number {
		return 0, false
	}
	return n, true
}

// prefix returns the beginning of the names in a layer.
func prefix(layer int) string { return fmt.Sprintf("blk.%d.", layer) }

// A Merged is an element of a list, or several elements that are equal except for their layer.
type Merged[T any] struct {
	Elem   T     // with Any in its texts if there are several layers
	Layers []int // ascending; none for an element outside of all layers
}

// Merge merges the elements of a list that are equal except for their layer, in the order of their first
// occurrence. texts returns pointers to the texts of an element: the first is a name, which has the layer, and
// the others may have names of the same layer in them. Elements outside of all layers are not merged.
func Merge[T comparable](list []T, texts func(*T) []*string) []Merged[T] {
	var merged []Merged[T]
	index := map[T]int{} // by element with Any
	for _, elem := range list {
		layer, ok := Of(*texts(&elem)[0])
		if !ok {
			merged = append(merged, Merged[T]{Elem: elem})
			continue
		}
		folded := elem
		for _, text := range texts(&folded) {
			*text = strings.ReplaceAll(*text, prefix(layer), Any)
		}
		i, seen := index[folded]
		if !seen {
			index[folded] = len(merged)
			merged = append(merged, Merged[T]{elem, []int{layer}})
			continue
		}
		m := &merged[i]
		if at, twice := slices.BinarySearch(m.Layers, layer); !twice {
			m.Elem, m.Layers = folded, slices.Insert(m.Layers, at, layer)
		}
	}
	return merged
}
