package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// This file holds the matchers that splitters.go combines, one for each pattern
// that occurs in published splitting expressions. Splitting takes linear time,
// unlike regular expressions with look-ahead: a matcher reads no further than
// its match, and where it fails it has read either a bounded number of runes or
// a run that a later alternative consumes completely.

// A set reports whether a rune belongs to it. Bytes that are not UTF-8 count as
// U+FFFD.
type set func(rune) bool

func in(c class) set { return func(r rune) bool { return classOf(r)&c != 0 } }

// inRanges is the set of the runes in any of the inclusive ranges lo, hi, lo, hi…
func inRanges(bounds ...rune) set {
	return func(r rune) bool {
		for i := 0; i+1 < len(bounds); i += 2 {
			if bounds[i] <= r && r <= bounds[i+1] {
				return true
			}
		}
		return false
	}
}

func inString(s string) set {
	return func(r rune) bool { return strings.ContainsRune(s, r) }
}

func neither(a, b set) set { return func(r rune) bool { return !a(r) && !b(r) } }

// A matcher returns the number of bytes at the start of s that match, 0 if none do. Where it reads a
// run of any length it polls, and returns early once the call ends.
type matcher func(p *poll, s []byte) int

// never matches nothing.
func never(*poll, []byte) int { return 0 }

// either is a|b|…: the first that matches.
func either(ms ...matcher) matcher {
	return func(p *poll, s []byte) int {
		for _, m := range ms {
			if n := m(p, s); n > 0 {
				return n
			}
		}
		return 0
	}
}

// upTo is c{1,limit}.
func upTo(limit int, c set) matcher {
	return func(p *poll, s []byte) int {
		n := 0
		for i := 0; i < limit && n < len(s); i++ {
			r, w := utf8.DecodeRune(s[n:])
			if !c(r) {
				break
			}
			n += w
		}
		return n
	}
}

// many is c+.
func many(c set) matcher {
	return func(p *poll, s []byte) int { return runLen(p, s, c) }
}

func runLen(p *poll, s []byte, c set) int {
	n, next := 0, interval
	for n < len(s) {
		if n >= next {
			if p.ended(interval) {
				break
			}
			next = n + interval
		}
		r, w := utf8.DecodeRune(s[n:])
		if !c(r) {
			break
		}
		n += w
	}
	return n
}

// one is c.
func one(c set) matcher { return upTo(1, c) }

// digits3 is [0-9][0-9][0-9].
func digits3(p *poll, s []byte) int {
	if upTo(3, in(digit))(p, s) == 3 {
		return 3
	}
	return 0
}

// lead is c?m.
func lead(c set, m matcher) matcher {
	return func(p *poll, s []byte) int {
		if w := one(c)(p, s); w > 0 {
			if n := m(p, s[w:]); n > 0 {
				return w + n
			}
		}
		return m(p, s)
	}
}

// after is cm.
func after(c set, m matcher) matcher {
	return func(p *poll, s []byte) int {
		if w := one(c)(p, s); w > 0 {
			if n := m(p, s[w:]); n > 0 {
				return w + n
			}
		}
		return 0
	}
}

// trail is mc*.
func trail(m matcher, c set) matcher {
	return func(p *poll, s []byte) int {
		n := m(p, s)
		if n > 0 {
			n += runLen(p, s[n:], c)
		}
		return n
	}
}

// suffix is m(t)?.
func suffix(m, t matcher) matcher {
	return func(p *poll, s []byte) int {
		n := m(p, s)
		if n > 0 {
			n += t(p, s[n:])
		}
		return n
	}
}

// anyThenSome is a*b+ for sets that may overlap: if no b follows the run of a, it
// backtracks to the last rune of the run that is in b.
func anyThenSome(a, b set) matcher {
	return func(p *poll, s []byte) int {
		run, lastB, next := 0, 0, interval
		for run < len(s) {
			if run >= next {
				if p.ended(interval) {
					break
				}
				next = run + interval
			}
			r, w := utf8.DecodeRune(s[run:])
			if !a(r) {
				break
			}
			run += w
			if b(r) {
				lastB = run
			}
		}
		if n := runLen(p, s[run:], b); n > 0 {
			return run + n
		}
		return lastB
	}
}

// linesEnd is \s*[\r\n]+: a run of white space up to its last line break.
var linesEnd = anyThenSome(in(space), in(newline))

// spaces is \s+(?!\S)|\s+: a run of white space, without its last rune if a word
// follows, to which that rune belongs.
func spaces(p *poll, s []byte) int {
	n := runLen(p, s, in(space))
	if n == len(s) {
		return n
	}
	if _, w := utf8.DecodeLastRune(s[:n]); n > w {
		return n - w
	}
	return n
}

// contraction is 's|'t|'re|'ve|'m|'ll|'d in lower case.
func contraction(_ *poll, s []byte) int { return contractionLen(s, func(b byte) byte { return b }) }

// anyContraction is the same in either case.
func anyContraction(_ *poll, s []byte) int {
	return contractionLen(s, func(b byte) byte { return b | 0x20 })
}

func contractionLen(s []byte, fold func(byte) byte) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	a := fold(s[1])
	switch a {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(s) < 3 {
		return 0
	}
	switch string([]byte{a, fold(s[2])}) {
	case "re", "ve", "ll":
		return 3
	}
	return 0
}

// A rule examines the start of s. It reports that the first n bytes are a match,
// or that no match begins in them. n is at least 1.
type rule func(p *poll, s []byte) (n int, match bool)

// find is the rule that tries m at every rune.
func find(m matcher) rule {
	return func(p *poll, s []byte) (int, bool) {
		if n := m(p, s); n > 0 {
			return n, true
		}
		_, w := utf8.DecodeRune(s)
		return w, false
	}
}

// finalSpaces is \s+$. It skips a whole run that is not final: a new attempt at
// each of its runes would take quadratic time.
func finalSpaces(p *poll, s []byte) (int, bool) {
	n := runLen(p, s, in(space))
	if n == 0 {
		return find(one(in(space)))(p, s)
	}
	return n, n == len(s)
}

// split calls emit for the words of s in order, which together are s. The first
// rule cuts s into matches and the text between them, the next rule cuts each of
// these parts, and so on. The words end early once the call ends.
func split(p *poll, rules []rule, s []byte, emit func(word []byte)) {
	if len(rules) == 0 {
		if len(s) > 0 {
			emit(s)
		}
		return
	}
	from, next := 0, interval
	for i := 0; i < len(s); {
		n, match := rules[0](p, s[i:])
		if i >= next {
			if p.ended(interval) {
				return
			}
			next = i + interval
		}
		if match {
			split(p, rules[1:], s[from:i], emit)
			split(p, rules[1:], s[i:i+n], emit)
			from = i + n
		}
		i += n
	}
	split(p, rules[1:], s[from:], emit)
}
