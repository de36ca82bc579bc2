package draw

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"pesti/exec/plan"
)

// Memory draws the arena of a plan: steps to the right, addresses upwards, each buffer a rectangle
// from the step that writes it first to the one that uses it last. A line marks the lower bound of
// each program, what lives in its fullest step: no arena is smaller. Of equal layers in a row the
// first is drawn. It fails for a plan that does not verify and for a program or block that the
// plan does not have.
func Memory(p *plan.Plan, o Options) (*Chart, error) {
	if err := plan.Verify(p); err != nil {
		return nil, err
	}
	programs, err := chosenPrograms(p, o)
	if err != nil {
		return nil, err
	}
	c := &Chart{width: 720}
	y := c.heading(planTitle(p, o))
	y = c.memoryLegend(p, programs, y)
	for _, g := range programs {
		m := newMemoryView(p, g)
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
	leastStep   = 8.0
	widestPlot  = 2400.0 // from which steps get narrower
	chartText   = "#2B3442"
	chartFaint  = "#7A8699"
	chartGrid   = "#E3E7ED"
	scratchFill = "#EEF0F3"
	scratchLine = "#A3ACBA"
)

func (c *Chart) add(m mark) { c.marks = append(c.marks, m) }

// widen makes the chart at least as wide as x needs.
func (c *Chart) widen(x float64) { c.width = max(c.width, x+chartEdge) }

// heading writes the title and returns where the chart goes on.
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

// scratchKind is the kind of what a step needs for itself.
const scratchKind = "scratch"

// bufferKind returns the kind of the step that writes a buffer first.
func bufferKind(b *plan.Buffer, steps []*plan.Step) string {
	st := steps[b.First]
	if st.Scratch == b.ID {
		return scratchKind
	}
	return kindOf(st.Kernel)
}

func bufferLook(kind string) (fill, line string) {
	if kind == scratchKind {
		return scratchFill, scratchLine
	}
	k := look(kind)
	return k.fill, k.line
}

// memoryLegend explains the colours that occur.
func (c *Chart) memoryLegend(p *plan.Plan, programs []*plan.Program, y float64) float64 {
	used := map[string]bool{}
	for _, g := range programs {
		steps := stepsOf(g)
		for i := range g.Buffers {
			used[bufferKind(&g.Buffers[i], steps)] = true
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
	for i := range g.Waves {
		for j := range g.Waves[i].Steps {
			steps = append(steps, &g.Waves[i].Steps[j])
		}
	}
	return steps
}

// A memoryView is the arena of one program, of which some steps may not be shown.
type memoryView struct {
	p      *plan.Plan
	g      *plan.Program
	steps  []*plan.Step
	shown  []bool         // by step
	alike  map[int]string // by the step that stands before a gap, what the gap holds
	at     []float64      // where each step begins on the x axis, and where the last one ends
	top    int64          // bytes that the buffers reach up to
	bound  int64          // the most that lives in any step
	full   int            // the first step in which as much lives
	left   float64
	bottom float64
}

func newMemoryView(p *plan.Plan, g *plan.Program) *memoryView {
	m := &memoryView{p: p, g: g, steps: stepsOf(g), alike: map[int]string{}}
	m.shown = slices.Repeat([]bool{true}, len(m.steps))
	change := make([]int64, len(m.steps)+1) // in what lives, by step
	for i := range g.Buffers {
		b := &g.Buffers[i]
		m.top = max(m.top, b.Offset+b.Size)
		size := (b.Size + plan.ArenaAlign - 1) / plan.ArenaAlign * plan.ArenaAlign
		change[b.First] += size
		change[b.Last] -= size
	}
	live := int64(0)
	for i := range m.steps {
		if live += change[i]; live > m.bound {
			m.bound, m.full = live, i
		}
	}
	return m
}

// only shows the steps of one layer.
func (m *memoryView) only(layer int) error {
	last, found := outside, false
	for i, st := range m.steps {
		last = max(last, st.Layer)
		m.shown[i] = st.Layer == layer
		found = found || m.shown[i]
	}
	if !found {
		return fmt.Errorf("block %d does not exist, expected one from 0 to %d", layer, last)
	}
	return nil
}

// fold hides the steps of layers that are like the one before in all that the picture shows.
func (m *memoryView) fold() {
	keys, first := map[int]*strings.Builder{}, map[int]int{}
	for i, st := range m.steps {
		if st.Layer == outside {
			continue
		}
		if keys[st.Layer] == nil {
			keys[st.Layer], first[st.Layer] = &strings.Builder{}, i
		}
		fmt.Fprintf(keys[st.Layer], "%d %s\n", i-first[st.Layer], st.Kernel)
	}
	for i := range m.g.Buffers {
		b := &m.g.Buffers[i]
		if l := m.steps[b.First].Layer; l != outside {
			fmt.Fprintf(keys[l], "%s %d %d %d %d\n", inLayer(b.Name, l), b.Offset, b.Size, b.First-first[l], b.Last-first[l])
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
		m.shown[i] = !hidden[st.Layer]
	}
}

// gapSteps is how many steps wide the place of hidden ones is.
const gapSteps = 1.0

// layOut decides where each step stands.
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
			if i == 0 || j == len(m.steps) { // nothing beyond is drawn
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

// draw adds the program to the chart, from y on, and returns where it ends.
func (m *memoryView) draw(c *Chart, y float64) float64 {
	m.layOut()
	m.bottom = y + plotHead + plotHeight
	right := m.at[len(m.at)-1]
	c.widen(right + 8)
	title := fmt.Sprintf("program %s: %s · %s in %s · %s of arena, lower bound %s", m.g.Name, tokens(m.g),
		count(len(m.steps), "step"), count(len(m.g.Waves), "wave"), plan.HumanBytes(m.top), plan.HumanBytes(m.bound))
	c.add(caption{x: chartEdge, y: y + 22, text: clip(title), size: 12, color: chartText, bold: true})
	c.widen(chartEdge + room(title, 12))
	m.addresses(c, right)
	m.time(c)
	for i := range m.g.Buffers {
		m.buffer(c, &m.g.Buffers[i])
	}
	m.gaps(c)
	at := m.y(m.bound)
	c.add(stroke{m.left, at, right, at, reuseColor, 1.4, true})
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

// time draws the x axis: steps, the waves that they stand in, and over the bars the blocks.
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

// span writes the first of some texts that fits between two steps.
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

// buffer draws one buffer, unless all its steps are hidden.
func (m *memoryView) buffer(c *Chart, b *plan.Buffer) {
	if !slices.Contains(m.shown[b.First:b.Last], true) {
		return
	}
	kind := bufferKind(b, m.steps)
	fill, line := bufferLook(kind)
	r := bar{x: m.at[b.First], y: m.y(b.Offset + b.Size), fill: fill, line: line, title: fmt.Sprintf("%s b%d %s", m.g.Name, b.ID, bufferTitle(b))}
	r.w, r.h = m.at[b.Last]-r.x, m.y(b.Offset)-r.y
	c.add(r)
	name, color := inLayer(b.Name, m.steps[b.First].Layer), chartText
	if kind == scratchKind {
		name, color = scratchKind, chartFaint
	}
	const size, pad = 10.0, 6.0
	// A name does not stand in a gap.
	from := b.First + slices.Index(m.shown[b.First:b.Last], true)
	to := from
	for to < b.Last && m.shown[to] {
		to++
	}
	r.x, r.w = m.at[from], m.at[to]-m.at[from]
	t := caption{x: r.x + r.w/2, y: r.y + r.h/2 + 3.5, text: name, size: size, color: color, anchor: 0.5}
	switch need := room(name, size) + pad; {
	case need <= r.w && r.h >= size+1:
		if small := plan.HumanBytes(b.Size); r.h >= 2*size+8 && room(small, 9)+pad <= r.w {
			t.y -= 6
			c.add(caption{x: t.x, y: t.y + 12, text: small, size: 9, color: chartFaint, anchor: 0.5})
		}
	case need <= r.h && r.w >= size+2:
		t.x, t.y, t.upright = r.x+r.w/2+3.5, r.y+r.h/2, true
	default:
		return
	}
	c.add(t)
}

func bufferTitle(b *plan.Buffer) string {
	size := plan.HumanBytes(b.Size)
	if b.Each {
		size = fmt.Sprintf("%d × %s", b.Size/b.Stride, plan.HumanBytes(b.Stride))
	}
	return fmt.Sprintf("%s  %s  at %d  %s  steps [%d,%d)", b.Name, bufferShape(b), b.Offset, size, b.First, b.Last)
}

// gaps says what is hidden where.
func (m *memoryView) gaps(c *Chart) {
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
	}
}

// chosenPrograms returns the programs that the options ask for.
func chosenPrograms(p *plan.Plan, o Options) ([]*plan.Program, error) {
	var chosen []*plan.Program
	var names []string
	for i := range p.Programs {
		g := &p.Programs[i]
		names = append(names, g.Name)
		if g.Name == cmp.Or(o.Program, g.Name) && (o.Program != "" || o.All || i == 0) {
			chosen = append(chosen, g)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("program %q does not exist, expected one of %q", o.Program, names)
	}
	return chosen, nil
}
