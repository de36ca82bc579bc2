package exec

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"pesti/exec/cpu"
	"pesti/exec/cpu/kernel"
	"pesti/exec/plan"
)

// A Batch is the tokens of one step. The tokens of one sequence are a run of consecutive
// positions that begins at most one past those which the sequence has; where it begins earlier,
// the positions from there on are forgotten.
type Batch struct {
	Tokens []int32 // ids
	Pos    []int32 // position of each in its sequence
	Seq    []int32 // sequence of each, below the plan's bound
	Rows   []int32 // indices of the tokens whose logits are wanted
}

// A Row is what is known of the logits of a token.
type Row struct {
	Logits []float32 // of all tokens of the vocabulary, or of those in IDs; nil where there is but one of these
	IDs    []int32   // the tokens of the greatest logits, the greatest first, of equal ones the lowest id; nil for all
}

// A sequence is what the engine knows of one slot of the caches.
type sequence struct {
	length int   // positions that the caches hold
	most   int   // one past the highest position written since it last began at 0
	batch  int32 // the last batch it was part of
	taken  bool  // by a session
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

// Step runs the program for whole chunks of tokens, where the plan has one and the batch is those,
// or else the smallest that it fits: see plan.Program. Nothing is computed where it returns an
// error about the batch; after any other error the sequences end where the batch began. It
// allocates nothing.
func (e *Engine) Step(b *Batch) error { return e.StepTop(b, 0) }

// StepTop is Step where of the logits of each row the greatest k suffice, 0 for none but all: see Row.
func (e *Engine) StepTop(b *Batch, k int) error {
	if err := e.check(b); err != nil {
		return err
	}
	r := kernel.Run{T: len(b.Tokens), R: len(b.Rows)}
	g := e.fit(b)
	if g == nil {
		return fmt.Errorf("step of %d tokens and %d rows of logits: the plan is for up to %d and %d", r.T, r.R, e.plan.Target.Ubatch, e.plan.Target.Rows)
	}
	e.step++
	copy(e.tokens, b.Tokens)
	e.follow(b)
	copy(e.pos, b.Pos)
	copy(e.seq, b.Seq)
	copy(e.rows, b.Rows)
	for t, seq := range b.Seq {
		s, pos := &e.sequences[seq], int(b.Pos[t])
		if pos == 0 {
			s.most = 0 // nothing before is looked back to
		}
		s.most = max(s.most, pos+1)
		e.hold(seq, pos+1)
	}
	e.last, e.top = r, e.found(k)
	err := error(nil)
	if e.poison {
		err = e.backend.poison()
	}
	if err == nil {
		err = e.run(g)
	}
	if err == nil && !e.ranked() {
		e.top = 0
		err = e.backend.fetch(r)
	}
	if err != nil {
		e.undo(b)
	}
	return e.fault(err)
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

// undo takes back the tokens of a step that failed. What it has written into rings stays
// written, so the highest position stays noted.
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

// check holds a batch against the bounds that plan.Verify cannot see.
func (e *Engine) check(b *Batch) error {
	if e.closed {
		return ErrEngineClosed
	}
	n := len(b.Tokens)
	if n == 0 || len(b.Pos) != n || len(b.Seq) != n {
		return fmt.Errorf("step of %d tokens with %d positions and %d sequences, expected as many of each, at least one", n, len(b.Pos), len(b.Seq))
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
		if least := max(pos-r.window+1, 0); least < pos && least < s.most-r.positions {
			return fmt.Errorf("sequence %d: cannot go back from position %d to %d: a layer with a window of %d has forgotten position %d; start over at 0", seq, s.most, pos, r.window, least)
		}
	}
	return nil
}

// Logits returns the logits of the r-th row that the last step was asked for, f32[vocabulary], in
// a view that holds until the next step. It is nil where there is no such row: beyond those asked
// for, before the first step, and after one that failed, or that left them on a device: StepTop.
func (e *Engine) Logits(r int) []float32 {
	if r < 0 || r >= e.last.R || e.top > 0 {
		return nil
	}
	return e.logits[r*e.width : (r+1)*e.width : (r+1)*e.width]
}

// follow leaves those tokens to the device that it has found to be the greatest in the last step: it takes
// them from its own memory, so that what is uploaded does not depend on what is computed there.
func (e *Engine) follow(b *Batch) {
	if !e.follows || e.top != 1 {
		return
	}
	for t := range min(len(b.Tokens), e.last.R) {
		if b.Tokens[t] == e.argmax[t] {
			e.tokens[t] = int32(^t)
		}
	}
}

// found returns how many of the greatest logits of a row the plan's device finds where so many suffice, 0
// where it finds none or too few.
func (e *Engine) found(suffice int) int {
	switch {
	case suffice == 1 && e.argmax != nil:
		return 1
	case 0 < suffice && suffice <= e.most:
		return e.most
	}
	return 0
}

// ranked reports whether a device that was to find the greatest logits found as many in every row. It finds
// none that are −Inf, and none at all in a row with NaN or +Inf.
func (e *Engine) ranked() bool {
	ids := e.topIDs
	if e.top == 1 {
		ids = e.argmax
	}
	return !slices.ContainsFunc(ids[:e.last.R*e.top], func(id int32) bool { return id < 0 })
}

// Row returns what is known of the r-th row of logits that the last step was asked for, in a view that
// holds until the next step: all, or where fewer suffice and a device has found these in every row, them
// alone, all finite and at least as many as suffice. A row that there is not is empty.
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

// A Value holds float32 values that the last step computed: Rows rows of Cols elements, row-major.
type Value struct {
	Rows int // one for each token of the step, or for each row of logits that was wanted
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
			return Value{}, fmt.Errorf("value %q: the last step has no rows of it", name)
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
