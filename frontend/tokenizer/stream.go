package tokenizer

import (
	"bytes"
	"unicode/utf8"
)

// A Stream turns the pieces of generated tokens into text that can be shown at
// once: where a rune is split over tokens, its bytes are held until it is whole.
// Bytes that can no longer become a rune pass as they are, so that all that
// Write and Flush return, joined, is what was written. The zero value is ready.
type Stream struct {
	holder
}

// Write takes the bytes of a token and returns what may be shown now, which is
// valid until the next call.
func (s *Stream) Write(piece []byte) []byte {
	text := s.add(piece)
	return s.release(len(text) - unfinished(text))
}

// Flush returns the held bytes, valid until the next call. The Stream is as new.
func (s *Stream) Flush() []byte { return s.release(len(s.add(nil))) }

// A holder gathers pieces of text of which some bytes are held until more come. It keeps one
// buffer, so that a token that is generated allocates nothing.
type holder struct {
	text []byte
	out  int // bytes of text that were released
}

// add returns the held bytes with the piece behind them.
func (h *holder) add(piece []byte) []byte {
	h.text = append(append(h.text[:0], h.text[h.out:]...), piece...)
	h.out = 0
	return h.text
}

// release returns the first n bytes of what add returned, valid until it is called again, and holds
// the others.
func (h *holder) release(n int) []byte {
	h.out = n
	return h.text[:n:n]
}

// unfinished returns the length of the beginning of a rune at the end of text.
func unfinished(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// A StopMatcher finds the first stop string in a text that comes in pieces: the
// one that is complete first, and of those that end together the longest. What may be the first part of a stop string is held until that is known, so
// that no part of one is ever returned. It works on bytes: put it before a
// [Stream].
type StopMatcher struct {
	stops   [][]byte
	holder  // of the longest end of the text that may begin a stop string
	stopped bool
}

// NewStopMatcher returns a matcher for stops, of which empty ones match nothing.
func NewStopMatcher(stops []string) *StopMatcher {
	m := &StopMatcher{}
	for _, s := range stops {
		if s != "" {
			m.stops = append(m.stops, []byte(s))
		}
	}
	return m
}

// Write takes the next piece of the text and returns what may be shown now, valid
// until the next call, and whether a stop string was found. Then the returned text
// ends before it, and all later calls return nothing.
func (m *StopMatcher) Write(piece []byte) (text []byte, stopped bool) {
	if m.stopped {
		return nil, true
	}
	text = m.add(piece)
	begin, end := 0, len(text)+1
	for _, s := range m.stops {
		i := bytes.Index(text, s)
		if e := i + len(s); i >= 0 && (e < end || e == end && i < begin) {
			begin, end = i, e
		}
	}
	if end <= len(text) {
		m.stopped = true
		text = m.release(begin)
		m.out = len(m.text) // nothing is held
		return text, true
	}
	return m.release(len(text) - m.pending(text)), false
}

// Flush returns the held text, valid until the next call, when there is no more to come.
func (m *StopMatcher) Flush() []byte { return m.release(len(m.add(nil))) }

// pending returns the length of the longest end of text that begins a stop
// string.
func (m *StopMatcher) pending(text []byte) int {
	longest := 0
	for _, s := range m.stops {
		for n := min(len(s)-1, len(text)); n > longest; n-- {
			if bytes.HasPrefix(s, text[len(text)-n:]) {
				longest = n
			}
		}
	}
	return longest
}
