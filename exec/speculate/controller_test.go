package speculate

import "testing"

// simulate runs a controller for a number of tokens on a machine whose pass of n tokens takes
// cost(n). right(i, n) returns how many of n draft tokens from token i on are accepted. simulate
// returns the time of all passes.
func simulate(c *draftController, tokens int, cost func(n int) float64, right func(i, drafts int) int) (seconds float64) {
	for i := 0; i < tokens; {
		drafts := c.next()
		r := right(i, drafts)
		s := cost(1 + drafts)
		c.record(drafts, r, s)
		seconds += s
		i += 1 + r
	}
	return seconds
}

// Costs of a pass of n tokens on a machine that is limited by memory, and on one that is limited by arithmetic.
func waits(n int) float64    { return 1 + float64(n)/50 }
func computes(n int) float64 { return float64(n) }

func all(_, drafts int) int { return drafts }
func none(int, int) int     { return 0 }

func TestDraftController(t *testing.T) {
	for _, c := range []struct {
		name  string
		cost  func(int) float64
		right func(i, drafts int) int
		most  float64 // of the time without drafts
	}{
		{"cheap and right", waits, all, 0.2},
		{"cheap and wrong", waits, none, 1.02},
		{"expensive and right", computes, all, 1.02},
		{"expensive and wrong", computes, none, 1.03},
		{"expensive and every other one right", computes, func(i, g int) int { return min(g, i%2) }, 1.05},
		{"cheap, and right from the middle on", waits, func(i, g int) int {
			if i < 500 {
				return 0
			}
			return g
		}, 0.68},
		{"cheap, and right up to the middle", waits, func(i, g int) int {
			if i < 500 {
				return g
			}
			return 0
		}, 0.64},
	} {
		control := newDraftController(7)
		const tokens = 1000
		got := simulate(&control, tokens, c.cost, c.right) / (tokens * c.cost(1))
		t.Logf("%s: %.3f", c.name, got)
		if got > c.most {
			t.Errorf("%s: %.3f of the time without drafts, expected at most %.3f", c.name, got, c.most)
		}
	}
}

// TestDraftControllerFindsTheBest checks the chosen draft length for machines with different costs, such as one on which
// four tokens cost as much as one, and for texts with different rates of accepted draft tokens.
func TestDraftControllerFindsTheBest(t *testing.T) {
	fours := func(n int) float64 { return float64((n + 3) / 4 * 4) } // a step of 1 to 4 costs 4
	for _, c := range []struct {
		name  string
		cost  func(int) float64
		every int // one draft token in this many is wrong
		least int // drafts
		most  int
	}{
		{"nothing costs anything", waits, 1000, 7, 7},
		{"blocks of four, all right", fours, 1000, 7, 7},
		{"blocks of four, one of five wrong", fours, 5, 3, 3},
		{"blocks of four, half right", fours, 2, 1, 3},
		{"all costs", computes, 1000, 0, 1},
		{"cheap, half right", waits, 2, 4, 7},
	} {
		control := newDraftController(7)
		asked := 0
		seen := map[int]int{}
		simulate(&control, 3000, c.cost, func(i, drafts int) int {
			right := 0
			for right < drafts {
				if asked++; asked%c.every == 0 {
					break
				}
				right++
			}
			if i > 1000 {
				seen[drafts]++
			}
			return right
		})
		inside, outside := 0, 0
		for drafts, n := range seen {
			if c.least <= drafts && drafts <= c.most {
				inside += n
			} else {
				outside += n
			}
		}
		if inside < 4*outside {
			t.Errorf("%s: steps by their number of drafts are %v, expected most to have %d to %d", c.name, seen, c.least, c.most)
		}
	}
}

// TestDraftControllerBegins checks that there is no draft before a pass without one was timed, and
// that one slow pass does not stop drafting.
func TestDraftControllerBegins(t *testing.T) {
	control := newDraftController(7)
	for range 3 {
		if n := control.next(); n != 0 {
			t.Fatalf("the first step has %d drafts, expected none", n)
		}
	}
	control.record(0, 0, 1)
	n := control.next()
	if n == 0 {
		t.Fatal("the second pass has no draft")
	}
	control.record(n, n, 1)
	for range 7 { // at most until each draft length was measured
		n = control.next()
		control.record(n, n, 1)
	}
	if n = control.next(); n != 7 {
		t.Errorf("%d drafts where they cost nothing and are right, expected 7", n)
	}
	control.record(7, 7, 1000)
	if n = control.next(); n != 7 {
		t.Errorf("%d drafts after a step that something else made slow, expected 7", n)
	}
}
