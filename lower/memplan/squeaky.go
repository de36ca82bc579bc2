package memplan

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// squeakyWheel searches placement orders for first fit, from the order in which the best layout stacks its
// items. It always asks for less memory than the best layout needs. The item at which that fails is the
// trouble, so it moves to some earlier place, and the rest is left alone ("Squeaky Wheel Optimization",
// Joslin and Clements, 1999): in front of an item that it lives beside, since passing others changes nothing,
// and rather a late one than an early one. On dissected rectangles this ends three times nearer to the bound
// than moving the items that reach the top, and each try is cheaper, since it stops at the failure and begins
// where the order has changed.
//
// Orders are the whole search space: place the items of any layout by first fit in order of their offsets, and
// each comes to lie at its old offset or lower, since all that it meets was placed below it and has only sunk.
// So one of the orders gives an optimal layout.
func squeakyWheel(p *problem, best layout, opts Options) layout {
	best, _ = search(p, best, opts)
	return best
}

// search is squeakyWheel, and returns what it took too.
func search(p *problem, best layout, opts Options) (layout, cost) {
	var spent cost
	if best.offsets == nil { // no other planner ran
		best = greedy(bySize, bestFit)(p, best, opts)
	}
	rng := rand.New(rand.NewPCG(opts.Seed, 0))
	pl := newPlacer(p)
	order := identity(len(p.items))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(best.offsets[a], best.offsets[b]) })
	var meets []int // places in the order of what the troublesome item lives beside
	keep := 0
	for ; spent.tries < opts.Evaluations && best.size > p.bound && pl.visits < maxVisits; spent.tries++ {
		placed := pl.place(order, keep, firstFit, best.size-1)
		if placed == len(order) {
			best = pl.layout()
			keep = slices.IndexFunc(order, func(i int) bool { return best.offsets[i]+p.items[i].size == best.size })
			continue
		}
		// It meets some item, since alone it would end no higher than the bound, which is below best.size.
		it := p.items[order[placed]]
		pl.visits += int64(placed)
		meets = meets[:0]
		for at, i := range order[:placed] {
			if o := &p.items[i]; o.first < it.last && it.first < o.last {
				meets = append(meets, at)
			}
		}
		keep = meets[max(rng.IntN(len(meets)), rng.IntN(len(meets)))]
		pl.visits += int64(placed - keep)
		advance(order, placed, keep)
	}
	spent.visits = pl.visits
	return best, spent
}

// A cost is what a search took.
type cost struct {
	tries  int   // orders tried
	visits int64 // looks at an item, and moves of one
}

// advance moves order[from] to the earlier place to, and what lies between back by one.
func advance(order []int, from, to int) {
	it := order[from]
	copy(order[to+1:from+1], order[to:from])
	order[to] = it
}
