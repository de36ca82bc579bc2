package draw

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"pesti/exec/plan"
)

// Memory draws the arenas of a plan, one for each device: the x axis has the steps, the y axis the
// addresses, and each buffer is a rectangle from its first step to its last. A line marks the lower
// bound of each program: the most bytes that are live in one wave. Of consecutive equal layers only
// the first is drawn. It is an error if the plan does not verify or does not have the program or
// block.
func Memory(p *plan.Plan, o Options) (*Chart, error) {
	if err := plan.Verify(p); err != nil {
		return nil, err
	}
	programs, err := chosenPrograms(p, o)
	if err != nil {
		return nil, err
	}
	var views []*memoryView
	for _, g := range programs {
		for d := range p.NumDevices() {
			views = append(views, newMemoryView(p, g, d))
		}
	}
	c := &Chart{width: 720}
	y := c.heading(planTitle(p, o))
	y = c.memoryLegend(views, y)
	for _, m := range views {
		switch {
		case o.Layer != outside:
			if err := m.only(o.Layer); err != nil {
				return nil, err
			}
		case !o.All:
			m.fold()
		}
		y = m.draw(c, y)
	}
	c.height = y
	return c, nil
}

// Distances in points.
const (
	chartEdge   = 24.0
	axisWidth   = 66.0 // left of the bars, for addresses
	plotHeight  = 600.0
	plotFoot    = 62.0 // under the bars, for steps and waves
	plotHead    = 58.0 // over the bars, for the program and its blocks
	stepWidth   = 44.0
	leastStep   = 24.0
	widestPlot  = 2400.0 // wider plots get narrower steps
	chartText   = "#2B3442"
	chartFaint  = "#7A8699"
	chartGrid   = "#E3E7ED"
	scratchFill = "#EEF0F3"
	scratchLine = "#A3ACBA"
)

func (c *Chart) add(m mark) { c.marks = append(c.marks, m) }

// widen makes the chart at least as wide as x needs.
func (c *Chart) widen(x float64) { c.width = max(c.width, x+chartEdge) }

// heading writes the title and returns the y coordinate below it.
func (c *Chart) heading(lines []string) (y float64) {
	y = chartEdge + 18
	for i, line := range lines {
		t := caption{x: chartEdge, y: y, text: clip(line), size: 11, color: chartFaint}
		if i == 0 {
			t.size, t.color, t.bold = 19, "#1F2733", true
		}
		c.add(t)
		c.widen(t.x + room(t.text, t.size))
		y += 18
	}
	return y
}

func bufferLook(kind string) (fill, line string) {
	if kind == scratchKind {
		return scratchFill, scratchLine
	}
	k := styleOf(kind)
	return k.fill, k.line
}

// memoryLegend explains the colors that occur.
func (c *Chart) memoryLegend(views []*memoryView, y float64) float64 {
	used := map[string]bool{}
	for _, m := range views {
		for _, held := range m.held {
			for _, h := range held {
				used[h.kind] = true
			}
		}
	}
	x := chartEdge
	text := func(s, color string) {
		c.add(caption{x: x, y: y, text: s, size: 10, color: color})
		x += room(s, 10) + 12
	}
	text("written by", chartFaint)
	x -= 4
	names := []string{}
	for _, k := range kinds {
		names = append(names, k.name)
	}
	for _, name := range append(names, scratchKind) {
		if !used[name] {
			continue
		}
		fill, line := bufferLook(name)
		c.add(bar{x: x, y: y - 9, w: 14, h: 11, fill: fill, line: line})
		x += 19
		text(name, chartText)
	}
	c.add(stroke{x, y - 3, x + 22, y - 3, reuseColor, 1.4, true})
	x += 27
	text("lower bound: no arena is smaller", reuseColor)
	c.widen(x)
	return y + 14
}

func stepsOf(g *plan.Program) []*plan.Step {
	var steps []*plan.Step
	for _, st := range g.Steps() {
		steps = append(steps, st)
	}
	return steps
}

