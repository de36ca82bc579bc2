package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

const maxInt = int64(math.MaxInt64)

// maxFormula bounds the length of a formula, and with it the depth of its parentheses.
const maxFormula = 256

// A Scope holds the values of the names in formulas.
//
// Formulas consist of integers, names, +, *, exact division by an integer or a parameter, and
// parentheses. There is no subtraction on purpose: a formula never decreases in T, R, S, C, P or M,
// so its value at a program's bounds is its largest, and a buffer of that many elements is large
// enough in every run. Which of two formulas is larger can change from run to run, so two formulas
// are compared at the corners.
type Scope struct {
	T int64 // tokens of a run
	R int64 // rows of logits
	S int64 // sequences
	C int64 // positions of a sequence
	P int64 // pages of a sequence: C in whole pages

	Rows   string  // what M stands for, the rows that the step works on: T or R, "" outside a step
	Params []Param // of the plan's step
	Index  int     // value of # in a name: the repeat index of an operand
}

// Scope returns the bounds of a program, or of all programs where prog is nil.
func (p *Plan) Scope(prog *Program) Scope {
	t := &p.Target
	s := Scope{T: t.Ubatch, R: t.Rows, S: t.Sequences, C: t.Ctx, P: t.Ctx / PageTokens}
	if t.Ctx%PageTokens != 0 {
		s.P++
	}
	if prog != nil {
		s.T, s.R = prog.MaxT, prog.MaxR
	}
	return s
}

// Of returns the scope with a step's parameters and M.
func (s Scope) Of(st *Step) Scope {
	s.Rows, s.Params = st.Rows, allParams(st)
	return s
}

// corners are the scopes of the extreme runs of a program: T is 1 or its bound, R is 0 or its
// bound, in the order of the constants.
//
// Extents of operands are linear in T and in R. An extent that is at least another at all corners
// is therefore at least the other in every run of the program.
type corners [4]Scope

const (
	least = iota
	greatest
	leastRows
	leastTokens
)

// extents are the values of a formula at the corners.
type extents [4]int64

// corners returns the corners of a program, whose bounds s holds.
func (s Scope) corners() corners {
	c := corners{s, s, s, s}
	c[least].T, c[leastTokens].T = 1, 1
	c[least].R, c[leastRows].R = 0, 0
	return c
}

// of returns the corners for a step.
func (c corners) of(st *Step) corners {
	c[0] = c[0].Of(st)
	for i := range c {
		c[i].Rows, c[i].Params = c[0].Rows, c[0].Params
	}
	return c
}

func (c *corners) eval(formula string) (n extents, err error) {
	for i := range c {
		if i > greatest && n[least] == n[greatest] {
			n[i] = n[greatest] // formulas never decrease
		} else if n[i], err = c[i].Eval(formula); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Eval returns the value of a formula. A result beyond an int64 is an error, never wrapped.
func (s *Scope) Eval(formula string) (int64, error) {
	if len(formula) > maxFormula {
		return 0, fmt.Errorf("formula of %d characters, expected at most %d", len(formula), maxFormula)
	}
	e := evaluator{scope: s, text: formula}
	v := e.sum()
	if e.peek() != 0 {
		e.fail("found %q, expected an operator or the end", e.rest())
	}
	if e.err != nil {
		return 0, fmt.Errorf("formula %q: %w", formula, e.err)
	}
	return v, nil
}

// shape evaluates a list of formulas.
func (s *Scope) shape(list string) ([]int64, error) {
	var dims []int64
	for f := range strings.SplitSeq(list, ",") {
		d, err := s.Eval(f)
		if err != nil {
			return nil, err
		}
		dims = append(dims, d)
	}
	return dims, nil
}

// lookup returns the value of a name. Digits of an index are appended here so that "n#" costs
// no string.
func (s *Scope) lookup(name string) (int64, bool) {
	if v, ok := s.bound(name); ok {
		return v, true
	}
	if stem, ok := strings.CutSuffix(name, "#"); ok {
		name = stem + strconv.Itoa(s.Index)
	}
	for i := range s.Params {
		if s.Params[i].Name == name {
			v, ok := s.Params[i].Value.(int64)
			return v, ok
		}
	}
	return 0, false
}

// bound returns the value of a name that can differ from run to run.
func (s *Scope) bound(name string) (int64, bool) {
	switch name {
	case "T":
		return s.T, true
	case "R":
		return s.R, true
	case "S":
		return s.S, true
	case "C":
		return s.C, true
	case "P":
		return s.P, true
	case "M":
		switch s.Rows {
		case "T":
			return s.T, true
		case "R":
			return s.R, true
		}
	}
	return 0, false
}

// An evaluator is a recursive-descent parser that computes as it goes and keeps the first error.
type evaluator struct {
	scope *Scope
	text  string
	at    int // offset of the next character in text
	err   error
}

func (e *evaluator) rest() string { return e.text[e.at:] }

func (e *evaluator) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, args...)
	}
}

