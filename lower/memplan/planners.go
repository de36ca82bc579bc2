package memplan

import (
	"cmp"
	"math"
	"slices"
)

// planners is the portfolio in the order in which Best tries it. Each gets the best layout so far,
// which is empty for the first.
var planners = []struct {
	name string
	run  func(p *problem, best layout, opts Options) layout
}{
	{"size-best-fit", greedy(bySize, bestFit)},
	{"size-first-fit", greedy(bySize, firstFit)},
	{"duration", greedy(byDuration, firstFit)},
	{"breadth", greedy(byBreadth, firstFit)},
	{"execution-order", greedy(byExecution, firstFit)},
	{"squeaky-wheel", squeakyWheel},
}

// Planners returns the names of the portfolio, in its order.
func Planners() []string {
	names := make([]string, len(planners))
	for i := range planners {
		names[i] = planners[i].name
	}
	return names
}

// layout holds the offset of each item of a problem; size is the end of the highest item.
type layout struct {
	offsets []int64
	size    int64
}

// greedy returns the planner that places the items one by one, each in the gap that fit chooses: in
// increasing order of keys, items with equal keys in the given order.
func greedy(keys func(*problem) []key, fit fit) func(*problem, layout, Options) layout {
	return func(p *problem, _ layout, _ Options) layout {
		k := keys(p)
		order := identity(len(p.items))
		slices.SortStableFunc(order, func(a, b int) int { return slices.Compare(k[a][:], k[b][:]) })
		pl := newPlacer(p)
		pl.place(order, 0, fit, math.MaxInt64) // always finds room
		return pl.layout()
	}
}

// key orders items for placement, lexicographically.
type key [3]int64

// bySize orders large buffers first, while gaps for them still exist; equal sizes by descending
// lifetime.
func bySize(p *problem) []key {
	return keysOf(p, func(it item) key { return key{-it.size, int64(it.first - it.last)} })
}

// byDuration orders long-lived buffers first, so that they are at the bottom and do not split the
// free space.
func byDuration(p *problem) []key {
	return keysOf(p, func(it item) key { return key{int64(it.first - it.last), -it.size} })
}

// byBreadth orders the buffers of the step with the most live bytes first, since that step sets the
// bound (Pisarchyk and Lee, section 5.2); within a step, large buffers first.
func byBreadth(p *problem) []key {
	return keysOf(p, func(it item) key {
		var widest level
		for _, l := range p.profile {
			if it.first <= l.step && l.step < it.last && l.live > widest.live {
				widest = l
			}
		}
		return key{-widest.live, int64(widest.step), -it.size}
	})
}

// byExecution orders buffers by first step, as a run-time allocator gets them.
func byExecution(p *problem) []key {
	return keysOf(p, func(it item) key { return key{int64(it.first), -it.size} })
}

func keysOf(p *problem, of func(item) key) []key {
	keys := make([]key, len(p.items))
	for i, it := range p.items {
		keys[i] = of(it)
	}
	return keys
}

func identity(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// fit chooses among the gaps that are large enough.
type fit int

const (
	firstFit fit = iota // the lowest gap
	bestFit             // the gap that leaves the least rest; of equal ones the lowest
)

// placer places items in a given order. It keeps earlier placements, since the search changes only
// a part of the order each time.
type placer struct {
	p       *problem
	offsets []int64 // of the placed items
	placed  []slot  // by offset
	visits  int64   // reads and moves of items
}

// slot is a placed item.
type slot struct {
	offset, end int64
	first, last int
	rank        int // its index in the order
}

func newPlacer(p *problem) *placer {
	return &placer{p: p, offsets: make([]int64, len(p.items)), placed: make([]slot, 0, len(p.items))}
}

// place puts each item, in the given order, in the gap that fit chooses between the placed items
// that are live at the same time. The first keep items keep their places of an earlier call, whose
// order had the same first items. place stops before the first item that would end above limit, and
// returns the number of placed items.
func (pl *placer) place(order []int, keep int, fit fit, limit int64) int {
	pl.visits += int64(len(pl.placed))
	pl.placed = slices.DeleteFunc(pl.placed, func(s slot) bool { return s.rank >= keep })
	for n := keep; n < len(order); n++ {
		it := &pl.p.items[order[n]]
		offset := pl.gap(it, fit)
		end := offset + it.size
		if end > limit {
			return n
		}
		pl.offsets[order[n]] = offset
		at, _ := slices.BinarySearchFunc(pl.placed, offset, func(s slot, o int64) int { return cmp.Compare(s.offset, o) })
		pl.visits += int64(len(pl.placed) - at)
		pl.placed = slices.Insert(pl.placed, at, slot{offset, end, it.first, it.last, n})
	}
	return len(order)
}

// layout returns the layout of all placed items.
func (pl *placer) layout() layout {
	pl.visits += int64(len(pl.placed))
	l := layout{offsets: slices.Clone(pl.offsets)}
	for _, s := range pl.placed {
		l.size = max(l.size, s.end)
	}
	return l
}

// gap returns the offset of the gap that fit chooses for an item.
func (pl *placer) gap(it *item, fit fit) int64 {
	var floor int64 // the highest end of the slots so far
	chosen, least := int64(-1), int64(math.MaxInt64)
	for i := range pl.placed {
		pl.visits++
		s := &pl.placed[i]
		if s.first >= it.last || it.first >= s.last {
			continue
		}
		start := alignUp(floor, it.align)
		if room := s.offset - start - it.size; room >= 0 && room < least {
			if fit == firstFit {
				return start
			}
			chosen, least = start, room
		}
		floor = max(floor, s.end)
	}
	if chosen >= 0 {
		return chosen
	}
	return alignUp(floor, it.align)
}
