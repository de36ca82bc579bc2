package draw

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/png"
	"math"
	"slices"
	"strings"
	"testing"

	"pesti/exec/plan"
	"pesti/exec/plan/plantest"
)

// A svgPicture is a chart parsed as XML.
type svgPicture struct {
	Width  float64 `xml:"width,attr"`
	Height float64 `xml:"height,attr"`
	Rects  []struct {
		X     float64 `xml:"x,attr"`
		Y     float64 `xml:"y,attr"`
		W     string  `xml:"width,attr"` // of the paper, in percent
		H     string  `xml:"height,attr"`
		Title string  `xml:"title"`
	} `xml:"rect"`
	Lines []struct {
		X1   float64 `xml:"x1,attr"`
		Y1   float64 `xml:"y1,attr"`
		X2   float64 `xml:"x2,attr"`
		Y2   float64 `xml:"y2,attr"`
		Dash string  `xml:"stroke-dasharray,attr"`
		Ink  string  `xml:"stroke,attr"`
	} `xml:"line"`
	Texts []struct {
		X      float64 `xml:"x,attr"`
		Y      float64 `xml:"y,attr"`
		Size   float64 `xml:"font-size,attr"`
		Anchor string  `xml:"text-anchor,attr"`
		Turned string  `xml:"transform,attr"`
		Text   string  `xml:",chardata"`
	} `xml:"text"`
}

func memorySVG(t *testing.T, p *plan.Plan, o Options) (svgPicture, string) {
	t.Helper()
	c, err := Memory(p, o)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := c.Render("svg", &b); err != nil {
		t.Fatal(err)
	}
	var s svgPicture
	if err := xml.Unmarshal(b.Bytes(), &s); err != nil {
		t.Fatalf("the chart is no XML: %v", err)
	}
	return s, b.String()
}

// A placed rectangle, read back from the picture.
type placedRect struct{ x0, x1, y0, y1 float64 }

// A part is the rectangle of one value of a buffer.
type part struct {
	placedRect
	buffer, value string // "decode b17", "blk.0.q"
}

// parts returns the rectangles of values.
func (s *svgPicture) parts() []part {
	var all []part
	for _, r := range s.Rects {
		if r.Title == "" {
			continue
		}
		var w, h float64
		fmt.Sscan(r.W, &w)
		fmt.Sscan(r.H, &h)
		words := strings.Fields(r.Title)
		all = append(all, part{placedRect{r.X, r.X + w, r.Y, r.Y + h}, words[0] + " " + words[1], words[2]})
	}
	return all
}

// rects returns the rectangles of buffers by program and number, each made of its parts, which
// follow each other without a gap.
func (s *svgPicture) rects(t *testing.T) map[string]placedRect {
	t.Helper()
	found := map[string]placedRect{}
	for _, p := range s.parts() {
		r, ok := found[p.buffer]
		switch {
		case !ok:
			r = p.placedRect
		case math.Abs(r.x1-p.x0) > 0.05 || r.y0 != p.y0 || r.y1 != p.y1:
			t.Errorf("%s: a part at %v does not follow that at %v", p.buffer, p.placedRect, r)
		}
		r.x1 = p.x1
		found[p.buffer] = r
	}
	return found
}

