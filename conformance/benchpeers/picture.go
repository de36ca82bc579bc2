package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// Sizes of the picture in its own units, which are pixels at full size.
const (
	width      = 960
	margin     = 20
	panelTop   = 78 // of the upper row
	panelSize  = 190
	rowGap     = 108
	axisRoom   = 52 // left of a panel, for its numbers and their unit
	panelGap   = 24
	lowerTop   = panelTop + panelSize + rowGap
	captionTop = lowerTop + panelSize + 68
	lineHeight = 17
)

// style has the colors, for light and dark backgrounds.
const style = `
  text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .title { font-weight: 600; font-size: 14px }
  .small { fill: #59636e }
  .page { fill: #ffffff }
  .grid { stroke: #d1d9e0; stroke-width: 1 }
  .axis { stroke: #59636e; stroke-width: 1 }
  .ours { fill: #0969da } .theirs { fill: #bc7a2c }
  polyline { fill: none !important; stroke-width: 2 }
  .limit { fill: #59636e } polyline.limit { stroke: #59636e; stroke-width: 1; stroke-dasharray: 2 3 }
  polyline.ours { stroke: #0969da } polyline.theirs { stroke: #bc7a2c; stroke-dasharray: 5 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9198a1 }
    .page { fill: #0d1117 }
    .grid { stroke: #30363d }
    .axis { stroke: #9198a1 }
    .ours { fill: #4493f8 } .theirs { fill: #d9a05b }
    .limit { fill: #9198a1 } polyline.limit { stroke: #9198a1 }
    polyline.ours { stroke: #4493f8 } polyline.theirs { stroke: #d9a05b }
  }
`

// picture draws the report as SVG: bars of decoding and prefill, and below, for each model, how
// decoding slows down with the context length. It depends only on the report.
func picture(r *report) []byte {
	d := &drawing{}
	lines := circumstances(r)
	height := captionTop + lineHeight*len(lines)
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="Speed of pesti and llama.cpp">`, width, height, width, height)
	d.add(`<style>%s</style>`, style)
	d.add(`<rect class="page" width="%d" height="%d" rx="6"/>`, width, height)
	d.legend(r)
	for i, t := range []test{decodeTest, prefillTest} {
		d.bars(across(i, 2, panelTop), r, t)
	}
	for i := range r.Models {
		d.lines(across(i, len(r.Models), lowerTop), &r.Models[i])
	}
	for i, line := range lines {
		d.text(margin, captionTop+lineHeight*float64(i), "small", "start", strings.ReplaceAll(line, "**", ""))
	}
	d.add(`</svg>`)
	return []byte(d.b.String())
}

// A panel is the rectangle within axes.
type panel struct{ x, y, w, h float64 }

// across returns the i-th of n panels side by side.
func across(i, n int, top float64) panel {
	each := (width - 2*margin - panelGap*float64(n-1)) / float64(n)
	return panel{margin + float64(i)*(each+panelGap) + axisRoom, top, each - axisRoom, panelSize}
}

// A scale maps 0 to most onto a length, with ticks at round steps.
type scale struct{ step, most, length float64 }

// newScale returns a scale for values up to x. Its step is 1, 2 or 5 times a power of ten.
func newScale(x, length float64) scale {
	if !(x > 0) {
		x = 1
	}
	const ticks = 5
	power := math.Pow(10, math.Floor(math.Log10(x/ticks)))
	step := power
	for _, times := range []float64{1, 2, 5, 10} {
		if step = times * power; step*ticks >= x {
			break
		}
	}
	return scale{step, step * math.Ceil(x/step), length}
}

func (s scale) at(x float64) float64 { return x / s.most * s.length }

// ticks returns the values of the ticks.
func (s scale) ticks() []float64 {
	var list []float64
	for i := 0; float64(i)*s.step <= s.most*(1+1e-9); i++ {
		list = append(list, float64(i)*s.step)
	}
	return list
}

// A drawing is the SVG so far.
type drawing struct{ b strings.Builder }

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(&d.b, format+"\n", args...) }

// text writes a line of text whose baseline is at y.
func (d *drawing) text(x, y float64, class, anchor, text string) {
	var escaped strings.Builder
	xml.EscapeText(&escaped, []byte(text)) // writing to a Builder does not fail
	d.add(`<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, escaped.String())
}

func (d *drawing) legend(r *report) {
	d.text(margin, 30, "title", "start", "Tokens per second on the same files, measured alternately; more is better")
	x := float64(width - margin - 300)
	d.key(x, "ours", r.Ours.Name)
	if r.Theirs != nil {
		d.key(x+70, "theirs", r.Theirs.Name)
	}
	d.key(x+165, "limit", "memory roofline")
}

