package tokenizer

import (
	"cmp"
	"iter"
	"slices"
)

// A special is a token that is recognized anywhere in a text, before the text is split and merged.
type special struct {
	id     int32
	length int // in bytes
}

// specials finds special tokens in a text, the longest at each position, in time linear in the length
// of the text. It is an Aho-Corasick automaton (Efficient string matching, 1975) of the reversed
// tokens: it reads the text from the end to the beginning, so that at each byte it knows the longest
// token that begins there.
//
// Each state is a suffix of a token. States are sorted by length; the states that extend the same shorter
// suffix are adjacent, in the order of their first bytes. State 0 is the empty suffix.
type specials struct {
	tokens []special
	first  []int32 // for each state, the first state that extends it by a byte; one more entry as the end
	bytes  []byte  // for each state, the first byte of its suffix
	back   []int32 // for each state, the longest other state that is a prefix of its suffix
	found  []int32 // for each state, the longest token that is a prefix of its suffix, or −1
}

// newSpecials builds the automaton.
func newSpecials(ids map[string]int32) *specials {
	type entry struct {
		text string // reversed
		id   int32
	}
	var entries []entry
	for text, id := range ids {
		if text == "" {
			continue // it would match everywhere
		}
		b := []byte(text)
		slices.Reverse(b)
		entries = append(entries, entry{string(b), id})
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.text, b.text) })

	s := &specials{bytes: []byte{0}, back: []int32{0}}
	// The entries of a state are the longer texts that begin with it.
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

// next returns the state that follows state n when byte c is read.
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

// in returns the tokens in a text and their positions, from left to right: at each step the longest of
// the tokens that begin first. Tokens do not overlap.
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
