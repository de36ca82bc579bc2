// Package speculate implements prompt-lookup speculative decoding with an adaptive draft length: it
// drafts the next tokens and the model verifies them in one forward pass (Leviathan et al., "Fast
// Inference from Transformers via Speculative Decoding", 2023; Saxena, "Prompt Lookup Decoding",
// 2023).
//
// The output is the same as without drafts: the caller chooses each token from its logits, greedily
// or by any sampler, and a draft token saves a pass only if the caller chooses it. A row of logits
// does not depend on the other rows of its pass, so the logits are equal bit by bit.
//
// The package chooses drafts and their length. Its only import of this module is exec; it does not
// sample or decode text.
package speculate

import (
	"context"
	"fmt"
	"time"

	"pesti/exec"
)

// A Drafter predicts the next tokens of a sequence.
type Drafter interface {
	// Accept appends the next token of the sequence, which was evaluated.
	Accept(id int32)
	// Draft appends to dst at most n tokens that may follow the accepted ones and those in dst.
	Draft(dst []int32, n int) []int32
}

// A Decoder feeds a session token by token, like exec.Session.Feed, and often has the logits of the
// next token already. It must be used from one goroutine, like its session.
type Decoder struct {
	// Always uses every draft that the drafter finds, even if that takes longer.
	Always bool

	session  *exec.Session
	drafter  Drafter
	maxDraft int
	control  draftController
	pass     []int32 // tokens of the last forward pass: one that was fed, and its draft
	used     int     // number of these tokens that were fed
	took     time.Duration
	proposed int
	accepted int
}

// New returns a decoder that verifies up to maxDraft draft tokens in one forward pass. The session
// and the drafter must already have the prompt.
func New(s *exec.Session, d Drafter, maxDraft int) (*Decoder, error) {
	if limit := s.MaxLogitRows() - 1; maxDraft < 1 || maxDraft > limit {
		return nil, fmt.Errorf("a draft of %d tokens, expected 1 to %d: the plan gives the logits of up to %d tokens of a forward pass", maxDraft, limit, s.MaxLogitRows())
	}
	return &Decoder{session: s, drafter: d, maxDraft: maxDraft, control: newDraftController(maxDraft), pass: make([]int32, 0, maxDraft+1)}, nil
}

// Feed evaluates the next token of the sequence and returns its logits, f32[vocabulary], in a view
// that is valid until the next call or the engine's next forward pass. It allocates nothing if the
// drafter does not. After an error the session ends with the last fed token.
func (d *Decoder) Feed(ctx context.Context, id int32) ([]float32, error) {
	if d.used < len(d.pass) && d.pass[d.used] == id {
		// Passes of other sequences in between have overwritten the logits.
		if logits := d.session.Logits(d.used); logits != nil {
			d.drafter.Accept(id)
			d.used++
			d.accepted++
			return logits, nil
		}
	}
	if err := d.DropDraft(); err != nil {
		return nil, err
	}
	length := d.control.next()
	if d.Always {
		length = d.maxDraft
	}
	d.pass = append(d.pass[:0], id)
	if left := d.session.Remaining() - 1; left > 0 && length > 0 {
		d.pass = d.drafter.Draft(d.pass, min(length, left))
	}
	begin := time.Now()
	if err := d.session.FeedLogits(ctx, d.pass); err != nil {
		d.pass = d.pass[:0]
		return nil, err
	}
	d.took, d.used = time.Since(begin), 1
	d.drafter.Accept(id)
	d.proposed += len(d.pass) - 1
	return d.session.Logits(0), nil
}

// DropDraft removes draft tokens that were not fed from the session, so that it ends with the last
// fed token.
func (d *Decoder) DropDraft() error {
	if len(d.pass) == 0 {
		return nil
	}
	d.control.record(len(d.pass)-1, d.used-1, d.took.Seconds())
	wrong := len(d.pass) - d.used
	d.pass, d.used = d.pass[:0], 0
	if wrong == 0 {
		return nil
	}
	return d.session.Truncate(d.session.Pos() - wrong)
}

// Proposed returns the number of verified draft tokens.
func (d *Decoder) Proposed() int { return d.proposed }

// Accepted returns the number of accepted draft tokens. Each saved a forward pass.
func (d *Decoder) Accepted() int { return d.accepted }