func (d *drawing) key(x float64, class, name string) {
	d.add(`<rect class="%s" x="%.1f" y="20" width="12" height="12"/>`, class, x)
	d.text(x+18, 30, "", "start", name)
}

// frame draws the title and the vertical axis of a panel, in tokens per second.
func (d *drawing) frame(p panel, title string, most float64) scale {
	s := newScale(most, p.h)
	d.text(p.x-axisRoom, p.y-14, "title", "start", title)
	for _, v := range s.ticks() {
		y := p.y + p.h - s.at(v)
		class := "grid"
		if v == 0 {
			class = "axis"
		}
		d.add(`<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, class, p.x, y, p.x+p.w, y)
		d.text(p.x-6, y+4, "small", "end", number(v))
	}
	middle := p.y + p.h/2
	d.add(`<g transform="rotate(-90 %.1f %.1f)">`, p.x-axisRoom+10, middle)
	d.text(p.x-axisRoom+10, middle, "small", "middle", "tok/s")
	d.add(`</g>`)
	return s
}

// bars draws one test on all models.
func (d *drawing) bars(p panel, r *report, t test) {
	most := 0.0
	for i := range r.Models {
		if m := r.Models[i].find(t); m != nil {
			most = max(most, m.Ours.median(), m.Theirs.median())
		}
	}
	s := d.frame(p, title(t), most)
	group := p.w / float64(len(r.Models))
	bar := min(group*0.3, 46)
	for i := range r.Models {
		middle := p.x + group*(float64(i)+0.5)
		name, quant, _ := strings.Cut(lookup(r.Models[i].File).label, " ")
		d.text(middle, p.y+p.h+18, "", "middle", name)
		d.text(middle, p.y+p.h+33, "small", "middle", quant)
		m := r.Models[i].find(t)
		if m == nil {
			continue
		}
		d.bar("ours", middle-bar-1, bar, p, s, m.Ours.median())
		d.bar("theirs", middle+1, bar, p, s, m.Theirs.median())
		if ratio := m.ratio(); ratio > 0 {
			d.text(middle, p.y+p.h+53, "title", "middle", fmt.Sprintf("%.2f×", ratio))
		}
	}
}

// bar draws one bar with its value above it. A value that was not measured has no bar.
func (d *drawing) bar(class string, x, width float64, p panel, s scale, value float64) {
	if value == 0 {
		return
	}
	h := s.at(value)
	d.add(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, class, x, p.y+p.h-h, width, h)
	d.text(x+width/2, p.y+p.h-h-4, "small", "middle", number(value))
}

// lines draws the speed of generation by context length.
func (d *drawing) lines(p panel, m *modelReport) {
	list := m.decoding()
	most, longest := 0.0, 0
	for i := range list {
		most = max(most, list[i].Ours.median(), list[i].Theirs.median(), list[i].allowed().ReadTS)
		longest = max(longest, list[i].NDepth)
	}
	s := d.frame(p, "Decode, "+lookup(m.File).label, most)
	along := newScale(float64(longest), p.w)
	along.most = max(float64(longest), 1) // the axis ends with the last measurement
	for i := range list {
		x := p.x + along.at(float64(list[i].NDepth))
		d.text(x, p.y+p.h+18, "small", "middle", fmt.Sprint(list[i].NDepth))
	}
	d.text(p.x+p.w/2, p.y+p.h+36, "small", "middle", "tokens in the context")
	for _, series := range []struct {
		class string
		of    func(*measured) float64
	}{
		{"limit", func(m *measured) float64 { return m.allowed().ReadTS }},
		{"theirs", func(m *measured) float64 { return m.Theirs.median() }},
		{"ours", func(m *measured) float64 { return m.Ours.median() }},
	} {
		var points []string
		for i := range list {
			v := series.of(&list[i])
			if v == 0 {
				continue
			}
			x, y := p.x+along.at(float64(list[i].NDepth)), p.y+p.h-s.at(v)
			points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
			d.add(`<circle class="%s" cx="%.1f" cy="%.1f" r="3.5"/>`, series.class, x, y)
		}
		d.add(`<polyline class="%s" points="%s"/>`, series.class, strings.Join(points, " "))
	}
}

// title describes a test in words.
func title(t test) string {
	if t.NGen > 0 {
		return fmt.Sprintf("Decode, %d tokens", t.NGen)
	}
	return fmt.Sprintf("Prefill, %d tokens", t.NPrompt)
}

// number formats a speed with as many digits as needed.
func number(x float64) string {
	if x >= 100 || x == math.Trunc(x) {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.1f", x)
}
