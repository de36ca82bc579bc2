package speculate

import "testing"

// simulate runs a pace for so many tokens on a machine whose step of n tokens takes cost(n), with
// guesses of which right(i, guess) are right from token i on. It returns the time of all steps.
func simulate(p *pace, tokens int, cost func(n int) float64, right func(i, guesses int) int) (seconds float64) {
	for i := 0; i < tokens; {
		guesses := p.next()
		r := right(i, guesses)
		s := cost(1 + guesses)
		p.note(guesses, r, s)
		seconds += s
		i += 1 + r
	}
	return seconds
}

// Costs of a step of n tokens: where the machine waits for memory, and where it computes.
func waits(n int) float64    { return 1 + float64(n)/50 }
func computes(n int) float64 { return float64(n) }

func all(_, guesses int) int { return guesses }
func none(int, int) int      { return 0 }

func TestPace(t *testing.T) {
	for _, c := range []struct {
		name  string
		cost  func(int) float64
		right func(i, guesses int) int
		most  float64 // of the time without guesses
	}{
		{"cheap and right", waits, all, 0.2},
		{"cheap and wrong", waits, none, 1.02},
		{"dear and right", computes, all, 1.02},
		{"dear and wrong", computes, none, 1.03},
		{"dear and every other one right", computes, func(i, g int) int { return min(g, i%2) }, 1.05},
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
		p := pace{most: 7, length: 1}
		const tokens = 1000
		got := simulate(&p, tokens, c.cost, c.right) / (tokens * c.cost(1))
		t.Logf("%s: %.3f", c.name, got)
		if got > c.most {
			t.Errorf("%s: %.3f of the time without guesses, expected at most %.3f", c.name, got, c.most)
		}
	}
}

// TestPaceBegins sees that nothing is guessed before it is known what a step takes without.
func TestPaceBegins(t *testing.T) {
	p := pace{most: 7, length: 1}
	for range 3 {
		if n := p.next(); n != 0 {
			t.Fatalf("the first step has %d guesses, expected none", n)
		}
	}
	p.note(0, 0, 1)
	for _, want := range []int{1, 2, 4, 7, 7} {
		n := p.next()
		if n != want {
			t.Fatalf("%d guesses, expected %d", n, want)
		}
		p.note(n, n, 1)
	}
	p.note(7, 3, 1)
	if n := p.next(); n != 3 {
		t.Errorf("%d guesses after one of which 3 were right, expected 3", n)
	}
}
