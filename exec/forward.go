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

// A Batch is the input of one forward pass. The tokens of a sequence are adjacent and have
// consecutive positions. The first position is at most the sequence's length; if it is less, the
// sequence is first truncated to it.
type Batch struct {
	Tokens []int32 // ids
	Pos    []int32 // position of each token in its sequence
	Seq    []int32 // sequence of each token, below the plan's bound
	Rows   []int32 // indices of the tokens whose logits the pass returns
	TopK   int     // number of greatest logits of each row that the caller needs; 0: all
}

// A Row holds one token's logits: all of them, or the top k that the device returned.
type Row struct {
	Logits []float32 // of the whole vocabulary, or of the tokens in IDs; nil if IDs has only one token
	IDs    []int32   // the tokens of the greatest logits, sorted by descending logit, then by id; nil: the whole vocabulary
}

// A sequence is the state of one slot of the caches.
type sequence struct {
	length  int   // positions that the caches hold
	written int   // one past the highest position written since it last began at 0
	batch   int32 // number of the last batch with tokens of the sequence
	taken   bool  // a session uses the slot
}

// A ring describes the cache of a layer with a window, in which new positions overwrite old ones.
type ring struct{ window, positions int }

// noteRing records a step that attends to a ring, with any kernel. For rings of equal length the
// widest window counts.
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
// if it has one and the batch consists of such chunks, and otherwise the smallest program that fits
// the batch: see plan.Program. An invalid batch is an error and changes nothing. After any other
// error, each sequence is truncated to the position where its tokens of the batch began, and Logits
// returns nil.
//
// The end of ctx cancels the pass: on the processor, workers finish their wave and skip the others.
// Forward then returns an error that wraps context.Cause(ctx), and rolls the whole batch back. The
// engine stays usable, and the same batch again gives the same bits. Forward allocates nothing.
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
	err := e.readStaged(b.Tokens)
	if err == nil {
		err = e.tuneOnce(ctx, len(b.Tokens))
	}
	if err != nil {
		e.undo(b)
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
			s.written = 0 // the sequence starts anew, so no earlier position is read
		}
		s.written = max(s.written, pos+1)
		e.hold(seq, pos+1)
	}
	e.last, e.top = r, e.topKFor(b.TopK)
	e.cancelOn(ctx.Done())
	defer e.cancelOn(nil)
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

// fault replaces the error of a run for which part of the file was missing by one that names the file.
func (e *Engine) fault(err error) error {
	if errors.Is(err, cpu.ErrFault) {
		return fmt.Errorf("%s: became shorter while it was read; open it again", e.file.Path)
	}
	return err
}

// newMachine starts workers that report a fault in the memory of the plan's weights as a fault of
// the file.
func (e *Engine) newMachine(workers int) *cpu.Machine {
	m := cpu.New(workers)
	page := uintptr(os.Getpagesize()) // all of it is gone after truncation
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

// undo rolls back the tokens of a failed forward pass. Values that it has written into rings stay,
// so the highest written position stays recorded. No position before the batch is lost, since a
// ring has room for a window and a whole batch.
func (e *Engine) undo(b *Batch) {
	e.last = kernel.Run{}
	for t, seq := range slices.Backward(b.Seq) {
		e.hold(seq, int(b.Pos[t]))
	}
}

// hold sets a sequence's length to n positions.
func (e *Engine) hold(seq int32, n int) {
	e.sequences[seq].length = n
	if !e.closed { // the page table is in the engine's memory
		e.pages.hold(int(seq), n)
	}
}

// fit returns the program that runs a batch, see plan.ProgramFor, or nil.
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
			return fmt.Errorf("token %d: sequence %d again, expected the tokens of a sequence to be adjacent", t, seq)
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

// checkStart checks that the caches still hold the positions that a token at pos sees.
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

// Logits returns the logits of the r-th row of the last batch, f32[vocabulary], in a view that is
// valid until the next forward pass. It is nil if the batch has no such row, before the first pass,
// after a failed pass, and after a pass that left the logits on a device (Batch.TopK).
func (e *Engine) Logits(r int) []float32 {
	if r < 0 || r >= e.last.R || e.top > 0 {
		return nil
	}
	return e.logits[r*e.width : (r+1)*e.width : (r+1)*e.width]
}

// feedbackTokens replaces a token that is the previous pass's argmax by a reference to the device's
// own result, so that the upload does not depend on computed values.
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

// topKFor returns how many of the greatest logits of each row the device returns if the caller
// needs k. It is 0 if the device returns all logits, because it has no top-k or a smaller one.
func (e *Engine) topKFor(k int) int {
	switch {
	case k == 1 && e.argmax != nil:
		return 1
	case 0 < k && k <= e.maxTopK:
		return e.maxTopK
	}
	return 0
}

// topKComplete reports whether the device found the requested number of logits in every row. The
// device leaves out logits of −Inf, and selects nothing in a row with NaN or +Inf.
func (e *Engine) topKComplete() bool {
	ids := e.topIDs
	if e.top == 1 {
		ids = e.argmax
	}
	return !slices.ContainsFunc(ids[:e.last.R*e.top], func(id int32) bool { return id < 0 })
}

// Row returns the r-th row of logits of the last batch, in a view that is valid until the next
// forward pass. It holds all logits, or, if Batch.TopK is set and the device selected that many in
// every row, only the selected ones: at least TopK, all finite. It is empty if there is no such
// row.
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
	Rows int // one for each token of the batch, or for each row of logits
	Cols int
	Data []float32
}

// Value returns a copy of the named value, if it is one of the outputs that the plan was compiled
// with (such as "logits" or "blk.0.out").
func (e *Engine) Value(name string) (Value, error) {
	b := e.plan.SharedBuffer(plan.IO, name)
	if b == nil || b.Format != "f32" {
		return Value{}, fmt.Errorf("value %q: it is no output of the plan; compile with it as an output", name)
	}
	scope := e.plan.Scope(nil)
	scope.T, scope.R = int64(e.last.T), int64(e.last.R)
	n, err := scope.Eval(b.Elems)
	if err != nil {
		return Value{}, err
	}
	rows := e.last.T
	if scope.R = 0; rowsOf(&scope, b.Elems) == 0 { // its extent depends on R
		rows = e.last.R
	}
	if n == 0 || rows == 0 {
		return Value{}, fmt.Errorf("value %q: the last batch has no rows of it", name)
	}
	values := append([]float32(nil), view[float32](e.shared[b.ID])[:n]...)
	return Value{Rows: rows, Cols: int(n) / rows, Data: values}, nil
}

// rowsOf evaluates a formula that Verify has checked.
func rowsOf(s *plan.Scope, formula string) int64 {
	n, _ := s.Eval(formula)
	return n
}
