package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"pesti/exec/cpu"
	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
)

// A Batch is the input of one forward pass. The tokens of a sequence stand together, at consecutive
// positions. The first position is at most the sequence's length; where it is less, the sequence
// forgets the positions from there on.
type Batch struct {
	Tokens []int32 // ids
	Pos    []int32 // position of each token in its sequence
	Seq    []int32 // sequence of each token, below the plan's bound
	Rows   []int32 // indices of the tokens whose logits are wanted
	TopK   int     // how many of the greatest logits of each row suffice; 0: all logits are needed
}

// A Row holds one token's logits: all of them, or the top k that the device returned.
type Row struct {
	Logits []float32 // of the whole vocabulary, or of the tokens in IDs; nil where IDs has one token only
	IDs    []int32   // the tokens of the greatest logits, sorted by descending logit, then by id; nil: the whole vocabulary
}

// A sequence is what the engine knows of one slot of the caches.
type sequence struct {
	length  int   // positions that the caches hold
	written int   // one past the highest position written since it last began at 0
	batch   int32 // the last batch it was part of
	taken   bool  // by a session
}

// A ring is a cache of a layer with a window, which forgets old positions.
type ring struct{ window, positions int }

// noteRing notes a step that looks back into a ring, by whichever kernel. Of rings of one length
// the widest window counts.
func (e *Engine) noteRing(st *plan.Step) {
	r := ring{int(param(st, "window")), int(param(st, "positions"))}
	if param(st, "ring") == 0 || r.window == 0 || r.positions >= e.ctx {
		return
	}
	for i := range e.rings {
		if have := &e.rings[i]; have.positions == r.positions {
			have.window = max(have.window, r.window)
			return
		}
	}
	e.rings = append(e.rings, r)
}

// Forward evaluates the tokens of a batch. It runs the plan's program for whole chunks of tokens,
// where there is one and the batch consists of such chunks, and otherwise the smallest program that
// the batch fits: see plan.Program. An error about the batch itself changes nothing. After any other
// error each sequence ends where its tokens of the batch began.
//
// The end of ctx cancels the pass: on the processor workers finish their wave and skip the others.
// Forward then returns an error that wraps context.Cause(ctx). The whole batch is rolled back, the
// engine can be used on, and the same batch again gives the same bits. Forward allocates nothing.
func (e *Engine) Forward(ctx context.Context, b *Batch) error {
	if ctx == nil {
		return ErrNilContext
	}
	if err := e.check(b); err != nil {
		return err
	}
	r := kernel.Run{T: len(b.Tokens), R: len(b.Rows)}
	g := e.fit(b)
	if g == nil {
		return fmt.Errorf("batch of %d tokens and %d rows of logits: the plan is for up to %d and %d", r.T, r.R, e.plan.Target.Ubatch, e.plan.Target.Rows)
	}
	if err := e.readStaged(b.Tokens); err != nil {
		return err
	}
	e.passes++
	copy(e.tokens, b.Tokens)
	e.feedbackTokens(b)
	copy(e.pos, b.Pos)
	copy(e.seq, b.Seq)
	copy(e.rows, b.Rows)
	for t, seq := range b.Seq {
		s, pos := &e.sequences[seq], int(b.Pos[t])
		if pos == 0 {
			s.written = 0 // nothing before is looked back to
		}
		s.written = max(s.written, pos+1)
		e.hold(seq, pos+1)
	}
	e.last, e.top = r, e.topKFor(b.TopK)
	e.cancelOn(ctx.Done())
	defer e.cancelOn(nil)
	err := error(nil)
	if e.poison {
		err = e.backend.poison()
	}
	if err == nil {
		err = e.run(g)
	}
	if err == nil && !e.topKComplete() {
		e.top = 0
		err = e.backend.fetch(r)
	}
	if err != nil {
		e.undo(b)
	}
	return cause(ctx, e.fault(err))
}

// fault names the file in the error of a run that found part of it gone.
func (e *Engine) fault(err error) error {
	if errors.Is(err, cpu.ErrFault) {
		return fmt.Errorf("%s: became shorter while it was read; open it again", e.file.Path)
	}
	return err
}

