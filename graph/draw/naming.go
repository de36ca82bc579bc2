package draw

import "math"

// A rect is a rectangle by its corners.
type rect struct{ x0, y0, x1, y1 float64 }

func (r rect) overlaps(s rect) bool {
	return r.x0 < s.x1 && s.x0 < r.x1 && r.y0 < s.y1 && s.y0 < r.y1
}

// crossed reports whether a line runs through the inside of the rectangle.
func (r rect) crossed(l stroke) bool {
	from, to := 0.0, 1.0 // the part of the line that is inside
	clip := func(start, end, low, high float64) {
		if start == end {
			if start <= low || start >= high {
				to = 0
			}
			return
		}
		a, b := (low-start)/(end-start), (high-start)/(end-start)
		from, to = max(from, min(a, b)), min(to, max(a, b))
	}
	clip(l.x1, l.x2, r.x0, r.x1)
	clip(l.y1, l.y2, r.y0, r.y1)
	return to-from > 1e-6
}

// A namable is a rectangle of a chart with a name, and a detail that is shown if there is room.
type namable struct {
	whole, seen  rect // seen is the visible part
	text, detail string
	color        string
}

// nameSizes are the font sizes of names in rectangles, best first.
var nameSizes = []float64{10, 9, 8, 7}

// inside returns captions inside the rectangle, horizontal or vertical, if there is room.
func (n *namable) inside() (captions []caption, ok bool) {
	const pad = 6.0
	w, h := n.seen.x1-n.seen.x0, n.seen.y1-n.seen.y0
	t := caption{x: n.seen.x0 + w/2, y: n.seen.y0 + h/2, text: n.text, color: n.color, anchor: 0.5}
	for _, t.size = range nameSizes {
		long, high := room(n.text, t.size)+pad, t.size+1
		switch {
		case long <= w && high <= h:
			t.y += 0.35 * t.size
			if h >= 2*t.size+8 && room(n.detail, 9)+pad <= w {
				t.y -= 6
				captions = append(captions, caption{x: t.x, y: t.y + 12, text: n.detail, size: 9, color: chartFaint, anchor: 0.5})
			}
			return append(captions, t), true
		case long <= h && high+1 <= w:
			t.x += 0.35 * t.size
			t.upright = true
			return append(captions, t), true
		}
	}
	return nil, false
}

// An obstacle is a rectangle that names should not cover and lines should not cross, with the costs
// of doing so.
type obstacle struct {
	rect
	cost float64
}

// Costs, which are added to the square of a line's length in points.
const (
	lineCost  = 1e4 // a line crosses a rectangle
	barCost   = 1e6 // a name covers a rectangle
	aboveCost = 1e8 // a name covers another name, or is hidden
)

// name adds the names of rectangles to a chart. A name that does not fit in its rectangle is placed
// nearby in free space, with a line to it.
func (c *Chart) name(all []namable, taken []obstacle, plane rect) {
	var without []*namable
	for i := range all {
		n := &all[i]
		captions, ok := n.inside()
		if !ok {
			without = append(without, n)
		}
		for _, t := range captions {
			c.add(t)
		}
	}
	for _, n := range without {
		place, line, size := n.nextTo(taken, plane)
		taken = append(taken, obstacle{place, aboveCost})
		c.add(line)
		c.add(bar{x: place.x0, y: place.y0, w: place.x1 - place.x0, h: place.y1 - place.y0, fill: "#FFFFFFD9"})
		c.add(caption{x: (place.x0 + place.x1) / 2, y: place.y1 - 2, text: n.text, size: size, color: n.color, anchor: 0.5})
	}
}

// nextToSizes are the sizes of letters of names next to their rectangles, the best first.
var nextToSizes = []float64{8, 7}

// nextTo finds the best place for a name near its rectangle: the closest that covers nothing and
// whose line crosses nothing, if there is one. Letters are smaller where larger ones would cover
// something.
func (n *namable) nextTo(taken []obstacle, plane rect) (place rect, line stroke, size float64) {
	best := math.Inf(1)
	for _, s := range nextToSizes {
		if best >= barCost {
			if r, l, cost := n.nextToIn(s, taken, plane); cost < best {
				place, line, size, best = r, l, s, cost
			}
		}
	}
	return place, line, size
}

// nextToIn finds the best place for a name in letters of a size, and what it costs.
func (n *namable) nextToIn(size float64, taken []obstacle, plane rect) (place rect, line stroke, best float64) {
	const reach, grid, least = 159.0, 3.0, 5.0 // the reach in whole grids, so that lines can be level
	w, h := room(n.text, size), size+2
	middle := (n.seen.y0+n.seen.y1)/2 - h/2
	near := rect{n.seen.x0 - reach - w, middle - reach, n.seen.x1 + reach + w, middle + reach + h}
	var close []obstacle
	for _, o := range taken {
		if o.overlaps(near) {
			close = append(close, o)
		}
	}
	best = math.Inf(1)
	for y := near.y0; y+h <= near.y1; y += grid {
		for x := near.x0; x+w <= near.x1; x += grid {
			r := rect{x, y, x + w, y + h}
			l := n.lineTo(r)
			dx, dy := l.x2-l.x1, l.y2-l.y1
			cost := dx*dx + dy*dy
			if cost < least*least || r.x0 < plane.x0 || r.x1 > plane.x1 || r.y0 < plane.y0 || r.y1 > plane.y1 {
				continue
			}
			for _, o := range close {
				if cost >= best {
					break
				}
				if r.overlaps(o.rect) {
					cost += o.cost
				}
				if o.rect != n.whole && o.crossed(l) {
					cost += lineCost
				}
			}
			if cost < best {
				best, place, line = cost, r, l
			}
		}
	}
	return place, line, best
}

// lineTo returns the line from the rectangle to its name: from the middle of a side, or from above
// or below it.
func (n *namable) lineTo(r rect) stroke {
	inset := min(3, (n.seen.x1-n.seen.x0)/2)
	x, y := clamp((r.x0+r.x1)/2, n.seen.x0+inset, n.seen.x1-inset), (n.seen.y0+n.seen.y1)/2
	switch {
	case r.x0 >= n.seen.x1:
		x = n.seen.x1
	case r.x1 <= n.seen.x0:
		x = n.seen.x0
	case r.y1 <= y:
		y = n.seen.y0
	default:
		y = n.seen.y1
	}
	return stroke{x, y, clamp(x, r.x0, r.x1), clamp(y, r.y0, r.y1), chartFaint, 0.7, false}
}

func clamp(x, low, high float64) float64 { return min(max(x, low), high) }
