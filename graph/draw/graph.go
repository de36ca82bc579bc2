package draw

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"pesti/exec/plan"
	"pesti/graph"
)

// Graph returns the dot text of a graph, a box for each node, a link for each value that a node
// takes from another, labeled with its type. Weights are listed in the boxes that read them. A
// block that the graph does not have is an error.
func Graph(g *graph.Graph, o Options) (string, error) {
	title := graphTitle(g, o)
	pic := &picture{name: title[0] + ", " + cmp.Or(o.Stage, "graph"), title: title}
	at := make(map[*graph.Node]int, len(g.Nodes))
	for i, n := range g.Nodes {
		at[n] = i
		b := nodeBox(n)
		for _, v := range n.Out {
			b.output = b.output || g.IsOutput(v)
		}
		pic.boxes = append(pic.boxes, b)
		for _, v := range n.In {
			if v == nil || v.IsWeight() {
				continue
			}
			if from, ok := at[v.Def]; ok {
				pic.link(from, i, typeLabel(v.Type), false)
			}
		}
	}
	pic, err := pic.finish(o)
	if err != nil {
		return "", err
	}
	pic.lanes(laneOf)
	return pic.dot(), nil
}

// boundNames are words for what the symbols in shapes count: the thing, and what it belongs to.
var boundNames = map[graph.Sym][2]string{graph.T: {"token"}, graph.S: {"sequence"}, graph.R: {"row", " of logits"}, graph.C: {"position", " of context"}}

func graphTitle(g *graph.Graph, o Options) []string {
	var bounds []string
	for _, b := range g.Bounds {
		name := boundNames[b.Sym]
		bounds = append(bounds, fmt.Sprintf("%s ≤ %s%s", b.Sym, count(b.Max, name[0]), name[1]))
	}
	var bytes int64
	for _, w := range g.Weights {
		bytes += w.Type.Bytes(func(d graph.Dim) int64 { return d.N })
	}
	return []string{cmp.Or(o.Title, g.Name), fmt.Sprintf("%s · %s, %s · %s", count(len(g.Nodes), "node"), count(len(g.Weights), "weight"), plan.HumanBytes(bytes), strings.Join(bounds, ", "))}
}

func nodeBox(n *graph.Node) box {
	layer := layerOf(n.Name())
	b := box{
		id:    "node." + n.Name(),
		layer: layer, device: n.Device,
		rank:  -1,
		kind:  kindOfOp(n.Op),
		title: inLayer(n.Name(), layer),
		lines: []string{n.Op.Name},
	}
	var names, types []string
	for _, v := range n.Out {
		names = append(names, inLayer(v.Name, layer))
		types = append(types, v.Type.String())
	}
	if len(names) > 1 {
		b.title = strings.Join(names, ", ")
	}
	var attrs []string
	for _, name := range slices.Sorted(maps.Keys(n.Attr)) {
		if attr := name + " " + short(n.Attr[name]); !neutral[attr] {
			attrs = append(attrs, attr)
		}
	}
	b.lines = append(b.lines, wrap(attrs)...)
	b.shape = strings.Join([]string{n.Op.Name, strings.Join(types, " "), n.Attr.String(), laneOf(n.Device)}, " ")
	for i, v := range n.In {
		if v != nil && v.IsWeight() {
			b.weights = append(b.weights, weight{name: inLayer(v.Name, layer), types: []string{string(v.Type.DType)}, dims: shapeLabel(v.Type)})
			b.shape += fmt.Sprint(" ", i, shapeLabel(v.Type))
		}
	}
	return b
}

// layerOf returns the block in a value's name: 3 for blk.3.attn_q.
func layerOf(name string) int {
	rest, ok := strings.CutPrefix(name, "blk.")
	number, _, dot := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if !ok || !dot || err != nil || n < 0 {
		return outside
	}
	return n
}

func typeLabel(t graph.Type) string { return string(t.DType) + " " + strings.Trim(shapeLabel(t), "[]") }

func shapeLabel(t graph.Type) string {
	parts := make([]string, len(t.Shape))
	for i, d := range t.Shape {
		parts[i] = d.String()
	}
	return "[" + strings.Join(parts, "×") + "]"
}
