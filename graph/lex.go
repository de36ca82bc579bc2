package graph

import (
	"fmt"
	"strconv"
	"strings"
)

// A token of the text form. Its kind is 'w' for a word, '"' for a quoted string, '\n' for the end
// of a line, 0 for the end of the text, '<' for "<=", and otherwise its first byte.
type token struct {
	kind byte
	text string // a word, or a string without its quotes
	line int
	col  int // in bytes, from 1
}

func (t token) String() string {
	switch t.kind {
	case 0:
		return "the end of the text"
	case '\n':
		return "the end of the line"
	case 'w':
		return t.text
	}
	return strconv.Quote(t.text)
}

// lex splits the text into tokens. A comment runs from # to the end of its line; empty lines yield
// no token.
func lex(text string) ([]token, error) {
	var tokens []token
	line, start := 1, 0
	for i := 0; i < len(text); {
		t := token{kind: text[i], line: line, col: i - start + 1}
		n := 1
		switch c := text[i]; {
		case c == '\n':
			if last := len(tokens) - 1; last >= 0 && tokens[last].kind != '\n' {
				tokens = append(tokens, t)
			}
			i, line, start = i+1, line+1, i+1
			continue
		case c == ' ' || c == '\t' || c == '\r':
			i++
			continue
		case c == '#':
			if n = strings.IndexByte(text[i:], '\n'); n < 0 {
				n = len(text) - i
			}
			i += n
			continue
		case wordByte(c):
			for i+n < len(text) && wordByte(text[i+n]) {
				n++
			}
			t.kind, t.text = 'w', text[i:i+n]
		case c == '"':
			quote, err := strconv.QuotedPrefix(text[i:])
			if err == nil {
				t.text, err = strconv.Unquote(quote)
			}
			if err != nil {
				return nil, fmt.Errorf("%d:%d: found a string without a valid end, expected a closing \"", t.line, t.col)
			}
			n = len(quote)
		case strings.HasPrefix(text[i:], "<="):
			n, t.text = 2, "<="
		case strings.IndexByte("()[]{}:,=%@", c) >= 0:
			t.text = text[i : i+1]
		default:
			return nil, fmt.Errorf("%d:%d: found %q, expected a name, a number or punctuation", t.line, t.col, text[i:i+1])
		}
		tokens = append(tokens, t)
		i += n
	}
	return append(tokens, token{line: line, col: len(text) - start + 1}), nil
}
