package memplan

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawBuffers draws up to n buffers with small numbers, so that ties, zero sizes and empty lifetimes are common.
func drawBuffers(t *rapid.T, n int) []Buffer {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Buffer {
		first := rapid.IntRange(0, 8).Draw(t, "first")
		return Buffer{
			Size:  rapid.Int64Range(0, 300).Draw(t, "size"),
			First: first,
			Last:  first + rapid.IntRange(0, 5).Draw(t, "span"),
			Align: rapid.SampledFrom([]int64{0, 1, 2, 16, 64, 256}).Draw(t, "align"),
		}
	}), 0, n).Draw(t, "buffers")
}

func roundUp(b Buffer) int64 {
	align := b.Align
	if align == 0 {
		align = 64
	}
	return (b.Size + align - 1) / align * align
}

// bound counts the live bytes of every step.
func bound(bufs []Buffer) int64 {
	var most int64
	for step := range 20 {
		var live int64
		for _, b := range bufs {
			if b.First <= step && step < b.Last {
				live += roundUp(b)
			}
		}
		most = max(most, live)
	}
	return most
}

// checkAll is Check by its definition: every buffer by itself, then every pair.
func checkAll(bufs []Buffer, offsets []int64, size int64) bool {
	for i, b := range bufs {
		align := b.Align
		if align == 0 {
			align = 64
		}
		used := b.Size > 0 && b.First < b.Last
		if offsets[i] < 0 || offsets[i]%align != 0 || used && offsets[i]+b.Size > size {
			return false
		}
		for j, c := range bufs[:i] {
			inTime := max(b.First, c.First) < min(b.Last, c.Last)
			inSpace := max(offsets[i], offsets[j]) < min(offsets[i]+b.Size, offsets[j]+c.Size)
			if inTime && inSpace {
				return false
			}
		}
	}
	return true
}

// optimum tries every order of stacking: each buffer goes on top of those below it that live at the same time.
func optimum(bufs []Buffer) int64 {
	var used []Buffer
	for _, b := range bufs {
		if b.Size > 0 && b.First < b.Last {
			used = append(used, b)
		}
	}
	best := int64(math.MaxInt64)
	ends := make([]int64, len(used))
	var stack func(done int, height int64)
	stack = func(done int, height int64) {
		if done == len(used) {
			best = min(best, height)
			return
		}
		for i := done; i < len(used); i++ {
			used[done], used[i] = used[i], used[done]
			b := used[done]
			var top int64
			for j, c := range used[:done] {
				if max(b.First, c.First) < min(b.Last, c.Last) {
					top = max(top, ends[j])
				}
			}
			align := max(b.Align, 1)
			if b.Align == 0 {
				align = 64
			}
			ends[done] = (top+align-1)/align*align + roundUp(b)
			stack(done+1, max(height, ends[done]))
			used[done], used[i] = used[i], used[done]
		}
	}
	stack(0, 0)
	return best
}

func TestBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bufs := drawBuffers(t, 40)
		opts := Options{Seed: rapid.Uint64().Draw(t, "seed"), Evaluations: rapid.IntRange(-1, 50).Draw(t, "evaluations")}
		plan, err := Best(bufs, opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(bufs, plan.Offsets, plan.Size); err != nil {
			t.Fatal(err)
		}
		if !checkAll(bufs, plan.Offsets, plan.Size) {
			t.Fatal("Check accepts a plan that the definition refuses")
		}
		if want := bound(bufs); plan.Bound != want || LowerBound(bufs) != want {
			t.Fatalf("bound %d, LowerBound %d, want %d", plan.Bound, LowerBound(bufs), want)
		}
		var unshared int64
		for i, b := range bufs {
			if b.First == b.Last || b.Size == 0 {
				if plan.Offsets[i] != 0 {
					t.Fatalf("buffer %d needs no memory but got offset %d", i, plan.Offsets[i])
				}
				continue
			}
			unshared += roundUp(b)
		}
		if plan.Unshared != unshared {
			t.Fatalf("unshared %d, want %d", plan.Unshared, unshared)
		}
		if plan.Size < plan.Bound {
			t.Fatalf("size %d is below the bound %d", plan.Size, plan.Bound)
		}
		again, _ := Best(bufs, opts)
		if !reflect.DeepEqual(plan, again) {
			t.Fatalf("two runs differ: %v and %v", plan, again)
		}
	})
}

// Every planner alone returns a valid plan, not only the winner.
func TestPlanners(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bufs := drawBuffers(t, 30)
		p, err := newProblem(bufs)
		if err != nil {
			t.Fatal(err)
		}
		start := planners[0].run(p, layout{}, Options{})
		for _, pl := range planners {
			l := pl.run(p, start, Options{Evaluations: 30})
			offsets := make([]int64, len(bufs))
			for i, it := range p.items {
				offsets[it.index] = l.offsets[i]
			}
			if !checkAll(bufs, offsets, l.size) {
				t.Fatalf("%s: %v of size %d is not a plan", pl.name, offsets, l.size)
			}
		}
	})
}

