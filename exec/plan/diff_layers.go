package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A subject is the weight, buffer, step or section that a difference is about. Places in layers are
// named with blk.N.
type subject struct {
	section, place string
	layer          int // noLayer outside layers
}

func subjectOf(section, name string) subject {
	s := subject{section, name, layerOf(name)}
	s.place, _ = s.fold(name).(string)
	return s
}

// layerOf returns the layer in a name: 3 for "blk.3.attn_q".
func layerOf(name string) int {
	rest, ok := strings.CutPrefix(name, "blk.")
	number, _, dot := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if !ok || !dot || err != nil || n < 0 {
		return noLayer
	}
	return n
}

// Prefixes that stand for any layer and for the layer before it.
const (
	anyLayer    = "blk.N."
	layerBefore = "blk.N-1."
)

func prefix(layer int) string { return fmt.Sprintf("blk.%d.", layer) }

// fold replaces the names of the subject's layer and of the layer before by blk.N and blk.N-1.
func (s *subject) fold(v any) any {
	text, ok := v.(string)
	if !ok || s.layer == noLayer {
		return v
	}
	return strings.NewReplacer(prefix(s.layer), anyLayer, prefix(s.layer-1), layerBefore).Replace(text)
}

// unfoldOne puts the layer's number back if the difference has one layer.
func (d *Difference) unfoldOne() {
	if len(d.Layers) != 1 {
		return
	}
	names := strings.NewReplacer(anyLayer, prefix(d.Layers[0]), layerBefore, prefix(d.Layers[0]-1))
	unfold := func(v any) any {
		if text, ok := v.(string); ok {
			return names.Replace(text)
		}
		return v
	}
	d.Place, d.From, d.To = names.Replace(d.Place), unfold(d.From), unfold(d.To)
}

// A differ collects differences.
type differ struct {
	list  []Difference
	index map[differenceKey]int // index of the last difference that is equal except for its layers
}

type differenceKey struct {
	section, place, what string
	from, to             any
}

// add adds a difference, or the layer to an equal difference of other layers.
func (d *differ) add(s subject, n Difference) {
	n.Section, n.Place, n.From, n.To = s.section, s.place, s.fold(n.From), s.fold(n.To)
	if s.layer != noLayer {
		key := differenceKey{n.Section, n.Place, n.What, n.From, n.To}
		if i, ok := d.index[key]; ok {
			o := &d.list[i]
			if at, twice := slices.BinarySearch(o.Layers, s.layer); !twice {
				o.Layers = slices.Insert(o.Layers, at, s.layer)
				return
			}
		}
		d.index[key] = len(d.list)
		n.Layers = []int{s.layer}
	}
	d.list = append(d.list, n)
}
