// Package draw makes pictures of graphs and plans: as text in the dot language, and from that,
// in-process, as svg or png.
//
// It contains the picture's model (boxes, links, ranks), the folding of equal layers into one, the
// colors, and the rendering. It imports graph, exec/plan and two drawing libraries, and neither
// models nor the compiler.
//
// Graphs and plans are converted to a picture of boxes and links, on which folding and printing
// work. The same input and options give the same bytes.
package draw

import (
	"fmt"
	"slices"
	"strings"
)

// Options select the part of a graph or plan to draw. A repeated layer is drawn once unless All is
// set or Layer names one.
type Options struct {
	Title   string // first line of the picture; by default the model's name
	Stage   string // of a graph: which one it is, by default "graph"
	All     bool   // every node or step and every dependency, nothing folded
	Layer   int    // only this block, −1 for all
	Program string // program of a plan; by default the first, with All every program

	// Times holds the seconds of each step, by program and step ID. If set, boxes are colored by
	// time.
	Times map[string][]float64
}

// mostBoxes is the largest number of boxes in a picture without Options.All.
const mostBoxes = 400

// outside is the layer of a box that belongs to no block.
const outside = -1

// A picture holds boxes in execution order and the links between them.
type picture struct {
	name   string // of the dot text
	title  []string
	boxes  []box
	links  []link
	groups []cluster
}

// A box is a node of a graph or a step of a plan.
type box struct {
	id      string // derived from names, so that it is stable
	program string // of a plan
	layer   int
	device  int
	rank    int // the wave of a step; boxes of a graph have none, −1
	kind    string
	place   string // position of a step in the program
	title   string
	lines   []string
	weights []weight
	stores  []string // where a step's results are
	output  bool
	seconds float64 // time of the step, and its share of the program's time, if known
	share   float64
	shape   string // equal for equal boxes of different layers; without names and weight types
}

// A weight is a tensor that a box reads. Folded layers may differ in its type.
type weight struct {
	name  string
	types []string
	dims  string
}

func (w weight) String() string {
	return fmt.Sprintf("%s  %s %s", w.name, strings.Join(w.types, "/"), w.dims)
}

// A link orders box to after box from: because to reads a value of from, or, if reuse is set, only
// because to writes memory that from uses.
type link struct {
	from, to int
	labels   []string
	reuse    bool
}

// A cluster is a frame around boxes, or around other clusters.
type cluster struct {
	label string
	boxes []int
	inner []cluster
}

// link adds a link, or a label to an existing one.
func (p *picture) link(from, to int, label string, reuse bool) {
	i := slices.IndexFunc(p.links, func(l link) bool { return l.from == from && l.to == to })
	if i < 0 {
		i = len(p.links)
		p.links = append(p.links, link{from: from, to: to, reuse: reuse})
	}
	if l := &p.links[i]; label != "" {
		l.labels = append(l.labels, label)
	}
}

// label lists the values that a link carries, equal ones once with a count.
func (l *link) label() string {
	var lines []string
	for i, s := range l.labels {
		if slices.Contains(l.labels[:i], s) {
			continue
		}
		n := 0
		for _, t := range l.labels {
			if t == s {
				n++
			}
		}
		if n > 1 {
			s = fmt.Sprintf("%d × %s", n, s)
		}
		lines = append(lines, s)
	}
	return strings.Join(lines, "\n")
}

// finish reduces a picture of everything to the part that the options select.
func (p *picture) finish(o Options) (*picture, error) {
	p.moveSelections()
	switch {
	case o.Layer != outside:
		q := p.inline().only(o.Layer)
		if len(q.boxes) == 0 {
			return nil, fmt.Errorf("block %d does not exist, expected one from 0 to %d", o.Layer, p.lastLayer())
		}
		q.frame()
		return q, nil
	case o.All:
		p.frame()
		return p, nil
	}
	q := fold(p.inline())
	q.limit(mostBoxes)
	return q, nil
}

// limit drops boxes beyond the limit, and notes their number in the title.
func (p *picture) limit(most int) {
	if len(p.boxes) <= most {
		return
	}
	p.title = append(slices.Clip(p.title), fmt.Sprintf("%d of %d boxes are not drawn: draw one block, or all", len(p.boxes)-most, len(p.boxes)))
	p.boxes = p.boxes[:most]
	gone := func(i int) bool { return i >= most }
	p.links = slices.DeleteFunc(p.links, func(l link) bool { return gone(l.from) || gone(l.to) })
	var trim func([]cluster) []cluster
	trim = func(list []cluster) []cluster {
		for i := range list {
			list[i].boxes = slices.DeleteFunc(list[i].boxes, gone)
			list[i].inner = trim(list[i].inner)
		}
		return slices.DeleteFunc(list, func(c cluster) bool { return len(c.boxes)+len(c.inner) == 0 })
	}
	p.groups = trim(p.groups)
}