func TestBestOfFewBuffersIsOptimal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	above := 0
	for range 3000 {
		n := 1 + rng.IntN(6)
		bufs := make([]Buffer, n)
		for i := range bufs {
			first := rng.IntN(6)
			bufs[i] = Buffer{Size: rng.Int64N(20), First: first, Last: first + rng.IntN(4), Align: 1 << rng.IntN(4)}
		}
		plan, err := Best(bufs, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if want := optimum(bufs); want != math.MaxInt64 && plan.Size != want {
			t.Errorf("%v: %s gives %d, optimum %d", bufs, plan.Planner, plan.Size, want)
		}
		if plan.Size > plan.Bound {
			above++
		}
	}
	if above == 0 {
		t.Error("all optima are equal to the bound: the instances are too easy to show anything")
	}
}

func TestBestAtBoundaries(t *testing.T) {
	tests := []struct {
		name string
		bufs []Buffer
		want Plan
	}{
		{"none", nil, Plan{Offsets: []int64{}}},
		{"one", []Buffer{{Size: 1, First: 3, Last: 4}}, Plan{Offsets: []int64{0}, Size: 64, Bound: 64, Unshared: 64}},
		{"no size", []Buffer{{Size: 0, First: 0, Last: 9}}, Plan{Offsets: []int64{0}}},
		{"empty lifetime", []Buffer{{Size: 9, First: 5, Last: 5}}, Plan{Offsets: []int64{0}}},
		{"same lifetime", []Buffer{{100, 0, 2, 0}, {100, 0, 2, 0}, {100, 0, 2, 0}},
			Plan{Offsets: []int64{0, 128, 256}, Size: 384, Bound: 384, Unshared: 384}},
		{"one after the other", []Buffer{{100, 0, 2, 1}, {90, 2, 4, 1}}, Plan{Offsets: []int64{0, 0}, Size: 100, Bound: 100, Unshared: 190}},
		{"largest that fits", []Buffer{{1<<62 - 1, 0, 1, 1}, {1<<62 - 2, 0, 1, 1}},
			Plan{Offsets: []int64{0, 1<<62 - 1}, Size: 1<<63 - 3, Bound: 1<<63 - 3, Unshared: 1<<63 - 3}},
		{"latest step", []Buffer{{8, math.MaxInt - 1, math.MaxInt, 8}}, Plan{Offsets: []int64{0}, Size: 8, Bound: 8, Unshared: 8}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Best(tt.bufs, Options{})
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Planner = planners[0].name
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
			if err := Check(tt.bufs, got.Offsets, got.Size); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBestRefuses(t *testing.T) {
	tests := []struct {
		name string
		bufs []Buffer
		want string
	}{
		{"negative size", []Buffer{{Size: 1, Last: 1}, {Size: -1, Last: 1}}, "buffer 1: size -1, expected 0 or more"},
		{"negative step", []Buffer{{Size: 1, First: -1, Last: 1}}, "buffer 0: lifetime [-1, 1)"},
		{"backwards", []Buffer{{Size: 1, First: 3, Last: 2}}, "buffer 0: lifetime [3, 2)"},
		{"odd alignment", []Buffer{{Size: 1, Last: 1, Align: 48}}, "buffer 0: alignment 48"},
		{"negative alignment", []Buffer{{Size: 1, Last: 1, Align: math.MinInt64}}, "buffer 0: alignment -9223372036854775808"},
		{"rounding overflows", []Buffer{{Size: math.MaxInt64, Last: 1}}, "buffer 0: size 9223372036854775807"},
		{"rounding to a huge alignment overflows", []Buffer{{Size: 1<<62 + 1, Last: 1, Align: 1 << 62}}, "buffer 0: size"},
		{"sum overflows", []Buffer{{1 << 62, 0, 1, 1}, {1 << 62, 0, 1, 1}}, "buffer 1: size 4611686018427387904 brings the sum"},
		{"sum overflows twice", []Buffer{{1 << 61, 0, 1, 1}, {math.MaxInt64 - 63, 0, 1, 64}}, "buffer 1: size"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Best(tt.bufs, Options{}); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %v, want %s…", err, tt.want)
			}
		})
	}
}

// The search is worth its time: on dissected rectangles, whose optimum is the bound, it must come closer to the
// bound than the greedy planners, and the portfolio must stay within the measured excess.
func TestExcessOverBound(t *testing.T) {
	tests := []struct {
		name     string
		instance func(*rand.Rand) []Buffer
		most     float64 // mean excess over the bound as a share of it: the measured value rounded up
	}{
		{"scattered 60", func(r *rand.Rand) []Buffer { return scattered(r, 60) }, 0},
		{"scattered 200", func(r *rand.Rand) []Buffer { return scattered(r, 200) }, 0.0020},
		{"dissected 20", func(r *rand.Rand) []Buffer { return dissected(r, 20, 40, 1000) }, 0},
		{"dissected 60", func(r *rand.Rand) []Buffer { return dissected(r, 60, 60, 1000) }, 0.0030},
		{"dissected 150", func(r *rand.Rand) []Buffer { return dissected(r, 150, 100, 10000) }, 0.0030},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 3))
			const n = 20
			var all, greedy float64
			met := 0
			for range n {
				bufs := tt.instance(rng)
				g, err := Best(bufs, Options{Evaluations: -1})
				if err != nil {
					t.Fatal(err)
				}
				b, err := Best(bufs, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if err := Check(bufs, b.Offsets, b.Size); err != nil {
					t.Fatal(err)
				}
				if b.Size == b.Bound {
					met++
				}
				greedy += float64(g.Size-g.Bound) / float64(g.Bound) / n
				all += float64(b.Size-b.Bound) / float64(b.Bound) / n
			}
			t.Logf("mean excess over the bound: greedy %.4f, with search %.4f; bound met in %d of %d", greedy, all, met, n)
			if all > tt.most {
				t.Errorf("mean excess %.4f, want %.4f or less", all, tt.most)
			}
			if all > greedy || greedy > 0 && all == greedy {
				t.Errorf("the search gains nothing: %.4f after %.4f", all, greedy)
			}
		})
	}
}

