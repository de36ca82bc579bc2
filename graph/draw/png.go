package draw

import (
	"encoding/json"
	"fmt"
	"image/color"
	"io"
	"math"
	"strings"

	"github.com/fogleman/gg"
	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
)

// The layout engine's own png output fills curves that should be lines and has no bold font. So
// this file draws the pixels, from the engine's list of pen operations
// (https://graphviz.org/docs/outputs/canon/#xdot, in its JSON form).

const (
	pngScale  = 2.0  // pixels per point
	pngMargin = 24.0 // points
	pngMost   = 80e6 // pixels; a larger picture is drawn smaller
)

// A layout is the JSON form of a graph with positions.
type layout struct {
	BB      string `json:"bb"` // left, bottom, right, top in points
	Objects []element
	Edges   []element
	element
}

// An element is a node, a cluster, a link or the graph itself.
type element struct {
	Box    string  `json:"bb"` // of a cluster only
	Draw   []penOp `json:"_draw_"`
	Head   []penOp `json:"_hdraw_"`
	Labels []penOp `json:"_ldraw_"`
}

// A penOp is one drawing operation.
type penOp struct {
	Op       string
	Color    string
	Points   [][]float64
	Rect     []float64
	Pt       []float64
	Align    string
	Width    float64
	Text     string
	Size     float64
	Face     string
	Fontchar int // 1 is bold
	Style    string
}

// writePNG draws a layout.
func writePNG(text []byte, w io.Writer) error {
	var l layout
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	var left, bottom, right, top float64
	if _, err := fmt.Sscanf(l.BB, "%g,%g,%g,%g", &left, &bottom, &right, &top); err != nil {
		return fmt.Errorf("bounding box is %q, expected four numbers", l.BB)
	}
	width, height := right-left+2*pngMargin, top-bottom+2*pngMargin
	scale := min(pngScale, math.Sqrt(pngMost/(width*height)))
	dc := gg.NewContext(int(math.Ceil(width*scale)), int(math.Ceil(height*scale)))
	dc.SetColor(color.White)
	dc.Clear()
	p, err := newPen(dc, scale, left-pngMargin, top+pngMargin)
	if err != nil {
		return err
	}
	p.run(l.Labels)
	for _, clusters := range []bool{true, false} {
		for _, o := range l.Objects {
			if (o.Box != "") == clusters {
				p.run(o.Draw, o.Head, o.Labels)
			}
		}
		if clusters { // links are above the frames and below the boxes
			for _, e := range l.Edges {
				p.run(e.Draw, e.Head, e.Labels)
			}
		}
	}
	return dc.EncodePNG(w)
}

// A pen draws operations on an image. In points y grows upwards, in pixels downwards.
type pen struct {
	*gg.Context
	scale, left, top float64
	regular, bold    *opentype.Font
	faces            map[faceKey]font.Face

	line, fill color.Color
	textScale  float64 // of a chart: pixels per point
	fontSize   float64
	isBold     bool
}

type faceKey struct {
	bold bool
	size float64
}

func newPen(dc *gg.Context, scale, left, top float64) (*pen, error) {
	regular, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return nil, err
	}
	bold, err := opentype.Parse(gobold.TTF)
	if err != nil {
		return nil, err
	}
	return &pen{Context: dc, scale: scale, left: left, top: top, regular: regular, bold: bold,
		faces: map[faceKey]font.Face{}, line: color.Black, fill: color.White}, nil
}

func (p *pen) at(pt []float64) (x, y float64) {
	if len(pt) < 2 {
		return 0, 0
	}
	return (pt[0] - p.left) * p.scale, (p.top - pt[1]) * p.scale
}

// run draws lists of operations. Each list starts with the default style.
func (p *pen) run(lists ...[]penOp) {
	for _, list := range lists {
		p.SetDash()
		p.SetLineWidth(1.1 * p.scale)
		for i := range list {
			p.do(&list[i])
		}
	}
}

func (p *pen) do(o *penOp) {
	switch o.Op {
	case "c":
		p.line = parseColor(o.Color)
	case "C":
		p.fill = parseColor(o.Color)
	case "S":
		p.style(o.Style)
	case "F":
		p.fontSize, p.isBold = o.Size, strings.HasSuffix(o.Face, "-Bold")
	case "t":
		p.isBold = o.Fontchar&1 != 0
	case "T":
		p.text(o)
	case "e", "E":
		if len(o.Rect) == 4 {
			x, y := p.at(o.Rect[:2])
			p.DrawEllipse(x, y, o.Rect[2]*p.scale, o.Rect[3]*p.scale)
			p.paint(o.Op == "E")
		}
	case "p", "P", "L":
		for _, pt := range o.Points {
			x, y := p.at(pt)
			p.LineTo(x, y)
		}
		if o.Op != "L" {
			p.ClosePath()
		}
		p.paint(o.Op == "P")
	case "b", "B":
		for i := range o.Points {
			if i == 0 {
				p.MoveTo(p.at(o.Points[0]))
			}
			if i%3 == 0 && i > 0 {
				x1, y1 := p.at(o.Points[i-2])
				x2, y2 := p.at(o.Points[i-1])
				x3, y3 := p.at(o.Points[i])
				p.CubicTo(x1, y1, x2, y2, x3, y3)
			}
		}
		p.paint(o.Op == "B")
	}
}

// paint fills the path if asked, and draws its line.
func (p *pen) paint(fill bool) {
	if fill {
		p.SetColor(p.fill)
		p.FillPreserve()
	}
	p.SetColor(p.line)
	p.Stroke()
}

func (p *pen) style(s string) {
	var width float64
	switch {
	case s == "dashed":
		p.SetDash(4*p.scale, 3*p.scale)
	case s == "solid":
		p.SetDash()
	default:
		if _, err := fmt.Sscanf(s, "setlinewidth(%g)", &width); err == nil {
			p.SetLineWidth(width * p.scale)
		}
	}
}

// text writes a line of text. The engine computed widths for Helvetica; text that is wider in our
// font is shrunk.
func (p *pen) text(o *penOp) {
	size := p.fontSize * p.scale
	face := p.face(size)
	if face == nil {
		return
	}
	p.SetFontFace(face)
	if w, _ := p.MeasureString(o.Text); w > o.Width*p.scale && o.Width > 0 {
		size = math.Floor(size*o.Width*p.scale/w*8) / 8
		if face = p.face(size); face == nil {
			return
		}
		p.SetFontFace(face)
	}
	anchor := map[string]float64{"l": 0, "c": 0.5, "r": 1}[o.Align]
	x, y := p.at(o.Pt)
	p.SetColor(p.line)
	p.DrawStringAnchored(o.Text, x, y, anchor, 0)
}

func (p *pen) face(size float64) font.Face {
	key := faceKey{p.isBold, size}
	if f, ok := p.faces[key]; ok {
		return f
	}
	f := p.regular
	if p.isBold {
		f = p.bold
	}
	face, err := opentype.NewFace(f, &opentype.FaceOptions{Size: size, DPI: 72})
	if err != nil {
		return nil
	}
	p.faces[key] = face
	return face
}

// parseColor reads #rrggbb or #rrggbbaa.
func parseColor(s string) color.Color {
	c := color.NRGBA{A: 0xff}
	if len(s) == 9 {
		fmt.Sscanf(s, "#%02x%02x%02x%02x", &c.R, &c.G, &c.B, &c.A)
	} else {
		fmt.Sscanf(s, "#%02x%02x%02x", &c.R, &c.G, &c.B)
	}
	return c
}