// inline replaces the boxes of inputs by a line in the boxes that read them, since links from
// positions to every attention would cross the whole picture.
func (p *picture) inline() *picture {
	q := &picture{name: p.name, title: p.title}
	to := make([]int, len(p.boxes))
	for i := range p.boxes {
		to[i] = len(q.boxes)
		if p.boxes[i].kind != inputKind {
			q.boxes = append(q.boxes, p.boxes[i])
		}
	}
	takes := make([][]string, len(q.boxes))
	for _, l := range p.links {
		if from := &p.boxes[l.from]; from.kind == inputKind {
			takes[to[l.to]] = append(takes[to[l.to]], from.title)
			continue
		}
		l.from, l.to = to[l.from], to[l.to]
		q.links = append(q.links, l)
	}
	for i, names := range takes {
		q.boxes[i].take(names)
	}
	return q
}

// moveSelections assigns a selection of rows to the block that reads the result. Its name comes
// from the selected value, which another block may compute.
func (p *picture) moveSelections() {
	taker := map[int]int{}
	for _, l := range p.links {
		if layer := p.boxes[l.to].layer; layer != outside {
			taker[l.from] = max(taker[l.from], layer)
		}
	}
	for i := range p.boxes {
		if b := &p.boxes[i]; b.kind == rowsKind && b.layer != outside {
			b.layer = max(b.layer, taker[i])
		}
	}
}

// take adds a line with the operands of the box that are not drawn.
func (b *box) take(names []string) {
	if len(names) > 0 {
		b.lines = append(slices.Clip(b.lines), "takes "+strings.Join(names, ", "))
	}
}

// feed adds a line with the readers of the box's results that are not drawn.
func (b *box) feed(names []string) {
	if len(names) > 0 {
		b.lines = append(slices.Clip(b.lines), "feeds "+strings.Join(names, ", "))
	}
}

func (p *picture) lastLayer() int {
	last := outside
	for i := range p.boxes {
		last = max(last, p.boxes[i].layer)
	}
	return last
}

// only keeps the boxes of one layer. Lines in the boxes list the values from and to other boxes.
func (p *picture) only(layer int) *picture {
	q := &picture{name: p.name, title: p.title}
	to := map[int]int{}
	for i := range p.boxes {
		if p.boxes[i].layer == layer {
			to[i] = len(q.boxes)
			q.boxes = append(q.boxes, p.boxes[i])
		}
	}
	takes, feeds := make([][]int, len(q.boxes)), make([][]int, len(q.boxes))
	for _, l := range p.links {
		from, starts := to[l.from]
		until, ends := to[l.to]
		switch {
		case starts && ends:
			l.from, l.to = from, until
			q.links = append(q.links, l)
		case l.reuse:
		case ends:
			takes[until] = append(takes[until], l.from)
		case starts:
			feeds[from] = append(feeds[from], l.to)
		}
	}
	for i := range q.boxes {
		q.boxes[i].take(p.namesByLayer(takes[i]))
		q.boxes[i].feed(p.namesByLayer(feeds[i]))
	}
	return q
}

// namesByLayer names boxes, grouped by layer: "q, attn_res of block 2".
func (p *picture) namesByLayer(boxes []int) []string {
	var names []string
	for i, n := range boxes {
		b := &p.boxes[n]
		name := b.title
		if last := i+1 == len(boxes) || p.boxes[boxes[i+1]].layer != b.layer; last && b.layer != outside {
			name += " of " + layerLabel(b.layer)
		}
		names = append(names, name)
	}
	return names
}

// frame puts a cluster around every layer, and around every program if there are several.
func (p *picture) frame() {
	programs := []string{}
	byProgram := map[string][]cluster{}
	for i := range p.boxes {
		b := &p.boxes[i]
		list, ok := byProgram[b.program]
		if !ok {
			programs = append(programs, b.program)
		}
		if label := layerLabel(b.layer); len(list) == 0 || list[len(list)-1].label != label {
			list = append(list, cluster{label: label})
		}
		c := &list[len(list)-1]
		c.boxes = append(c.boxes, i)
		byProgram[b.program] = list
	}
	for _, name := range programs {
		c := cluster{label: "program " + name, inner: byProgram[name]}
		if len(programs) == 1 {
			p.groups = c.inner
			return
		}
		p.groups = append(p.groups, c)
	}
}

// layerLabel is empty for boxes outside all blocks: a cluster without a label has no frame.
func layerLabel(layer int) string {
	if layer == outside {
		return ""
	}
	return fmt.Sprintf("block %d", layer)
}