// TestSearchStops checks that a search that never meets the bound stops at its budget of visits,
// plus at most one try, which places and moves each of n items past all others.
func TestSearchStops(t *testing.T) {
	const n = 2000
	for name, bufs := range map[string][]Buffer{
		"scattered": scattered(rand.New(rand.NewPCG(1, 2)), n),
		"dissected": dissected(rand.New(rand.NewPCG(1, 2)), n, n/2, 100000),
	} {
		p, err := newProblem(bufs)
		if err != nil {
			t.Fatal(err)
		}
		l, spent := search(p, layout{}, Options{Evaluations: evaluationsEach * n})
		if l.size == p.bound || spent.tries == evaluationsEach*n {
			t.Fatalf("%s: %d bytes for a bound of %d after %d tries: the instance is too easy", name, l.size, p.bound, spent.tries)
		}
		if spent.visits < maxVisits || spent.visits > maxVisits+n*n+4*n {
			t.Errorf("%s: %d visits, expected %d and at most one try more", name, spent.visits, int64(maxVisits))
		}
		t.Logf("%s: %d tries, %d visits, %.4f of the bound", name, spent.tries, spent.visits, float64(l.size)/float64(p.bound))
	}
}

// TestVisits compares visits with counts by hand: for items that are all live at once, each placed
// behind the earlier ones, and for items that never overlap in time, each placed before the earlier
// ones.
func TestVisits(t *testing.T) {
	const n = 10
	for _, c := range []struct {
		name     string
		lifetime func(i int) (first, last int)
		all      int64 // visits to place all: reads and moves
		last     int64 // visits to place the last item again: a read of all to find what to drop, reads and moves
	}{
		{"at once", func(int) (int, int) { return 0, 1 }, n * (n - 1) / 2, n + n - 1},
		{"never", func(i int) (int, int) { return i, i + 1 }, n * (n - 1), n + n - 1 + n - 1},
	} {
		bufs := make([]Buffer, n)
		for i := range bufs {
			bufs[i].Size = 64
			bufs[i].First, bufs[i].Last = c.lifetime(i)
		}
		p, err := newProblem(bufs)
		if err != nil {
			t.Fatal(err)
		}
		pl := newPlacer(p)
		pl.place(identity(n), 0, firstFit, math.MaxInt64)
		if pl.visits != c.all {
			t.Errorf("%s: %d visits for all, expected %d", c.name, pl.visits, c.all)
		}
		before := pl.visits
		pl.place(identity(n), n-1, firstFit, math.MaxInt64)
		if got := pl.visits - before; got != c.last {
			t.Errorf("%s: %d visits for the last, expected %d", c.name, got, c.last)
		}
	}
}

func TestTransformerMeetsBound(t *testing.T) {
	for _, tokens := range []int64{1, 31, 512} {
		plan, err := Best(transformer(24, tokens, 896, 128, 4864), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if plan.Size != plan.Bound {
			t.Errorf("%d tokens: %d bytes by %s, bound %d", tokens, plan.Size, plan.Planner, plan.Bound)
		}
	}
}

func BenchmarkBest(b *testing.B) {
	for _, bm := range []struct {
		name string
		bufs []Buffer
	}{
		{"transformer 400", transformer(40, 512, 896, 128, 4864)},
		{"scattered 400", scattered(rand.New(rand.NewPCG(1, 2)), 400)},
		{"dissected 400", dissected(rand.New(rand.NewPCG(1, 2)), 400, 200, 10000)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			for b.Loop() {
				plan, err := Best(bm.bufs, Options{})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(plan.Size)/float64(plan.Bound), "ratio")
			}
		})
	}
}