// A memoryView is the arena of one program on one device, of which some steps may not be shown.
type memoryView struct {
	g      *plan.Program
	device int
	lane   string // label of the device, if there are several
	steps  []*plan.Step
	held   map[*plan.Buffer][]contents
	shown  []bool         // by step
	alike  map[int]string // by the step before a gap: a description of the hidden steps
	at     []float64      // x coordinates of the steps' begins, and of the last one's end
	top    int64          // highest end of a buffer, in bytes
	bound  int64          // most bytes live in any wave
	left   float64
	bottom float64
}

func newMemoryView(p *plan.Plan, g *plan.Program, device int) *memoryView {
	m := &memoryView{g: g, device: device, steps: stepsOf(g), held: contentsOf(p, g), alike: map[int]string{}}
	m.bound = g.PeakBytes(func(b *plan.Buffer) bool { return b.Device == device })
	if len(p.Devices) > 0 {
		m.lane = " on " + laneOf(device)
	}
	m.shown = make([]bool, len(m.steps))
	for i, st := range m.steps {
		m.shown[i] = st.Device == device
	}
	for _, b := range m.buffers() {
		m.top = max(m.top, b.Offset+b.Size)
	}
	return m
}

// buffers returns the arena buffers of the device.
func (m *memoryView) buffers() []*plan.Buffer {
	var own []*plan.Buffer
	for i := range m.g.Buffers {
		if b := &m.g.Buffers[i]; b.Device == m.device {
			own = append(own, b)
		}
	}
	return own
}

// only shows the steps of one layer.
func (m *memoryView) only(layer int) error {
	last, found := outside, false
	for i, st := range m.steps {
		last = max(last, st.Layer)
		m.shown[i] = m.shown[i] && st.Layer == layer
		found = found || st.Layer == layer
	}
	if !found {
		return fmt.Errorf("block %d does not exist, expected one from 0 to %d", layer, last)
	}
	return nil
}

// fold hides the steps of layers that would look the same as the layer before.
func (m *memoryView) fold() {
	keys, first := map[int]*strings.Builder{}, map[int]int{}
	for i, st := range m.steps {
		if st.Layer == outside {
			continue
		}
		if keys[st.Layer] == nil {
			keys[st.Layer], first[st.Layer] = &strings.Builder{}, i
		}
	}
	for _, b := range m.buffers() {
		if l := m.steps[b.First].Layer; l != outside {
			fmt.Fprintf(keys[l], "%d %d %d %d\n", b.Offset, b.Size, b.First-first[l], b.Last-first[l])
		}
		for _, h := range m.held[b] {
			if l := m.steps[h.first].Layer; l != outside {
				fmt.Fprintf(keys[l], "%d %s %s in %d %d\n", h.first-first[l], h.kind, h.name, b.Offset, b.Size)
			}
		}
	}
	texts := map[int]string{}
	for l, k := range keys {
		texts[l] = k.String()
	}
	hidden := map[int]bool{}
	for _, r := range runLengths(texts) {
		if r.length < 3 { // a gap is no shorter than a layer
			continue
		}
		for _, l := range r.layers[1:] {
			hidden[l] = true
		}
		for i, st := range m.steps {
			if st.Layer == r.layers[0] && i+1 < len(m.steps) && m.steps[i+1].Layer == r.layers[1] {
				m.alike[i] = fmt.Sprintf("blocks %d–%d alike", r.layers[1], r.layers[r.length-1])
			}
		}
	}
	for i, st := range m.steps {
		m.shown[i] = m.shown[i] && !hidden[st.Layer]
	}
}

// gapSteps is the width of a gap for hidden steps, in steps.
const gapSteps = 1.0

// layOut computes the x coordinate of each step.
func (m *memoryView) layOut() {
	columns := 0.0
	at := []float64{0}
	for i := 0; i < len(m.steps); {
		j := i
		for j < len(m.steps) && m.shown[j] == m.shown[i] {
			j++
		}
		width := float64(j - i)
		if !m.shown[i] {
			width = gapSteps
			if i == 0 || j == len(m.steps) { // no gap at the ends
				width = 0
			}
		}
		for k := i + 1; k <= j; k++ {
			at = append(at, columns+width*float64(k-i)/float64(j-i))
		}
		columns += width
		i = j
	}
	step := max(min(stepWidth, widestPlot/columns), leastStep)
	m.left = chartEdge + axisWidth
	for i := range at {
		at[i] = m.left + at[i]*step
	}
	m.at = at
}

