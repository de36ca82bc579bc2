package tokenizer

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// A Stream turns the pieces of generated tokens into text that can be shown at
// once: where a rune is split over tokens, its bytes are held until it is whole.
// Bytes that can no longer become a rune pass as they are, so that all that
// Write and Flush return, joined, is what was written. The zero value is ready.
type Stream struct {
	held []byte // the beginning of a rune
}

// Write takes the bytes of a token and returns what may be shown now, which is
// valid until the next call.
func (s *Stream) Write(piece []byte) []byte {
	text := append(s.held, piece...)
	n := len(text) - unfinished(text)
	s.held = bytes.Clone(text[n:])
	return text[:n]
}

// Flush returns the held bytes. The Stream is as new.
func (s *Stream) Flush() []byte {
	held := s.held
	s.held = nil
	return held
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
	stops   []string
	held    []byte // the longest end of the text that may begin a stop string
	stopped bool
}

// NewStopMatcher returns a matcher for stops, of which empty ones match nothing.
func NewStopMatcher(stops []string) *StopMatcher {
	m := &StopMatcher{}
	for _, s := range stops {
		if s != "" {
			m.stops = append(m.stops, s)
		}
	}
	return m
}

// Write takes the next piece of the text and returns what may be shown now, and
// whether a stop string was found. Then the returned text ends before it, and
// all later calls return nothing.
func (m *StopMatcher) Write(piece []byte) (text []byte, stopped bool) {
	if m.stopped {
		return nil, true
	}
	text = append(m.held, piece...)
	m.held = nil
	begin, end := 0, len(text)+1
	for _, s := range m.stops {
		i := bytes.Index(text, []byte(s))
		if e := i + len(s); i >= 0 && (e < end || e == end && i < begin) {
			begin, end = i, e
		}
	}
	if end <= len(text) {
		m.stopped = true
		return text[:begin], true
	}
	n := len(text) - m.pending(text)
	m.held = bytes.Clone(text[n:])
	return text[:n], false
}

// Flush returns the held text when there is no more to come.
func (m *StopMatcher) Flush() []byte {
	held := m.held
	m.held = nil
	return held
}

// pending returns the length of the longest end of text that begins a stop
// string.
func (m *StopMatcher) pending(text []byte) int {
	longest := 0
	for _, s := range m.stops {
		for n := min(len(s)-1, len(text)); n > longest; n-- {
			if strings.HasPrefix(s, string(text[len(text)-n:])) {
				longest = n
			}
		}
	}
	return longest
}
