package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// A class is a set of rune classes, one bit each. Every rune belongs to exactly
// one class, so that a set in a splitting rule is a union of bits and its
// negation the complement. The rules of splitters.go need no finer classes.
type class uint32

const (
	upper       class = 1 << iota // Lu
	lower                         // Ll
	title                         // Lt
	modifier                      // Lm
	otherLetter                   // Lo
	mark                          // M
	digit                         // 0-9
	otherNumber                   // the rest of N
	punct                         // P
	backquote                     // `
	asciiSymbol                   // $+<=>^|~, the other ASCII runes of S
	otherSymbol                   // the rest of S
	blank                         // U+0020
	lineFeed                      // \n
	carriage                      // \r
	otherSpace                    // the rest of White_Space
	rest                          // control, format, private use, unassigned

	letter  = upper | lower | title | modifier | otherLetter
	number  = digit | otherNumber
	symbol  = backquote | asciiSymbol | otherSymbol
	newline = lineFeed | carriage
	space   = blank | newline | otherSpace
)

// asciiClass is the table for ASCII, so that the common case is one load.
var asciiClass = func() (t [utf8.RuneSelf]class) {
	for r := range t {
		t[r] = unicodeClass(rune(r))
	}
	for r := '0'; r <= '9'; r++ {
		t[r] = digit
	}
	for _, r := range "$+<=>^|~" {
		t[r] = asciiSymbol
	}
	t['`'], t[' '], t['\n'], t['\r'] = backquote, blank, lineFeed, carriage
	return t
}()

func classOf(r rune) class {
	if r < utf8.RuneSelf {
		return asciiClass[r]
	}
	return unicodeClass(r)
}

// categories is ordered by frequency in text.
var categories = []struct {
	table *unicode.RangeTable
	class class
}{
	{unicode.Lo, otherLetter},
	{unicode.Ll, lower},
	{unicode.Lu, upper},
	{unicode.White_Space, otherSpace},
	{unicode.P, punct},
	{unicode.M, mark},
	{unicode.N, otherNumber},
	{unicode.S, otherSymbol},
	{unicode.Lm, modifier},
	{unicode.Lt, title},
}

func unicodeClass(r rune) class {
	for _, c := range categories {
		if unicode.Is(c.table, r) {
			return c.class
		}
	}
	return rest
}