// y returns the height of an address.
func (m *memoryView) y(address int64) float64 {
	return m.bottom - plotHeight*float64(address)/float64(max(m.top, 1))
}

// draw adds the program to the chart below y, and returns the y coordinate of its end.
func (m *memoryView) draw(c *Chart, y float64) float64 {
	m.layOut()
	m.bottom = y + plotHead + plotHeight
	right := m.at[len(m.at)-1]
	c.widen(right + 8)
	title := fmt.Sprintf("program %s%s: %s · %s in %s · %s of arena, lower bound %s", m.g.Name, m.lane, tokens(m.g),
		count(len(m.steps), "step"), count(len(m.g.Waves), "wave"), plan.HumanBytes(m.top), plan.HumanBytes(m.bound))
	c.add(caption{x: chartEdge, y: y + 22, text: clip(title), size: 12, color: chartText, bold: true})
	c.widen(chartEdge + room(title, 12))
	m.addresses(c, right)
	m.time(c)
	var parts []namable
	for _, b := range m.buffers() {
		parts = append(parts, m.buffer(c, b)...)
	}
	var taken []obstacle
	for _, n := range parts {
		taken = append(taken, obstacle{n.whole, barCost})
	}
	for _, gap := range m.gaps(c) {
		taken = append(taken, obstacle{gap, aboveCost})
	}
	at := m.y(m.bound)
	c.add(stroke{m.left, at, right, at, reuseColor, 1.4, true})
	taken = append(taken, obstacle{rect{m.left, at - 1, right, at + 1}, barCost})
	c.name(parts, taken, rect{m.left, m.bottom - plotHeight, right, m.bottom})
	return m.bottom + plotFoot
}

// addresses draws the y axis.
func (m *memoryView) addresses(c *Chart, right float64) {
	tick := int64(64)
	for tick < math.MaxInt64/2 && m.top/tick > 8 {
		tick *= 2
	}
	for a := int64(0); a <= m.top; a += tick {
		c.add(stroke{m.left, m.y(a), right, m.y(a), chartGrid, 0.8, false})
		c.add(caption{x: m.left - 6, y: m.y(a) + 3.5, text: strings.Replace(plan.HumanBytes(a), ".0 ", " ", 1), size: 10, color: chartFaint, anchor: 1})
		if a > math.MaxInt64-tick {
			break
		}
	}
	c.add(caption{x: chartEdge + 2, y: m.bottom - plotHeight/2, text: "address in the arena", size: 10, color: chartFaint, anchor: 0.5, upright: true})
}

// time draws the x axis with steps and waves, and the blocks above the bars.
func (m *memoryView) time(c *Chart) {
	id := 0
	for i := range m.g.Waves {
		first := id
		id += len(m.g.Waves[i].Steps)
		m.span(c, first, id, m.bottom+30, fmt.Sprintf("wave %d", i), fmt.Sprint(i))
		if first < id && m.shown[first] {
			c.add(stroke{m.at[first], m.bottom - plotHeight, m.at[first], m.bottom + 36, chartGrid, 0.8, false})
		}
	}
	for i := range m.steps {
		m.span(c, i, i+1, m.bottom+14, fmt.Sprint(i))
	}
	c.add(caption{x: m.left - 6, y: m.bottom + 14, text: "step", size: 10, color: chartFaint, anchor: 1})
	for i := 0; i < len(m.steps); {
		j, layer := i, m.steps[i].Layer
		for j < len(m.steps) && m.steps[j].Layer == layer {
			j++
		}
		if layer != outside && m.shown[i] {
			top := m.bottom - plotHeight
			c.add(stroke{m.at[i] + 1, top - 8, m.at[j] - 1, top - 8, "#C9D1DC", 3, false})
			m.span(c, i, j, top-14, layerLabel(layer), fmt.Sprint(layer))
		}
		i = j
	}
}