// newMachine starts workers that take a fault in the plan's weights for one in a file.
func (e *Engine) newMachine(workers int) *cpu.Machine {
	m := cpu.New(workers)
	page := uintptr(os.Getpagesize()) // of which none is there
	m.Mapped = func(addr uintptr) bool {
		return slices.ContainsFunc(e.plan.Weights, func(w plan.Weight) bool {
			data := e.inFile(&w)
			begin := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
			end := begin + uintptr(len(data))
			return begin&^(page-1) <= addr && addr < (end+page-1)&^(page-1)
		})
	}
	return m
}

func (e *Engine) run(g *program) error {
	if e.profiler != nil && !e.profiler.paused {
		return e.runProfiled(g)
	}
	return e.walk(g)
}

// walk runs the steps of a program.
func (e *Engine) walk(g *program) error {
	if e.observe != nil {
		return e.runObserved(g)
	}
	return e.backend.run(g, e.last)
}

// undo takes back the tokens of a forward pass that failed. What it has written into rings stays
// written, so the highest position stays noted: a ring has room for a window and a whole batch, so
// that none of the positions before the batch is lost.
func (e *Engine) undo(b *Batch) {
	e.last = kernel.Run{}
	for t, seq := range slices.Backward(b.Seq) {
		e.hold(seq, int(b.Pos[t]))
	}
}

// hold makes a sequence one of n positions.
func (e *Engine) hold(seq int32, n int) {
	e.sequences[seq].length = n
	if !e.closed { // the table of pages is in its memory
		e.pages.hold(int(seq), n)
	}
}

// fit returns the program that a step runs, see plan.ProgramFor, or nil.
func (e *Engine) fit(b *Batch) *program {
	fits := e.plan.SelectProgram(int64(len(b.Tokens)), int64(len(b.Rows)), b.whole)
	for i := range e.programs {
		if g := &e.programs[i]; g.Program == fits {
			return g
		}
	}
	return nil
}

// whole reports whether the tokens of each sequence are whole chunks, from a multiple of chunk on.
func (b *Batch) whole(chunk int64) bool {
	c := int(chunk)
	for first := 0; first < len(b.Seq); first += c {
		last := first + c - 1
		if int(b.Pos[first])%c != 0 || last >= len(b.Seq) || b.Seq[last] != b.Seq[first] {
			return false
		}
	}
	return true
}

// check checks a batch against the bounds that plan.Verify cannot see.
func (e *Engine) check(b *Batch) error {
	if e.closed {
		return ErrEngineClosed
	}
	n := len(b.Tokens)
	if n == 0 || len(b.Pos) != n || len(b.Seq) != n {
		return fmt.Errorf("batch of %d tokens with %d positions and %d sequences, expected as many of each, at least one", n, len(b.Pos), len(b.Seq))
	}
	e.batches++
	for t := range n {
		if err := e.checkToken(b.Tokens[t]); err != nil {
			return err
		}
		pos, seq := int(b.Pos[t]), int(b.Seq[t])
		if seq < 0 || seq >= len(e.sequences) {
			return fmt.Errorf("token %d: sequence %d, expected 0 to %d", t, seq, len(e.sequences)-1)
		}
		if pos < 0 || pos >= e.ctx {
			return fmt.Errorf("token %d: position %d, expected 0 to %d, the end of the context", t, pos, e.ctx-1)
		}
		s := &e.sequences[seq]
		switch {
		case t > 0 && int(b.Seq[t-1]) == seq:
			if pos != int(b.Pos[t-1])+1 {
				return fmt.Errorf("token %d: position %d follows %d of the same sequence, expected consecutive positions", t, pos, b.Pos[t-1])
			}
		case s.batch == e.batches:
			return fmt.Errorf("token %d: sequence %d again, expected the tokens of a sequence side by side", t, seq)
		default:
			s.batch = e.batches
			if err := e.checkStart(s, seq, pos); err != nil {
				return err
			}
		}
	}
	for i, row := range b.Rows {
		if row < 0 || int(row) >= n {
			return fmt.Errorf("row %d of logits: token %d, expected 0 to %d", i, row, n-1)
		}
	}
	return nil
}

func (e *Engine) checkToken(id int32) error {
	if id < 0 || int(id) >= e.vocab {
		return fmt.Errorf("token id %d, expected 0 to %d, the end of the vocabulary", id, e.vocab-1)
	}
	return nil
}