// peek skips blanks and returns the next character, 0 at the end or after an error.
func (e *evaluator) peek() byte {
	for e.at < len(e.text) && e.text[e.at] == ' ' {
		e.at++
	}
	if e.err != nil || e.at == len(e.text) {
		return 0
	}
	return e.text[e.at]
}

func (e *evaluator) sum() int64 {
	v := e.product()
	for e.peek() == '+' {
		e.at++
		w := e.product()
		if e.err == nil && v > maxInt-w {
			e.fail("exceeds %d", maxInt)
		}
		v += w
	}
	return v
}

func (e *evaluator) product() int64 {
	v := e.factor()
	for {
		switch e.peek() {
		case '*':
			e.at++
			w, ok := mul(v, e.factor())
			if e.err == nil && !ok {
				e.fail("exceeds %d", maxInt)
			}
			v = w
		case '/':
			e.at++
			d := e.divisor()
			switch {
			case e.err != nil:
			case d <= 0:
				e.fail("division by %d", d)
			case v%d != 0:
				e.fail("%d is not a multiple of %d", v, d)
			default:
				v /= d
			}
		default:
			return v
		}
	}
}

func (e *evaluator) factor() int64 {
	switch c := e.peek(); {
	case c == '(':
		e.at++
		v := e.sum()
		if e.peek() != ')' {
			e.fail("found %q, expected )", e.rest())
			return 0
		}
		e.at++
		return v
	case isLetter(c):
		name := e.name()
		v, ok := e.scope.lookup(name)
		if !ok {
			e.fail("%s is not known in this formula", name)
		} else if v < 0 {
			e.fail("%s is %d, expected no negative number", name, v)
		}
		return v
	default:
		return e.integer()
	}
}

// divisor parses a divisor: an integer or a parameter, which is the same in every run.
func (e *evaluator) divisor() int64 {
	if !isLetter(e.peek()) {
		return e.integer()
	}
	name := e.name()
	v, ok := e.scope.lookup(name)
	if _, varies := e.scope.bound(name); varies || !ok {
		e.fail("division by %s, expected an integer or a parameter", name)
	}
	return v
}

func (e *evaluator) name() string {
	return e.take(func(c byte) bool { return isLetter(c) || isDigit(c) || c == '#' })
}

func (e *evaluator) integer() int64 {
	digits := e.take(isDigit)
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		e.fail("found %q, expected a number, a name or (", digits+e.rest())
	}
	return v
}

func (e *evaluator) take(is func(byte) bool) string {
	from := e.at
	for e.at < len(e.text) && is(e.text[e.at]) {
		e.at++
	}
	return e.text[from:e.at]
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

// mul multiplies two numbers that are not negative and reports whether the product fits.
func mul(a, b int64) (int64, bool) {
	if a != 0 && b > maxInt/a {
		return 0, false
	}
	return a * b, true
}