// TestMemoryPlacesBuffers reads the rectangles back: each buffer has one, at its offset and
// lifetime on the labeled axes, and no two overlap.
func TestMemoryPlacesBuffers(t *testing.T) {
	p := plantest.Plan(3)
	for _, g := range p.Programs {
		s, _ := memorySVG(t, p, Options{Program: g.Name, All: true, Layer: -1})
		got := s.rects(t)
		if len(got) != len(g.Buffers) {
			t.Errorf("%s: %d rectangles, want %d, the buffers", g.Name, len(got), len(g.Buffers))
		}
		steps := g.NumSteps()
		var top int64
		for _, b := range g.Buffers {
			top = max(top, b.Offset+b.Size)
		}
		// The scales follow from the first buffer and the axis; all buffers must agree with them.
		left, right := math.Inf(1), math.Inf(-1)
		low, high := math.Inf(-1), math.Inf(1)
		for _, r := range got {
			left, right, low, high = min(left, r.x0), max(right, r.x1), max(low, r.y1), min(high, r.y0)
		}
		near := func(a, b float64) bool { return math.Abs(a-b) < 0.05 }
		x := func(step int) float64 { return left + (right-left)*float64(step)/float64(steps) }
		y := func(address int64) float64 { return low + (high-low)*float64(address)/float64(top) }
		for _, b := range g.Buffers {
			r := got[fmt.Sprintf("%s b%d", g.Name, b.ID)]
			if !near(r.x0, x(b.First)) || !near(r.x1, x(b.Last)) || !near(r.y0, y(b.Offset+b.Size)) || !near(r.y1, y(b.Offset)) {
				t.Errorf("%s: b%d at %d of %d, steps [%d,%d) is drawn as %v", g.Name, b.ID, b.Offset, b.Size, b.First, b.Last, r)
			}
		}
		for a, r := range got {
			for b, q := range got {
				if a < b && r.x0 < q.x1-0.05 && q.x0 < r.x1-0.05 && r.y0 < q.y1-0.05 && q.y0 < r.y1-0.05 {
					t.Errorf("%s: %s and %s overlap: %v, %v", g.Name, a, b, r, q)
				}
			}
		}
		var bound int64
		for _, w := range g.Waves {
			var live int64
			for _, b := range g.Buffers {
				if slices.ContainsFunc(w.Steps, func(st plan.Step) bool { return b.First <= st.ID && st.ID < b.Last }) {
					live += (b.Size + 63) &^ 63
				}
			}
			bound = max(bound, live)
		}
		lines := 0
		for _, l := range s.Lines[1:] { // the first is the legend's
			if l.Ink == reuseColor {
				lines++
				if l.Y1 != l.Y2 || !near(l.Y1, y(bound)) || l.Dash == "" {
					t.Errorf("%s: the line of the bound is at %v, want %v, %d bytes", g.Name, l.Y1, y(bound), bound)
				}
			}
		}
		if lines != 1 {
			t.Errorf("%s: %d lines for the bound", g.Name, lines)
		}
		if !strings.Contains(fmt.Sprint(s.Texts), "lower bound "+plan.HumanBytes(bound)) {
			t.Errorf("%s: the bound of %d bytes is not told in words", g.Name, bound)
		}
	}
}

// Everything is inside the picture, folded or not.
func TestMemoryStaysOnPaper(t *testing.T) {
	for _, o := range []Options{{Layer: -1}, {All: true, Layer: -1}, {Layer: 2}, {Layer: -1, Program: "prefill"}} {
		s, _ := memorySVG(t, plantest.Plan(6), o)
		for id, r := range s.rects(t) {
			if r.x0 < 0 || r.y0 < 0 || r.x1 > s.Width || r.y1 > s.Height || r.x1-r.x0 < 1 {
				t.Errorf("%+v: %s is at %v, the paper is %v × %v", o, id, r, s.Width, s.Height)
			}
		}
		for _, c := range s.Texts {
			if c.X < 0 || c.Y < 0 || c.X > s.Width || c.Y > s.Height {
				t.Errorf("%+v: %q is at %v, %v", o, c.Text, c.X, c.Y)
			}
		}
	}
}

// alikeLayers returns a program of layers with equal placement, as in real models, except for the
// last one. One buffer is live in all of them.
func alikeLayers(n int) *plan.Program {
	g := &plan.Program{Name: "decode"}
	buffer := func(name string, offset int64, first, last int) {
		id := len(g.Buffers)
		g.Buffers = append(g.Buffers, plan.Buffer{ID: id, Name: name, Class: plan.Arena, Offset: offset, Size: 64, First: first, Last: last})
	}
	step := func(layer, writes int) {
		id := len(stepsOf(g))
		g.Waves = append(g.Waves, plan.Wave{Steps: []plan.Step{{ID: id, Layer: layer, Kernel: "norm", Scratch: -1, Args: []plan.Arg{{Role: "y", Buffer: writes}}}}})
	}
	step(-1, 2*n)
	for l := range n {
		offset := int64(0)
		if l == n-1 {
			offset = 64
		}
		at := 1 + 2*l
		buffer(fmt.Sprintf("blk.%d.q", l), offset, at, at+2)
		buffer(fmt.Sprintf("blk.%d.out", l), 128, at+1, at+2)
		step(l, 2*l)
		step(l, 2*l+1)
	}
	step(-1, 2*n)
	buffer("embd", 192, 0, len(g.Waves))
	return g
}