// checkStart sees that the caches hold what a token at pos looks back to.
func (e *Engine) checkStart(s *sequence, seq, pos int) error {
	if pos > s.length {
		return fmt.Errorf("sequence %d: position %d, expected at most %d, since that many positions came before", seq, pos, s.length)
	}
	for _, r := range e.rings {
		if least := max(pos-r.window+1, 0); least < pos && least < s.written-r.positions {
			return fmt.Errorf("sequence %d: cannot go back from position %d to %d: a layer with a window of %d has forgotten position %d; start over at 0", seq, s.written, pos, r.window, least)
		}
	}
	return nil
}

// Logits returns the logits of the r-th row of the last batch, f32[vocabulary], in a view that is valid
// until the next forward pass. It is nil where there is no such row: beyond those of the batch, before
// the first pass, after one that failed, and after one that left the logits on a device (Batch.TopK).
func (e *Engine) Logits(r int) []float32 {
	if r < 0 || r >= e.last.R || e.top > 0 {
		return nil
	}
	return e.logits[r*e.width : (r+1)*e.width : (r+1)*e.width]
}

// feedbackTokens lets the device take a token from its own memory where it is the most likely one of the
// pass before, so that what is uploaded does not depend on what was computed.
func (e *Engine) feedbackTokens(b *Batch) {
	if !e.feedback || e.top != 1 {
		return
	}
	for t := range min(len(b.Tokens), e.last.R) {
		if b.Tokens[t] == e.argmax[t] {
			e.tokens[t] = int32(^t)
		}
	}
}

// topKFor returns how many of the greatest logits of each row the plan's device returns where k suffice.
// It is 0 where the device returns all logits because it selects none or fewer than k.
func (e *Engine) topKFor(k int) int {
	switch {
	case k == 1 && e.argmax != nil:
		return 1
	case 0 < k && k <= e.maxTopK:
		return e.maxTopK
	}
	return 0
}

// topKComplete reports whether a device that was to select the greatest logits found as many in every row.
// It leaves out logits of −Inf, and selects nothing in a row with NaN or +Inf.
func (e *Engine) topKComplete() bool {
	ids := e.topIDs
	if e.top == 1 {
		ids = e.argmax
	}
	return !slices.ContainsFunc(ids[:e.last.R*e.top], func(id int32) bool { return id < 0 })
}

// Row returns the r-th row of logits of the last batch, in a view that is valid until the next forward
// pass: all logits, or, where Batch.TopK of them suffice and a device selected them in every row, those,
// all finite and at least as many as suffice. It is empty where there is no such row.
func (e *Engine) Row(r int) Row {
	switch {
	case r < 0 || r >= e.last.R:
		return Row{}
	case e.top == 0:
		return Row{Logits: e.Logits(r)}
	case e.top == 1:
		return Row{IDs: e.argmax[r : r+1]}
	}
	return Row{e.topLogits[r*e.top : (r+1)*e.top], e.topIDs[r*e.top : (r+1)*e.top]}
}

// A Value holds float32 values that the last forward pass computed: Rows rows of Cols elements, row-major.
type Value struct {
	Rows int // one for each token of the batch, or for each row of logits that was wanted
	Cols int
	Data []float32
}

// Value returns a copy of the named value, if it is one of the outputs that the plan was compiled
// with (such as "logits" or "blk.0.out").
func (e *Engine) Value(name string) (Value, error) {
	for i := range e.plan.Buffers {
		b := &e.plan.Buffers[i]
		if b.Class != plan.IO || b.Name != name || b.Format != "f32" {
			continue
		}
		scope := e.plan.Scope(nil)
		scope.T, scope.R = int64(e.last.T), int64(e.last.R)
		n, err := scope.Eval(b.Elems)
		if err != nil {
			return Value{}, err
		}
		rows := e.last.T
		if scope.R = 0; rowsOf(&scope, b.Elems) == 0 { // it has a row for each of R
			rows = e.last.R
		}
		if n == 0 || rows == 0 {
			return Value{}, fmt.Errorf("value %q: the last batch has no rows of it", name)
		}
		values := append([]float32(nil), view[float32](e.shared[i])[:n]...)
		return Value{Rows: rows, Cols: int(n) / rows, Data: values}, nil
	}
	return Value{}, fmt.Errorf("value %q: the plan does not show it; compile with it as an output", name)
}

// rowsOf returns the elements of a formula that is known to be one.
func rowsOf(s *plan.Scope, formula string) int64 {
	n, _ := s.Eval(formula)
	return n
}
