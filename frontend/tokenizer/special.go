package tokenizer

import "slices"

// specials finds tokens that stand for themselves wherever they occur in a
// text, before it is split and merged.
type specials struct {
	ids map[string]int32
	// lengths of the tokens by their first byte, in bytes, longest first. There
	// are few, so that a position costs a few look-ups whatever the number of
	// tokens.
	lengths [256][]int
}

// add enters a token. Of two with the same text the last one stays.
func (s *specials) add(text string, id int32) {
	if text == "" {
		return // would match everywhere and never advance
	}
	if s.ids == nil {
		s.ids = map[string]int32{}
	}
	s.ids[text] = id
	at := &s.lengths[text[0]]
	i, found := slices.BinarySearchFunc(*at, len(text), func(a, b int) int { return b - a })
	if !found {
		*at = slices.Insert(*at, i, len(text))
	}
}

// at returns the longest token at the start of text, and its length in bytes,
// 0 where there is none.
func (s *specials) at(text []byte) (id int32, n int) {
	for _, n := range s.lengths[text[0]] {
		if n <= len(text) {
			if id, ok := s.ids[string(text[:n])]; ok {
				return id, n
			}
		}
	}
	return 0, 0
}
