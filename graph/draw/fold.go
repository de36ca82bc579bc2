package draw

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// fold draws each kind of layer once. Two layers are of the same kind if their boxes have the same
// shapes and the same links; names, weight types and buffer addresses may differ. Consecutive
// layers of one kind become a cluster "×24", and so does a repeated pattern of layers, such as five
// with a window and one without.
func fold(p *picture) *picture {
	layers := byLayer(p)
	f := &folder{old: p, layers: layers, to: make([]int, len(p.boxes)), group: map[int]int{}, picture: &picture{name: p.name, title: p.title}}
	for i := range f.to {
		f.to[i] = -1
	}
	runs := runLengths(layerKeys(p, layers))
	for at := 0; at < len(runs); {
		period, times := bestPeriod(runs[at:])
		if times == 1 {
			f.groups = append(f.groups, f.draw(runs[at:at+1])...)
			at++
			continue
		}
		all := slices.Clone(runs[at : at+period])
		for i := range all { // the first repetition represents the layers of all
			for t := 1; t < times; t++ {
				all[i].layers = append(slices.Clone(all[i].layers), runs[at+t*period+i].layers...)
			}
		}
		first, last := runs[at].layers[0], runs[at+period*times-1].layers
		f.groups = append(f.groups, cluster{
			label: fmt.Sprintf("blocks %d–%d: the pattern below ×%d", first, last[len(last)-1], times),
			inner: f.draw(all),
		})
		at += period * times
	}
	f.rest()
	f.relink()
	return f.picture
}

// byLayer lists the boxes of each layer by number. Numbers can be arbitrary in plans made by hand.
func byLayer(p *picture) map[int][]int {
	layers := map[int][]int{}
	for i := range p.boxes {
		if l := p.boxes[i].layer; l != outside {
			layers[l] = append(layers[l], i)
		}
	}
	return layers
}

// layerKeys returns a text for each layer that is equal for equal layers. For links from outside
// the layer, only the label counts.
func layerKeys(p *picture, layers map[int][]int) map[int]string {
	place := make([]int, len(p.boxes)) // of a box in its layer
	texts := make(map[int]*strings.Builder, len(layers))
	for l, boxes := range layers {
		texts[l] = &strings.Builder{}
		for i, b := range boxes {
			place[b] = i
			fmt.Fprintf(texts[l], "%s\n", p.boxes[b].shape)
		}
	}
	for _, k := range p.links {
		from, to := &p.boxes[k.from], &p.boxes[k.to]
		if to.layer == outside || k.reuse {
			continue
		}
		source := "outside"
		if from.layer == to.layer {
			source = fmt.Sprint(place[k.from])
		}
		fmt.Fprintf(texts[to.layer], "%s → %d %q\n", source, place[k.to], k.labels)
	}
	keys := make(map[int]string, len(texts))
	for l, text := range texts {
		keys[l] = text.String()
	}
	return keys
}

// A run is a sequence of consecutive equal layers.
type run struct {
	key    string
	length int
	layers []int // of this run and, in a pattern, of its repetitions
}

func runLengths(keys map[int]string) []run {
	var runs []run
	for _, l := range slices.Sorted(maps.Keys(keys)) {
		key := keys[l]
		if n := len(runs); n > 0 && runs[n-1].key == key {
			runs[n-1].layers = append(runs[n-1].layers, l)
			runs[n-1].length++
		} else {
			runs = append(runs, run{key, 1, []int{l}})
		}
	}
	return runs
}

// bestPeriod returns the length, in runs, of the pattern at the start whose repetitions cover most
// runs, and the number of repetitions; 1, 1 if nothing repeats.
func bestPeriod(runs []run) (period, times int) {
	const longest = 8
	period, times = 1, 1
	for p := 2; p <= min(longest, len(runs)/2); p++ {
		n := 1
		for (n+1)*p <= len(runs) && slices.EqualFunc(runs[:p], runs[n*p:(n+1)*p], sameRun) {
			n++
		}
		if n > 1 && n*p > period*times {
			period, times = p, n
		}
	}
	return period, times
}

func sameRun(a, b run) bool { return a.key == b.key && a.length == b.length }