// span writes the first of the texts that fits between two steps.
func (m *memoryView) span(c *Chart, from, to int, y float64, texts ...string) {
	if from >= to || !m.shown[from] || !m.shown[to-1] {
		return
	}
	for _, text := range texts {
		if room(text, 10) <= m.at[to]-m.at[from] {
			c.add(caption{x: (m.at[from] + m.at[to]) / 2, y: y, text: text, size: 10, color: chartFaint, anchor: 0.5})
			return
		}
	}
}

// buffer draws one buffer, unless all its steps are hidden, with a rectangle for each value that it
// holds. It returns the rectangles, which still need names.
func (m *memoryView) buffer(c *Chart, b *plan.Buffer) (parts []namable) {
	if !slices.Contains(m.shown[b.First:b.Last], true) {
		return nil
	}
	for _, h := range m.merged(m.held[b]) {
		r := rect{m.at[h.first], m.y(b.Offset + b.Size), m.at[h.last], m.y(b.Offset)}
		fill, line := bufferLook(h.kind)
		c.add(bar{x: r.x0, y: r.y0, w: r.x1 - r.x0, h: r.y1 - r.y0, fill: fill, line: line, title: fmt.Sprintf("%s b%d %s", m.g.Name, b.ID, contentsTitle(b, h))})
		from := h.first
		for from < h.last && !m.shown[from] {
			from++
		}
		to := from
		for to < h.last && m.shown[to] { // names avoid gaps
			to++
		}
		if from == to {
			continue
		}
		n := namable{whole: r, seen: rect{m.at[from], r.y0, m.at[to], r.y1}, text: h.name, detail: plan.HumanBytes(b.Size), color: chartText}
		if h.kind == scratchKind {
			n.color = chartFaint
		}
		parts = append(parts, n)
	}
	return parts
}

// merged joins adjacent contents whose steps are all hidden, since they have no width or the width
// of a gap.
func (m *memoryView) merged(held []contents) []contents {
	var all []contents
	hidden := func(h contents) bool { return !slices.Contains(m.shown[h.first:h.last], true) }
	for _, h := range held {
		if n := len(all); n > 0 && hidden(h) && hidden(all[n-1]) {
			all[n-1].last = h.last
		} else {
			all = append(all, h)
		}
	}
	return slices.DeleteFunc(all, func(h contents) bool { return m.at[h.first] == m.at[h.last] })
}

func contentsTitle(b *plan.Buffer, h contents) string {
	size := plan.HumanBytes(b.Size)
	if b.Each {
		size = fmt.Sprintf("%d × %s", b.Size/b.Stride, plan.HumanBytes(b.Stride))
	}
	steps := fmt.Sprintf("steps [%d,%d)", h.first, h.last)
	if h.first != b.First || h.last != b.Last {
		steps += fmt.Sprintf(" of [%d,%d)", b.First, b.Last)
	}
	return fmt.Sprintf("%s  %s  at %d  %s  %s", h.value, bufferShape(b), b.Offset, size, steps)
}

// gaps draws a label in each gap, and returns the rectangles of the labels.
func (m *memoryView) gaps(c *Chart) (places []rect) {
	for _, i := range slices.Sorted(maps.Keys(m.alike)) {
		j := i + 1
		for j < len(m.steps) && !m.shown[j] {
			j++
		}
		x, w, top := m.at[i+1], m.at[j]-m.at[i+1], m.bottom-plotHeight
		c.add(bar{x: x, y: top, w: w, h: plotHeight, fill: "#FFFFFFD9"})
		c.add(stroke{x, top, x, m.bottom, chartFaint, 1, true})
		c.add(stroke{x + w, top, x + w, m.bottom, chartFaint, 1, true})
		c.add(caption{x: x + w/2 + 3.5, y: m.bottom - plotHeight/2, text: m.alike[i], size: 11, color: chartText, anchor: 0.5, upright: true})
		places = append(places, rect{x, top, x + w, m.bottom})
	}
	return places
}
