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
// tokens: it reads a text from the end to the beginning, so that at each byte it knows the longest
// token that begins there. It does so in blocks of the text, from left to right.
//
// Each state is a suffix of a token. States are sorted by length; the states that extend the same shorter
// suffix are adjacent, in the order of their first bytes. State 0 is the empty suffix.
type specials struct {
	tokens  []special
	longest int        // length of the longest token, in bytes
	first   []int32    // for each state, the first state that extends it by a byte; one more entry as the end
	bytes   []byte     // for each state, the first byte of its suffix
	back    []int32    // for each state, the longest other state that is a prefix of its suffix
	found   []int32    // for each state, the longest token that is a prefix of its suffix, or −1
	begin   [256]int32 // for each byte, the state that follows state 0; most bytes end no token
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
			if n == 0 {
				s.begin[b] = int32(len(states))
			} else {
				back = s.next(s.back[n], b)
			}
			states = append(states, span{from, to, at.depth + 1})
			s.bytes, s.back = append(s.bytes, b), append(s.back, back)
			from = to
		}
	}
	s.first = append(s.first, int32(len(states)))
	s.longest = states[len(states)-1].depth
	return s
}

// next returns the state that follows state n when byte b is read.
func (s *specials) next(n int32, b byte) int32 {
	for n != 0 {
		longer := s.bytes[s.first[n]:s.first[n+1]]
		if i, ok := slices.BinarySearch(longer, b); ok {
			return s.first[n] + int32(i)
		}
		n = s.back[n]
	}
	return s.begin[b]
}

// block is the least number of bytes in which tokens are searched at once. A block is a lot longer than
// a token, since the bytes after it are read twice.
const block = 1 << 14

// in returns the tokens in a text and their positions, from left to right: at each step the longest of
// the tokens that begin first. Tokens do not overlap. The tokens end early once the call ends.
func (s *specials) in(p *poll, text []byte) iter.Seq2[int, special] {
	return func(yield func(int, special) bool) {
		if len(s.tokens) == 0 {
			return
		}
		starts := make([]int32, min(len(text), max(block, 8*s.longest)))
		for from := 0; from < len(text); {
			to := min(from+len(starts), len(text))
			if !s.find(p, text[from:min(to+s.longest, len(text))], starts[:to-from]) {
				return
			}
			i := from
			for i < to {
				if starts[i-from] < 0 {
					i++
					continue
				}
				token := s.tokens[starts[i-from]]
				if !yield(i, token) {
					return
				}
				i += token.length
			}
			from = i
		}
	}
}

// find finds the longest token that begins at each of the first bytes of text, or −1. The text goes on for
// the length of the longest token, if it does not end. The result is false if the call ended.
func (s *specials) find(p *poll, text []byte, starts []int32) bool {
	state := int32(0)
	for i := len(text) - 1; i >= 0; i-- {
		if last(i) && p.ended(interval) {
			return false
		}
		if state == 0 {
			state = s.begin[text[i]] // as next returns, without a call for most bytes
		} else {
			state = s.next(state, text[i])
		}
		if i < len(starts) {
			starts[i] = s.found[state]
		}
	}
	return true
}
