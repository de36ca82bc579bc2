package tokenizer

import (
	"cmp"
	"iter"
	"slices"
)

// A special is a token that stands for itself wherever it occurs in a text, before the text is
// split and merged.
type special struct {
	id     int32
	length int // in bytes
}

// specials finds such tokens in a text, at each place the longest, in time linear in the text
// whatever the tokens are. It is the automaton of Aho and Corasick (Efficient string matching,
// 1975) of the tokens read backwards: it reads the text from its end, and knows at each byte the
// longest token that begins there.
//
// States are the endings of tokens, by length, those with the same state before them together, in
// the order of their first bytes. State 0 is the empty ending.
type specials struct {
	tokens []special
	first  []int32 // of each state, the first state that is a byte longer; one more, to end the last
	bytes  []byte  // the first byte of each ending
	back   []int32 // the longest other state that the ending begins with
	found  []int32 // the longest token that the ending begins with, or −1
}

// newSpecials makes the automaton of tokens by their texts.
func newSpecials(ids map[string]int32) *specials {
	type entry struct {
		text string // read backwards
		id   int32
	}
	var entries []entry
	for text, id := range ids {
		if text == "" {
			continue // would be found everywhere
		}
		b := []byte(text)
		slices.Reverse(b)
		entries = append(entries, entry{string(b), id})
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.text, b.text) })

	s := &specials{bytes: []byte{0}, back: []int32{0}}
	// A state's entries are those that begin with it, and go on.
	type span struct{ from, to, depth int }
	states := []span{{0, len(entries), 0}}
	for n := 0; n < len(states); n++ {
		at := states[n]
		token := int32(-1)
		if at.depth > 0 {
			token = s.found[s.back[n]]
			if e := entries[at.from]; len(e.text) == at.depth {
				token = int32(len(s.tokens))
				s.tokens = append(s.tokens, special{e.id, at.depth})
				at.from++
			}
		}
		s.found = append(s.found, token)
		s.first = append(s.first, int32(len(states)))
		for from := at.from; from < at.to; {
			b := entries[from].text[at.depth]
			to := from + 1
			for to < at.to && entries[to].text[at.depth] == b {
				to++
			}
			back := int32(0)
			if n > 0 {
				back = s.next(s.back[n], b)
			}
			states = append(states, span{from, to, at.depth + 1})
			s.bytes, s.back = append(s.bytes, b), append(s.back, back)
			from = to
		}
	}
	s.first = append(s.first, int32(len(states)))
	return s
}

// next returns the state after state n and one byte more.
func (s *specials) next(n int32, b byte) int32 {
	for {
		longer := s.bytes[s.first[n]:s.first[n+1]]
		i, ok := slices.BinarySearch(longer, b)
		switch {
		case ok:
			return s.first[n] + int32(i)
		case n == 0:
			return 0
		}
		n = s.back[n]
	}
}

// in returns the tokens of a text with their places: the longest of those that begin first, and so
// on behind it.
func (s *specials) in(text []byte) iter.Seq2[int, special] {
	return func(yield func(int, special) bool) {
		if len(s.tokens) == 0 {
			return
		}
		starts := make([]int32, len(text))
		state := int32(0)
		for i, b := range slices.Backward(text) {
			state = s.next(state, b)
			starts[i] = s.found[state]
		}
		for i := 0; i < len(text); {
			if starts[i] < 0 {
				i++
				continue
			}
			token := s.tokens[starts[i]]
			if !yield(i, token) {
				return
			}
			i += token.length
		}
	}
}
