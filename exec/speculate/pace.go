package speculate

// A pace says how many guesses are worth verifying in a step. That depends on the text, of which it
// counts the guesses that came true, and on the machine, of which it times the steps: more tokens
// in a step cost next to nothing where it waits for memory, and as much as steps of their own
// where it computes all the time. The time of a step never changes what it computes.
type pace struct {
	seconds []float64 // of a step, by its number of tokens; 0: not known

	right, tried float64 // guesses, of which old ones count less and less

	rest  int // steps without a guess that are left before guessing is tried again
	rests int // how many there were when it was last found to be of no use
}

const (
	// keep is what a guess counts when one more has been tried: text begins to repeat itself, and stops.
	keep = 0.85
	// rise is the most that a time may grow at once. What else the machine does only makes steps
	// longer, so that times are lowered at once and raised slowly.
	rise = 1.05
	// slope is what one token more in a step is taken to cost, as a share of a step of one, before
	// it was measured.
	slope = 1.0 / 8
	// hope is what a time that lies between measured ones is taken to be of it, so that it is measured.
	hope = 0.85
	// A wrong guess that costs as much as a step then costs 1.5 % of the time at most.
	shortestRest, longestRest = 4, 64
)

func newPace(most int) pace {
	// As much as three of four guesses right, so that there is a first one.
	return pace{seconds: make([]float64, 1+most+1), right: 1.5, tried: 2}
}

// next returns how many tokens to guess at most in the next step.
func (p *pace) next() int {
	if n := p.best(); n > 0 || p.seconds[1] == 0 {
		return n
	}
	if p.rest > 0 {
		p.rest--
		return 0
	}
	return 1
}

// best returns the number of guesses that gives most tokens in a time, if the next guesses are
// right as often as the last ones were, each only after those before it.
func (p *pace) best() int {
	if p.seconds[1] == 0 {
		return 0 // there is nothing to compare with
	}
	share := p.right / p.tried
	most, n := 1/p.seconds[1], 0
	tokens, all := 1.0, 1.0
	for guesses := 1; guesses < len(p.seconds)-1; guesses++ {
		all *= share
		tokens += all
		if speed := tokens / p.estimate(1+guesses); speed > most {
			most, n = speed, guesses
		}
	}
	return n
}

// estimate returns the time of a step of n tokens: what was measured, or a little less than what
// lies on the line through the measured numbers of tokens nearest to it.
func (p *pace) estimate(n int) float64 {
	if p.seconds[n] > 0 {
		return p.seconds[n]
	}
	below, above := n-1, n+1
	for p.seconds[below] == 0 {
		below--
	}
	for above < len(p.seconds) && p.seconds[above] == 0 {
		above++
	}
	var each float64 // token more
	switch low := p.seconds[below]; {
	case above < len(p.seconds):
		each = (p.seconds[above] - low) / float64(above-below)
	case below > 1:
		each = max(low-p.seconds[1], 0) / float64(below-1)
	default:
		each = slope * low
	}
	return hope * (p.seconds[below] + each*float64(n-below))
}

// note adds a step of so many guesses, of which the first ones were right.
func (p *pace) note(guesses, right int, seconds float64) {
	if t := &p.seconds[1+guesses]; *t == 0 {
		*t = seconds
	} else {
		*t = min(seconds, *t*rise)
	}
	for i := range min(right+1, guesses) { // those after a wrong one tell nothing
		p.right, p.tried = keep*p.right, keep*p.tried+1
		if i < right {
			p.right++
		}
	}
	switch {
	case guesses == 0:
	case p.best() > 0:
		p.rests = 0
	case right == 0:
		p.rests = min(max(2*p.rests, shortestRest), longestRest)
		p.rest = p.rests
	}
}
