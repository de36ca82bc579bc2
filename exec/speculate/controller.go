package speculate

// A draftController chooses the draft length: how many draft tokens the next forward pass verifies.
// The best length depends on the text, whose rate of accepted draft tokens it tracks, and on the
// machine, whose forward passes it times: more tokens in a pass cost almost nothing if the pass is
// bound by memory bandwidth, and as much as separate passes if it is bound by arithmetic. Times
// never change the results.
type draftController struct {
	seconds []float64 // of a forward pass, by its number of tokens; 0: not measured

	accepted, tried float64 // draft tokens, with weights that decay with age

	pause     int // remaining passes without a draft before the next attempt
	lastPause int // length of the last pause, 0 if drafting has been useful since
}

const (
	// decay multiplies the weights of earlier draft tokens when another one is verified, since a
	// text's repetitiveness changes.
	decay = 0.85
	// maxGrowth is the largest factor by which one sample raises a measured time. Other load on the
	// machine only makes passes longer, so times are lowered at once and raised slowly.
	maxGrowth = 1.05
	// marginalCost is the assumed cost of one more token in a pass, as a share of a pass of one
	// token, until it is measured.
	marginalCost = 1.0 / 8
	// optimism scales interpolated times below the estimate, so that untried draft lengths get tried.
	optimism = 0.85
	// With these bounds, useless drafts cost at most 1.5 % of the time, even if a draft token costs
	// as much as a pass.
	minPause, maxPause = 4, 64
)

func newDraftController(maxDraft int) draftController {
	// Start as if three of four draft tokens had been accepted, so that there is a first draft.
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

// best returns the draft length with the most tokens per second, if each draft token is accepted at
// the tracked rate, provided that the ones before it are.
func (c *draftController) best() int {
	if c.seconds[1] == 0 {
		return 0 // without a measured pass there is nothing to compare with
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
	for i := range min(accepted+1, length) { // tokens after a wrong one give no information
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
