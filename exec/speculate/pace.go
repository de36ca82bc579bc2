package speculate

// A pace says how many tokens are worth guessing. Verifying guesses costs what the machine makes
// it cost: next to nothing where a step waits for memory, a step each where it computes all the
// time. So both ways are timed, and guessing rests for more and more steps while it is slower.
type pace struct {
	most   int
	length int // of the next draft
	rest   int // steps until the next draft
	rests  int // how long guessing rests when it is found to be slower once more

	plain, drafted speed
}

// How long guessing rests: at most so that a wrong guess which costs as much as a step costs 1.5 %
// of the time.
const (
	shortestRest = 4
	longestRest  = 64
)

// next returns how many tokens to guess at most in the next step.
func (p *pace) next() int {
	if p.plain.tokens == 0 {
		return 0 // there is nothing to compare with
	}
	if p.rest > 0 {
		p.rest--
		return 0
	}
	return p.length
}

// note adds a step of so many guesses, of which the first ones were right.
func (p *pace) note(guesses, right int, seconds float64) {
	if guesses == 0 {
		p.plain.add(1, seconds)
		return
	}
	p.drafted.add(right+1, seconds)
	if right == guesses {
		p.length = min(2*p.length, p.most)
	} else {
		p.length = max(right, 1)
	}
	if p.drafted.perToken() < p.plain.perToken() {
		p.rests = 0
		return
	}
	p.rests = min(max(2*p.rests, shortestRest), longestRest)
	p.rest = p.rests
}

// A speed is tokens and the seconds that they took, of which old ones count less and less: text
// begins to repeat itself, and stops.
type speed struct{ tokens, seconds float64 }

const keep = 0.8

func (s *speed) add(tokens int, seconds float64) {
	s.tokens = keep*s.tokens + float64(tokens)
	s.seconds = keep*s.seconds + seconds
}

func (s *speed) perToken() float64 { return s.seconds / s.tokens }
