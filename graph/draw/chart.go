package draw

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/fogleman/gg"
)

// A Chart is a picture of marks at fixed positions, in points with y down, so it needs no layout
// engine.
type Chart struct {
	width, height float64
	marks         []mark
}

// A mark is an element of a chart that every format can draw.
type mark interface {
	svg(b *bytes.Buffer)
	png(p *pen)
}

// chartFormats are the output formats of charts.
var chartFormats = map[string]func(*Chart, io.Writer) error{
	"svg": (*Chart).writeSVG,
	"png": (*Chart).writePNG,
}

// Render writes a chart as "svg" or "png".
func (c *Chart) Render(format string, w io.Writer) error {
	write, ok := chartFormats[format]
	if !ok {
		return fmt.Errorf("chart format is %q, expected one of %q", format, slices.Sorted(maps.Keys(chartFormats)))
	}
	return write(c, w)
}

func (c *Chart) writeSVG(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %[1]s %[2]s" font-family="%s,Arial,sans-serif">
<rect width="100%%" height="100%%" fill="#FFFFFF"/>
`, points(c.width), points(c.height), fontName)
	for _, m := range c.marks {
		m.svg(&b)
	}
	b.WriteString("</svg>\n")
	_, err := b.WriteTo(w)
	return err
}

func (c *Chart) writePNG(w io.Writer) error {
	scale := min(pngScale, math.Sqrt(pngMost/(c.width*c.height)))
	dc := gg.NewContext(int(math.Ceil(c.width*scale)), int(math.Ceil(c.height*scale)))
	dc.SetColor(color.White)
	dc.Clear()
	p, err := newPen(dc, 1, 0, 0)
	if err != nil {
		return err
	}
	p.Scale(scale, scale)
	p.textScale = scale
	for _, m := range c.marks {
		m.png(p)
	}
	return dc.EncodePNG(w)
}

// points prints a coordinate, to a hundredth.
func points(x float64) string { return strconv.FormatFloat(math.Round(x*100)/100, 'f', -1, 64) }

// A bar is a rectangle. Its title is its tooltip.
type bar struct {
	x, y, w, h float64
	fill, line string // "" for none
	title      string
}

func (r bar) svg(b *bytes.Buffer) {
	paint := func(color string) string {
		if color == "" {
			return "none"
		}
		return color
	}
	fmt.Fprintf(b, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s" stroke="%s" stroke-width="0.8"`,
		points(r.x), points(r.y), points(r.w), points(r.h), paint(r.fill), paint(r.line))
	if r.title == "" {
		b.WriteString("/>\n")
		return
	}
	fmt.Fprintf(b, "><title>%s</title></rect>\n", html.EscapeString(clean(r.title)))
}

func (r bar) png(p *pen) {
	p.DrawRectangle(r.x, r.y, r.w, r.h)
	if r.fill != "" {
		p.SetColor(parseColor(r.fill))
		p.FillPreserve()
	}
	p.SetDash()
	p.SetLineWidth(0.8 * p.textScale) // gg scales paths, not lines
	if r.line != "" {
		p.SetColor(parseColor(r.line))
		p.StrokePreserve()
	}
	p.ClearPath()
}

// A stroke is a straight line.
type stroke struct {
	x1, y1, x2, y2 float64
	color          string
	width          float64
	dashed         bool
}

func (l stroke) svg(b *bytes.Buffer) {
	fmt.Fprintf(b, `<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="%s" stroke-width="%s"`,
		points(l.x1), points(l.y1), points(l.x2), points(l.y2), l.color, points(l.width))
	if l.dashed {
		b.WriteString(` stroke-dasharray="6 4"`)
	}
	b.WriteString("/>\n")
}

func (l stroke) png(p *pen) {
	p.SetDash()
	if l.dashed {
		p.SetDash(6*p.textScale, 4*p.textScale)
	}
	p.SetLineWidth(l.width * p.textScale)
	p.SetColor(parseColor(l.color))
	p.DrawLine(l.x1, l.y1, l.x2, l.y2)
	p.Stroke()
}

// A caption is a line of text. anchor is the part of the text that is left of its point: 0 begins
// there, 0.5 is centered, 1 ends there. An upright caption runs upwards.
type caption struct {
	x, y    float64
	text    string
	size    float64
	color   string
	anchor  float64
	bold    bool
	upright bool
}

// anchors are the names that svg has for anchors.
var anchors = map[float64]string{0: "start", 0.5: "middle", 1: "end"}

func (t caption) svg(b *bytes.Buffer) {
	fmt.Fprintf(b, `<text x="%s" y="%s" font-size="%s" fill="%s" text-anchor="%s"`, points(t.x), points(t.y), points(t.size), t.color, anchors[t.anchor])
	if t.bold {
		b.WriteString(` font-weight="bold"`)
	}
	if t.upright {
		fmt.Fprintf(b, ` transform="rotate(-90 %s %s)"`, points(t.x), points(t.y))
	}
	fmt.Fprintf(b, ` pointer-events="none">%s</text>`+"\n", html.EscapeString(clean(t.text)))
}

func (t caption) png(p *pen) {
	p.isBold = t.bold
	face := p.face(t.size * p.textScale)
	if face == nil {
		return
	}
	p.SetFontFace(face)
	p.SetColor(parseColor(t.color))
	p.Push()
	defer p.Pop()
	if t.upright {
		p.RotateAbout(-math.Pi/2, t.x, t.y)
	}
	// Fonts are loaded at their size in pixels, so undo the plane's scale around the point.
	p.ScaleAbout(1/p.textScale, 1/p.textScale, t.x, t.y)
	p.DrawStringAnchored(clean(t.text), t.x, t.y, t.anchor, 0)
}

// room estimates the width of a text in Helvetica. It overestimates rather than underestimates.
func room(text string, size float64) float64 {
	return 0.56 * size * float64(utf8.RuneCountInString(text))
}