func TestMemoryFolds(t *testing.T) {
	for n, want := range map[int][]int{
		1:  {0},
		3:  {0, 1, 2}, // two equal layers are both drawn
		4:  {0, 3},
		30: {0, 29},
	} {
		g := alikeLayers(n)
		c, m := &Chart{}, newMemoryView(&plan.Plan{}, g, 0)
		m.fold()
		c.height = m.draw(c, 0)
		var b bytes.Buffer
		if err := c.Render("svg", &b); err != nil {
			t.Fatal(err)
		}
		var s svgPicture
		if err := xml.Unmarshal(b.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		got := s.rects(t)
		for l := range n {
			_, q := got[fmt.Sprintf("decode b%d", 2*l)]
			_, out := got[fmt.Sprintf("decode b%d", 2*l+1)]
			if shown := slices.Contains(want, l); q != shown || out != shown {
				t.Errorf("of %d layers, buffers of %d are drawn: %v, %v, want %v", n, l, q, out, shown)
			}
		}
		if whole := got[fmt.Sprintf("decode b%d", 2*n)]; math.Abs(whole.x1-whole.x0-m.at[len(m.at)-1]+m.left) > 0.05 {
			t.Errorf("of %d layers: what lives through all is drawn as %v", n, whole)
		}
		alike := fmt.Sprintf("blocks 1–%d alike", n-2)
		if told := strings.Contains(b.String(), alike); told != (n > 3) {
			t.Errorf("of %d layers: %q is told: %v", n, alike, told)
		}
	}
}

func TestMemoryOfOneLayer(t *testing.T) {
	p := plantest.Plan(9)
	g := &p.Programs[0]
	one, _ := memorySVG(t, p, Options{Layer: 7})
	got := one.rects(t)
	for _, b := range g.Buffers {
		touches := false
		for i, st := range stepsOf(g) {
			touches = touches || st.Layer == 7 && b.First <= i && i < b.Last
		}
		if _, drawn := got[fmt.Sprintf("%s b%d", g.Name, b.ID)]; drawn != touches {
			t.Errorf("b%d %s is drawn: %v, lives there: %v", b.ID, b.Name, drawn, touches)
		}
	}
}

// near returns how far a point is from a rectangle.
func (r placedRect) near(x, y float64) float64 {
	return math.Hypot(max(r.x0-x, 0, x-r.x1), max(r.y0-y, 0, y-r.y1))
}

// names returns the text with the name of each rectangle: a text inside it, or a text at the end of
// a line from its border. A name never runs over another name, nor out of its rectangle, nor into
// another one next to it.
func (s *svgPicture) names(t *testing.T, what string, all []part) {
	t.Helper()
	type placedText struct {
		placedRect
		text string
	}
	var texts []placedText
	for _, c := range s.Texts {
		w, h := room(c.Text, c.Size), 0.7*c.Size
		left := map[string]float64{"start": 0, "middle": 0.5, "end": 1}[c.Anchor]
		r := placedRect{c.X - left*w, c.X + (1-left)*w, c.Y - h, c.Y}
		if c.Turned != "" {
			r = placedRect{c.X - h, c.X, c.Y - (1-left)*w, c.Y + left*w}
		}
		texts = append(texts, placedText{r, c.Text})
	}
	over := func(a, b placedRect) bool {
		const touch = 0.6
		return a.x0 < b.x1-touch && b.x0 < a.x1-touch && a.y0 < b.y1-touch && b.y0 < a.y1-touch
	}
	named := map[int]bool{} // indices of texts that name a rectangle
	for _, p := range all {
		name := inLayer(p.value, layerOf(p.value))
		if strings.HasSuffix(name, ".scratch") {
			name = scratchKind
		}
		found := false
		for i, c := range texts {
			if c.text != name || named[i] {
				continue
			}
			inside := c.x0 >= p.x0 && c.x1 <= p.x1 && c.y0 >= p.y0 && c.y1 <= p.y1
			for _, l := range s.Lines {
				if !inside && l.Ink == chartFaint && l.Dash == "" && p.near(l.X1, l.Y1) < 0.05 && c.near(l.X2, l.Y2) < 3.05 {
					found = true
					for _, q := range all {
						if over(c.placedRect, q.placedRect) {
							t.Errorf("%s: %s of %s stands on %s of %s", what, c.text, p.buffer, q.value, q.buffer)
						}
					}
				}
			}
			if found = found || inside; found {
				named[i] = true
				break
			}
		}
		if !found {
			t.Errorf("%s: nothing names %s of %s at %v", what, p.value, p.buffer, p.placedRect)
		}
	}
	for i, a := range texts {
		for _, b := range texts[:i] {
			if over(a.placedRect, b.placedRect) {
				t.Errorf("%s: %q at %v runs over %q at %v", what, a.text, a.placedRect, b.text, b.placedRect)
			}
		}
	}
}

// Every rectangle has its value's name in the picture, even a flat or narrow one, and a buffer that
// is written in place has a rectangle for each value.
func TestMemoryNamesEverything(t *testing.T) {
	p := plantest.Plan(4)
	for _, o := range []Options{{Layer: -1}, {Layer: -1, Program: "prefill"}, {Layer: 1}, {Layer: -1, All: true}} {
		s, _ := memorySVG(t, p, o)
		all := s.parts()
		if o.All { // nothing is hidden, so every written value has a rectangle
			want := map[string]bool{}
			for i := range p.Programs {
				g := &p.Programs[i]
				for _, st := range stepsOf(g) {
					sig, _ := plan.LookupKernel(st.Kernel)
					for _, a := range st.Args {
						n := a.Buffer - len(p.Buffers)
						if a.Weight != "" || n < 0 || !sig.Operand(a.Role).Dir.Writes() {
							continue
						}
						value := st.Name
						if st.Kernel == "matmul_group" && g.Buffers[n].First == st.ID {
							value = g.Buffers[n].Name
						}
						want[fmt.Sprintf("%s b%d %s", g.Name, a.Buffer, value)] = true
					}
				}
			}
			for _, q := range all {
				delete(want, q.buffer+" "+q.value)
			}
			if len(want) > 0 {
				t.Errorf("values without a rectangle: %v", want)
			}
		}
		s.names(t, fmt.Sprintf("%+v", o), all)
	}
	// Rectangles of minimal height, many on top of each other.
	g := &plan.Program{Name: "decode"}
	for i := range 12 {
		g.Buffers = append(g.Buffers, plan.Buffer{ID: i, Name: fmt.Sprint("v", i), Class: plan.Arena, Offset: int64(i) * 64, Size: 64, First: i, Last: 14})
		g.Waves = append(g.Waves, plan.Wave{Steps: []plan.Step{{ID: i, Name: fmt.Sprint("v", i), Layer: -1, Kernel: "norm", Scratch: -1, Args: []plan.Arg{{Role: "y", Buffer: i}}}}})
	}
	for i := 12; i < 14; i++ {
		name, id := fmt.Sprint("v", i), i
		g.Buffers = append(g.Buffers, plan.Buffer{ID: id, Name: name, Class: plan.Arena, Offset: 1 << (i + 4), Size: 1 << (i + 4), First: i, Last: i + 1})
		g.Waves = append(g.Waves, plan.Wave{Steps: []plan.Step{{ID: i, Name: name, Layer: -1, Kernel: "norm", Scratch: -1, Args: []plan.Arg{{Role: "y", Buffer: id}}}}})
	}
	c, m := &Chart{}, newMemoryView(&plan.Plan{}, g, 0)
	c.height = m.draw(c, 0)
	var b bytes.Buffer
	if err := c.Render("svg", &b); err != nil {
		t.Fatal(err)
	}
	var s svgPicture
	if err := xml.Unmarshal(b.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	s.names(t, "flat", s.parts())
}

func TestMemoryErrors(t *testing.T) {
	p := plantest.Plan(2)
	for word, o := range map[string]Options{"block 2 does not exist": {Layer: 2}, `program "x" does not exist`: {Layer: -1, Program: "x"}} {
		if _, err := Memory(p, o); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%+v: %v, want %s", o, err, word)
		}
	}
	c, err := Memory(p, Options{Layer: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Render("dot", &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), `"svg"`) {
		t.Errorf("a chart as dot: %v", err)
	}
	p.Programs[0].Buffers[0].Offset = 1
	if _, err := Memory(p, Options{Layer: -1}); err == nil {
		t.Error("a plan that does not verify is drawn")
	}
}

// Rendering is deterministic in both formats, and a png has the size of the chart.
func TestMemoryRenders(t *testing.T) {
	for _, format := range []string{"svg", "png"} {
		var twice [2]bytes.Buffer
		for i := range twice {
			c, err := Memory(plantest.Plan(3), Options{Layer: -1, All: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Render(format, &twice[i]); err != nil {
				t.Fatal(err)
			}
			if i == 1 && !bytes.Equal(twice[0].Bytes(), twice[1].Bytes()) {
				t.Errorf("%s: two drawings differ", format)
			}
			if format == "png" {
				size, err := png.DecodeConfig(bytes.NewReader(twice[i].Bytes()))
				if err != nil || float64(size.Width) < c.width*1.5 || float64(size.Height) < c.height*1.5 {
					t.Errorf("the png is %+v for %v × %v, %v", size, c.width, c.height, err)
				}
			}
		}
	}
}

// Names come from files and may hold anything.
func TestMemoryEscapesNames(t *testing.T) {
	p := plantest.Plan(1)
	p.Model.Name = "<script>&\x00\"'"
	for i := range p.Programs {
		for j := range p.Programs[i].Buffers {
			p.Programs[i].Buffers[j].Name += "<b>&\x01"
		}
	}
	_, text := memorySVG(t, p, Options{Layer: -1})
	if strings.Contains(text, "<script") || strings.Contains(text, "<b>") {
		t.Error("a name is not escaped")
	}
}
