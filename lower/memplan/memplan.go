// Package memplan gives buffers of known size and lifetime their offsets in one arena.
//
// This is dynamic storage allocation: rectangles (lifetime × size) may slide along the address axis
// only, and the total height has to be minimal. It is NP-hard (Garey and Johnson, SR2). Polynomial
// algorithms with a guarantee exist (Kierstead, "A polynomial time approximation algorithm for
// dynamic storage allocation", 1991: 6 times the bound; Gergov, "Algorithms for compile-time memory
// optimization", 1999: 3 times), but on the short-lived buffers of a neural network simple greedy
// rules come much closer (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
// Inference", 2020), and which rule is best differs from graph to graph. So Best runs a portfolio,
// cheapest first, and stops as soon as a plan meets the lower bound, which proves it optimal.
// Instances that no greedy rule solves, such as those of Moffitt and Fernandez ("MiniMalloc",
// 2023), go to a seeded search over placement orders.
//
// The package contains the planners, the lower bound and the checker, all on plain integers. It
// imports no other package of this module. The checker shares only the rules for a valid buffer
// with the planners.
package memplan

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// DefaultAlign is the alignment, in bytes, of a Buffer whose Align is 0: the size of a cache line
// and of an AVX-512 register.
const DefaultAlign = 64

// Buffer is a block of memory that is in use during the half-open range of steps [First, Last).
//
// Size is in bytes, and is rounded up to Align, a power of two (0 means DefaultAlign). A buffer of
// size 0 or with an empty lifetime needs no memory and gets offset 0.
type Buffer struct {
	Size        int64
	First, Last int
	Align       int64
}

func (b Buffer) alignment() int64 {
	if b.Align == 0 {
		return DefaultAlign
	}
	return b.Align
}

// Plan is an assignment of offsets. All sizes are in bytes.
type Plan struct {
	Offsets  []int64 // one per buffer, in the order given
	Size     int64   // of the arena
	Bound    int64   // LowerBound: no plan is smaller; Size == Bound proves Size optimal
	Unshared int64   // size of the arena if no two buffers shared memory
	Planner  string  // the planner that found it
}

// Options configure Best. The same buffers and options give the same plan on every machine.
type Options struct {
	Seed        uint64 // of the search for better placement orders
	Evaluations int    // most orders that the search tries: 0 means 200 for each buffer, a negative number none
	Planner     string // the only one of Planners to run, "" for the portfolio
}

// Limits of the search. They are counts and not times, so that the plan is the same on every
// machine.
const (
	evaluationsEach = 200 // orders tried for each buffer by default
	maxVisits       = 2e8 // reads and moves of one buffer, each 2 to 5 ns: a second at most
)

// Best returns the smallest plan that the portfolio finds; of equal plans, the plan of the planner
// listed first. It returns an error for a buffer with a negative size, a lifetime that is negative
// or ends before it starts, or an alignment that is not a power of two; for sizes whose sum does
// not fit in an int64; and for an unknown planner.
func Best(bufs []Buffer, opts Options) (Plan, error) {
	p, err := newProblem(bufs)
	if err != nil {
		return Plan{}, err
	}
	if opts.Evaluations == 0 {
		opts.Evaluations = evaluationsEach * len(p.items)
	}
	portfolio := planners
	if opts.Planner != "" {
		at := slices.Index(Planners(), opts.Planner)
		if at < 0 {
			return Plan{}, fmt.Errorf("planner is %q, expected one of %q", opts.Planner, Planners())
		}
		portfolio = planners[at : at+1]
	}
	var best layout
	plan := Plan{Bound: p.bound, Unshared: p.unshared}
	for i, pl := range portfolio {
		l := pl.run(p, best, opts)
		if i == 0 || l.size < best.size {
			best, plan.Planner = l, pl.name
		}
		if best.size == p.bound {
			break
		}
	}
	plan.Size = best.size
	plan.Offsets = make([]int64, len(bufs))
	for i, it := range p.items {
		plan.Offsets[it.index] = best.offsets[i]
	}
	return plan, nil
}

// item is a buffer that needs memory, with its size rounded up.
type item struct {
	index       int // of the buffer in the caller's list
	size, align int64
	first, last int
}

// problem is the planners' input: the buffers that need memory.
type problem struct {
	items    []item
	profile  []level
	bound    int64
	unshared int64
}

func newProblem(bufs []Buffer) (*problem, error) {
	p := &problem{items: make([]item, 0, len(bufs))}
	// Planners do not check their sums of sizes and alignment gaps for overflow. All of them fit in
	// an int64 if this sum does.
	var most uint64
	for i, b := range bufs {
		if err := valid(b); err != nil {
			return nil, fmt.Errorf("buffer %d: %w", i, err)
		}
		it := itemOf(i, b)
		if !it.needsMemory() {
			continue
		}
		most += uint64(it.size) + uint64(it.align)
		if it.size < 0 || most > math.MaxInt64 {
			return nil, fmt.Errorf("buffer %d: size %d brings the sum of all buffers over %d bytes", i, b.Size, int64(math.MaxInt64))
		}
		p.unshared += it.size
		p.items = append(p.items, it)
	}
	p.profile = profileOf(p.items)
	p.bound = peak(p.profile)
	return p, nil
}

// itemOf returns b with its size rounded up, or with a negative size if rounding overflows.
func itemOf(index int, b Buffer) item {
	align := b.alignment()
	return item{index: index, size: alignUp(b.Size, align), align: align, first: b.First, last: b.Last}
}

func (it item) needsMemory() bool { return it.size != 0 && it.first < it.last }

func valid(b Buffer) error {
	switch {
	case b.Size < 0:
		return fmt.Errorf("size %d, expected 0 or more bytes", b.Size)
	case b.First < 0 || b.Last < b.First:
		return fmt.Errorf("lifetime [%d, %d), expected 0 <= first <= last", b.First, b.Last)
	case b.Align < 0 || bits.OnesCount64(uint64(b.Align)) > 1:
		return fmt.Errorf("alignment %d, expected a power of two", b.Align)
	}
	return nil
}

// alignUp rounds n up to a multiple of align, a power of two.
func alignUp(n, align int64) int64 { return (n + align - 1) &^ (align - 1) }
