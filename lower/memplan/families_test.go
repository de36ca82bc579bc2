package memplan

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A family makes instances like one of the eleven, A to K, on which MiniMalloc was measured
// (Moffitt and Fernandez, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated
// Machine Learning", ASPLOS 2023): the same number of buffers, about the same share of the time ×
// capacity rectangle, and about the same quantiles of lifetimes and sizes. Each instance is cut out
// of a rectangle, so that a plan at the bound exists.
type family struct {
	name    string
	buffers int
	fill    float64 // share of the rectangle that buffers cover
	shorten float64 // share of the cuts that go across time
	picks   int     // the largest of this many random pieces is cut next; more picks leave fewer slivers
	even    bool    // pieces keep one shape, as in F, G and H
}

var families = []family{
	{"A", 154, 0.95, 0.35, 4, false},
	{"B", 170, 0.98, 0.45, 4, false},
	{"C", 203, 0.98, 0.50, 4, false},
	{"D", 213, 0.94, 0.30, 4, false},
	{"E", 215, 0.89, 0.60, 4, false},
	{"F", 296, 0.61, 0, 200, true},
	{"G", 308, 0.62, 0, 200, true},
	{"H", 316, 0.57, 0, 200, true},
	{"I", 374, 0.90, 0.55, 4, false},
	{"J", 409, 0.86, 0.40, 4, false},
	{"K", 454, 0.94, 0.60, 4, false},
}

// Extents of the rectangle: steps of time and bytes, which sizes divide into units of 1 KiB.
const (
	familySteps    = 1024
	familyCapacity = 1 << 20
	familyUnit     = 1 << 10
)

// instance cuts an instance of the family. Pieces are dropped until at most the share fill is
// covered, but no piece that is live at one chosen step, so that the bound stays the capacity.
func (f family) instance(rng *rand.Rand) []Buffer {
	pieces := []Buffer{{Size: familyCapacity, Last: familySteps, Align: familyUnit}}
	whole := int(float64(f.buffers) / f.fill)
	for len(pieces) < whole {
		i := largest(pieces, rng, f.picks)
		p := pieces[i]
		across := rng.Float64() < f.shorten
		if f.even { // a lifetime of a thirtieth of the time for a fifteenth of the memory
			across = 2*int64(p.Last-p.First)*familyCapacity > p.Size*familySteps
		}
		switch span, units := p.Last-p.First, p.Size/familyUnit; {
		case across && span > 1:
			cut := p.First + part(rng, span, f.even)
			pieces[i].Last = cut
			p.First = cut
		case !across && units > 1:
			low := int64(part(rng, int(units), f.even)) * familyUnit
			pieces[i].Size = low
			p.Size -= low
		default:
			continue
		}
		pieces = append(pieces, p)
	}
	rng.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
	moment := rng.IntN(familySteps)
	spare := len(pieces) - f.buffers
	return slices.DeleteFunc(pieces, func(p Buffer) bool {
		drop := spare > 0 && (moment < p.First || p.Last <= moment)
		if drop {
			spare--
		}
		return drop
	})
}

// part returns where to cut n units: anywhere, or near the middle.
func part(rng *rand.Rand, n int, even bool) int {
	if even && n >= 8 {
		return n/3 + rng.IntN(n/3)
	}
	return 1 + rng.IntN(n-1)
}

// largest returns the index of the piece with the most steps × bytes among some random picks.
func largest(pieces []Buffer, rng *rand.Rand, picks int) int {
	most := rng.IntN(len(pieces))
	area := func(p Buffer) int64 { return p.Size * int64(p.Last-p.First) }
	for range picks - 1 {
		if i := rng.IntN(len(pieces)); area(pieces[i]) > area(pieces[most]) {
			most = i
		}
	}
	return most
}

// TestFamilies checks that the portfolio's mean over the families is at most 1.1 of the bound.
func TestFamilies(t *testing.T) {
	mean := 0.0
	for _, f := range families {
		rng := rand.New(rand.NewPCG(11, uint64(f.buffers)))
		bufs := f.instance(rng)
		if len(bufs) != f.buffers {
			t.Fatalf("%s: %d buffers, expected %d", f.name, len(bufs), f.buffers)
		}
		start := time.Now()
		plan, err := Best(bufs, Options{})
		took := time.Since(start)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Bound != familyCapacity {
			t.Fatalf("%s: bound %d, expected the capacity %d", f.name, plan.Bound, familyCapacity)
		}
		if err := Check(bufs, plan.Offsets, plan.Size); err != nil {
			t.Fatal(err)
		}
		ratio := float64(plan.Size) / float64(plan.Bound)
		t.Logf("%s: %d buffers, %.3f of the bound in %v", f.name, f.buffers, ratio, took.Round(time.Millisecond))
		mean += ratio / float64(len(families))
	}
	t.Logf("mean %.3f of the bound", mean)
	if mean > 1.1 {
		t.Errorf("mean %.3f of the bound, expected at most 1.1", mean)
	}
}

// TestEachPlanner runs the checker on the plans of every single planner, for random and adversarial
// instances.
func TestEachPlanner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bufs := drawBuffers(t, 30)
		if rapid.Bool().Draw(t, "adversarial") {
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			f := family{buffers: 40, fill: 0.9, shorten: 0.5, picks: 2}
			bufs = f.instance(rng)
		}
		smallest := int64(0)
		for i, name := range Planners() {
			plan, err := Best(bufs, Options{Planner: name, Evaluations: 50})
			if err != nil {
				t.Fatal(err)
			}
			if err := Check(bufs, plan.Offsets, plan.Size); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if plan.Planner != name || plan.Size < plan.Bound {
				t.Fatalf("%s: planner %q, %d bytes for a bound of %d", name, plan.Planner, plan.Size, plan.Bound)
			}
			if greedy := i < len(Planners())-1; greedy && (i == 0 || plan.Size < smallest) {
				smallest = plan.Size
			}
		}
		all, err := Best(bufs, Options{Evaluations: 50})
		if err != nil {
			t.Fatal(err)
		}
		if all.Size > smallest {
			t.Fatalf("the portfolio needs %d bytes, one of its greedy planners %d", all.Size, smallest)
		}
	})
	if _, err := Best(nil, Options{Planner: "none"}); err == nil {
		t.Error("a planner that there is not: no error")
	}
}
