// Package speculate decodes several tokens in one step: it guesses those that come next and has
// the model verify them together (Leviathan et al., "Fast Inference from Transformers via
// Speculative Decoding", 2023). The guesses are looked up in the text so far (prompt lookup).
//
// What comes out is what comes out without: the caller takes each token from its logits, greedily
// or by any sampler, and a guess saves a step only where that token is the guess. A row of logits
// does not depend on the other rows of its step, so they are the same to the bit.
//
// The package owns guesses and how many are worth it. It imports exec alone: it knows no
// sampling and no text.
package speculate

import (
	"fmt"
	"time"

	"pesti/exec"
)

// A Drafter guesses how a sequence goes on.
type Drafter interface {
	// Accept tells it the next token of the sequence, which was evaluated.
	Accept(id int32)
	// Draft appends its guesses of the tokens that come after those accepted, and then those in dst, to
	// dst, at most n.
	Draft(dst []int32, n int) []int32
}

// A Decoder feeds a session token by token, as exec.Session.Feed does, and has often computed the
// logits of the next one already.
type Decoder struct {
	// Always guesses wherever the drafter has something to guess, even where that takes longer.
	Always bool

	session  *exec.Session
	drafter  Drafter
	most     int // guesses in a step
	pace     pace
	step     []int32 // the last step: a token that was fed, and guesses
	used     int     // how many of them were fed
	took     time.Duration
	proposed int
	accepted int
}

// New returns a decoder that has up to most guesses verified in one step. The session has what
// comes before, of which the drafter was told.
func New(s *exec.Session, d Drafter, most int) (*Decoder, error) {
	if limit := s.Rows() - 1; most < 1 || most > limit {
		return nil, fmt.Errorf("%d guesses in a step, expected 1 to %d: the plan gives the logits of up to %d tokens of a step", most, limit, s.Rows())
	}
	return &Decoder{session: s, drafter: d, most: most, pace: newPace(most), step: make([]int32, 0, most+1)}, nil
}

// Feed evaluates the next token of the sequence and returns its logits, f32[vocabulary], in a view
// that holds until the next call or the engine's next step. It allocates nothing where the drafter
// does not.
func (d *Decoder) Feed(id int32) ([]float32, error) {
	if d.used < len(d.step) && d.step[d.used] == id {
		// Steps of other sequences in between have taken the logits away.
		if logits := d.session.Logits(d.used); logits != nil {
			d.drafter.Accept(id)
			d.used++
			d.accepted++
			return logits, nil
		}
	}
	if err := d.Settle(); err != nil {
		return nil, err
	}
	guesses := d.pace.next()
	if d.Always {
		guesses = d.most
	}
	d.step = append(d.step[:0], id)
	if room := d.session.Room() - 1; room > 0 && guesses > 0 {
		d.step = d.drafter.Draft(d.step, min(guesses, room))
	}
	begin := time.Now()
	if err := d.session.FeedEach(d.step); err != nil {
		d.step = d.step[:0]
		return nil, err
	}
	d.took, d.used = time.Since(begin), 1
	d.drafter.Accept(id)
	d.proposed += len(d.step) - 1
	return d.session.Logits(0), nil
}

// Settle makes the session forget the guesses that have not come true, so that it ends with the
// last token fed.
func (d *Decoder) Settle() error {
	if len(d.step) == 0 {
		return nil
	}
	d.pace.note(len(d.step)-1, d.used-1, d.took.Seconds())
	wrong := len(d.step) - d.used
	d.step, d.used = d.step[:0], 0
	if wrong == 0 {
		return nil
	}
	return d.session.Truncate(d.session.Pos() - wrong)
}

// Proposed returns how many tokens were guessed.
func (d *Decoder) Proposed() int { return d.proposed }

// Accepted returns how many guesses were right, each of which saved a step.
func (d *Decoder) Accepted() int { return d.accepted }
