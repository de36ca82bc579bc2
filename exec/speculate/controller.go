package speculate

// A draftController chooses the draft length: how many draft tokens the next forward pass verifies. That
// depends on the text, whose share of accepted draft tokens it tracks, and on the machine, whose
// forward passes it times: further tokens cost almost nothing where a pass waits for memory, and as much as
// passes of their own where it is bound by arithmetic. Times never change what is computed.
type draftController struct {
	seconds []float64 // of a forward pass, by its number of tokens; 0: not measured

	accepted, tried float64 // draft tokens, with weights that decay with age

	pause     int // passes without a draft that are left before drafting is tried again
	lastPause int // length of the last pause, 0 where drafting was of use since
}

const (
	// decay multiplies the weight of a draft token each time that another one is verified, since text
	// begins to repeat itself, and stops.
	decay = 0.85
	// maxGrowth is the most that a measured time grows at once. Other load on the machine only makes
	// passes longer, so that times are lowered at once and raised slowly.
	maxGrowth = 1.05
	// marginalCost is the assumed cost of one more token in a pass, as a share of a pass of one token,
	// until it was measured.
	marginalCost = 1.0 / 8
	// optimism scales interpolated times below the estimate, so that untried draft lengths get tried.
	optimism = 0.85
	// A wrong draft token that costs as much as a pass then costs at most 1.5 % of the time.
	minPause, maxPause = 4, 64
)

func newDraftController(maxDraft int) draftController {
	// It starts as if three of four draft tokens had been accepted, so that there is a first draft.
	return draftController{seconds: make([]float64, 1+maxDraft+1), accepted: 1.5, tried: 2}
}

// next returns the draft length of the next forward pass.
func (c *draftController) next() int {
	if n := c.best(); n > 0 || c.seconds[1] == 0 {
		return n
	}
	if c.pause > 0 {
		c.pause--
		return 0
	}
	return 1
}

// best returns the draft length that yields most tokens per second, if draft tokens are accepted at the
// tracked rate, each only after those before it.
func (c *draftController) best() int {
	if c.seconds[1] == 0 {
		return 0 // there is nothing to compare with
	}
	rate := c.accepted / c.tried
	speed, length := 1/c.seconds[1], 0
	tokens, all := 1.0, 1.0
	for n := 1; n < len(c.seconds)-1; n++ {
		all *= rate
		tokens += all
		if s := tokens / c.estimate(1+n); s > speed {
			speed, length = s, n
		}
	}
	return length
}

// estimate returns the time of a pass of n tokens: the measured one, or optimism times the line through
// the nearest measured numbers of tokens.
func (c *draftController) estimate(n int) float64 {
	if c.seconds[n] > 0 {
		return c.seconds[n]
	}
	below, above := n-1, n+1
	for c.seconds[below] == 0 {
		below--
	}
	for above < len(c.seconds) && c.seconds[above] == 0 {
		above++
	}
	var perToken float64
	switch low := c.seconds[below]; {
	case above < len(c.seconds):
		perToken = (c.seconds[above] - low) / float64(above-below)
	case below > 1:
		perToken = max(low-c.seconds[1], 0) / float64(below-1)
	default:
		perToken = marginalCost * low
	}
	return optimism * (c.seconds[below] + perToken*float64(n-below))
}

// record adds a forward pass that verified a draft of some length, of which the first tokens were accepted.
func (c *draftController) record(length, accepted int, seconds float64) {
	if t := &c.seconds[1+length]; *t == 0 {
		*t = seconds
	} else {
		*t = min(seconds, *t*maxGrowth)
	}
	for i := range min(accepted+1, length) { // those after a wrong one say nothing
		c.accepted, c.tried = decay*c.accepted, decay*c.tried+1
		if i < accepted {
			c.accepted++
		}
	}
	switch {
	case length == 0:
	case c.best() > 0:
		c.lastPause = 0
	case accepted == 0:
		c.lastPause = min(max(2*c.lastPause, minPause), maxPause)
		c.pause = c.lastPause
	}
}