// A folder copies boxes into a new picture. to maps old boxes to new ones.
type folder struct {
	*picture
	old    *picture
	layers map[int][]int
	to     []int
	group  map[int]int // by layer, the number of the cluster that draws it
	drawn  int
}

// draw copies the first layer of each run and maps the boxes of the other layers to it.
func (f *folder) draw(runs []run) []cluster {
	var list []cluster
	for _, r := range runs {
		c := cluster{label: runLabel(r.layers, r.length)}
		for i, old := range f.layers[r.layers[0]] {
			b := f.old.boxes[old]
			b.weights = slices.Clone(b.weights)
			b.seconds, b.share = 0, 0 // merge adds the first layer's times with all others
			for _, l := range r.layers {
				f.to[f.layers[l][i]] = len(f.boxes)
				b.merge(&f.old.boxes[f.layers[l][i]])
			}
			c.boxes = append(c.boxes, len(f.boxes))
			f.boxes = append(f.boxes, b)
		}
		if len(c.boxes) > 0 {
			list = append(list, c)
		}
		f.drawn++
		for _, l := range r.layers {
			f.group[l] = f.drawn
		}
	}
	return list
}

// merge adds the differences of the same box in another layer.
func (b *box) merge(o *box) {
	for i := range b.weights {
		for _, t := range o.weights[i].types {
			if !slices.Contains(b.weights[i].types, t) {
				b.weights[i].types = append(slices.Clone(b.weights[i].types), t)
			}
		}
	}
	b.output = b.output || o.output
	b.seconds += o.seconds
	b.share += o.share
}

// runLabel names the layers that a cluster represents.
func runLabel(layers []int, length int) string {
	if len(layers) == 1 {
		return fmt.Sprintf("block %d", layers[0])
	}
	var parts []string
	for i := 0; i < len(layers); {
		j := i
		for j+1 < len(layers) && layers[j+1] == layers[j]+1 {
			j++
		}
		if j > i {
			parts = append(parts, fmt.Sprintf("%d–%d", layers[i], layers[j]))
		} else {
			parts = append(parts, fmt.Sprint(layers[i]))
		}
		i = j + 1
	}
	label := fmt.Sprintf("blocks %s, as block %d", strings.Join(parts, ", "), layers[0])
	if length > 1 {
		label = fmt.Sprintf("×%d   %s", length, label)
	}
	return label
}

// rest copies the boxes outside all layers, in execution order before and after the layers.
func (f *folder) rest() {
	var before, after cluster
	entered := false
	for i := range f.old.boxes {
		if f.to[i] >= 0 {
			entered = true
			continue
		}
		f.to[i] = len(f.boxes)
		c := &before
		if entered {
			c = &after
		}
		c.boxes = append(c.boxes, len(f.boxes))
		f.boxes = append(f.boxes, f.old.boxes[i])
	}
	f.groups = slices.Concat([]cluster{before}, f.groups, []cluster{after})
}

// linkOnce adds a link unless another layer of the cluster has the same.
func (f *folder) linkOnce(l link) {
	if !slices.ContainsFunc(f.links, func(o link) bool { return o.from == l.from && o.to == l.to }) {
		f.links = append(f.links, l)
	}
}

// relink copies the links. A link from a layer to the next one of the same cluster or pattern would
// point upwards like a loop, so a line in the box replaces it.
func (f *folder) relink() {
	feeds := make([][]string, len(f.boxes))
	for _, l := range f.old.links {
		from, to := f.old.boxes[l.from].layer, f.old.boxes[l.to].layer
		a, b := f.to[l.from], f.to[l.to]
		if from == to || from == outside || to == outside || a < b && f.group[from] != f.group[to] {
			f.linkOnce(link{a, b, l.labels, l.reuse})
			continue
		}
		if name := f.boxes[b].title; !l.reuse && to == from+1 && !slices.Contains(feeds[a], name) {
			feeds[a] = append(feeds[a], name)
		}
	}
	for i, names := range feeds {
		if len(names) > 0 {
			names[len(names)-1] += " of the next block"
		}
		f.boxes[i].feed(names)
	}
}
