package tokenizer

import (
	"bytes"
	"unicode/utf8"
)

// A Stream converts the bytes of generated tokens to text that can be displayed immediately: if a
// rune is split between tokens, its bytes are held until it is complete. Bytes that cannot become a
// rune are passed on unchanged, so that the concatenated results of Write and Flush equal the
// written bytes. The zero value is ready to use.
type Stream struct {
	holder
}

// Write takes the bytes of a token and returns the text that can be displayed now.
// It is valid until the next call.
func (s *Stream) Write(piece []byte) []byte {
	text := s.add(piece)
	return s.release(len(text) - unfinished(text))
}

// Flush returns the held bytes, valid until the next call, and resets the Stream.
func (s *Stream) Flush() []byte { return s.release(len(s.add(nil))) }

// A holder collects pieces of text and holds back some bytes until more arrive. It reuses one buffer,
// so that nothing is allocated per token.
type holder struct {
	text []byte
	out  int // number of bytes of text that were released
}

// add appends the piece to the held bytes and returns both.
func (h *holder) add(piece []byte) []byte {
	h.text = append(append(h.text[:0], h.text[h.out:]...), piece...)
	h.out = 0
	return h.text
}

// release returns the first n bytes of add's result, valid until the next call of add, and holds
// the rest.
func (h *holder) release(n int) []byte {
	h.out = n
	return h.text[:n:n]
}

// unfinished returns the length of the incomplete rune at the end of text.
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

// A StopMatcher finds the first stop string in a text that arrives in pieces: the one that is
// complete first, and the longest of the ones that end together. Text that may be the beginning of
// a stop string is held until it is certain whether it is, so that no part of a stop string is ever
// returned. It works on bytes and must come before a [Stream].
type StopMatcher struct {
	stops   [][]byte
	holder  // holds the longest suffix of the text that may begin a stop string
	stopped bool
}

// NewStopMatcher returns a matcher for stops. Empty strings match nothing.
func NewStopMatcher(stops []string) *StopMatcher {
	m := &StopMatcher{}
	for _, s := range stops {
		if s != "" {
			m.stops = append(m.stops, []byte(s))
		}
	}
	return m
}

// Write takes the next piece of the text and returns the text that can be
// displayed now, valid until the next call, and whether a stop string was found.
// If so, the returned text ends before it, and all later calls return nothing.
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

// Flush returns the held text, valid until the next call. Call it at the end of the text.
func (m *StopMatcher) Flush() []byte { return m.release(len(m.add(nil))) }

// pending returns the length of the longest suffix of text with which a stop
// string begins.
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
