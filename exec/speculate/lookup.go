package speculate

// A Lookup drafts the tokens that followed an earlier occurrence of the last tokens (prompt lookup;
// Saxena, 2023), or else the tokens after a place that is similar to the end: text that is copied
// with changes, such as code with another name. A draft takes one scan of the sequence and no
// memory apart from it.
type Lookup struct{ ids []int32 }

// The draft comes from the place with the longest match; among equal lengths from the place with
// the most equal tokens in the window of last tokens; among these from the last place. Without a
// match, at least minSimilar tokens of the window must be equal.
const (
	minMatch   = 2
	maxMatch   = 8
	window     = 16
	minSimilar = 10
)

// NewLookup returns a drafter for sequences of up to n tokens that begins with the prompt.
func NewLookup(prompt []int32, n int) *Lookup {
	return &Lookup{append(make([]int32, 0, max(n, len(prompt))), prompt...)}
}

// Accept adds the next token.
func (l *Lookup) Accept(id int32) { l.ids = append(l.ids, id) }

// Draft appends up to n draft tokens to dst, none if no place is similar to the end.
func (l *Lookup) Draft(dst []int32, n int) []int32 {
	accepted := len(l.ids)
	l.ids = append(l.ids, dst...)
	defer func() { l.ids = l.ids[:accepted] }()
	end := len(l.ids)
	at, match, similar := 0, 0, minSimilar-1
	for i := end - 1; i > 0; i-- {
		m := commonEnd(l.ids[:i], l.ids, maxMatch)
		if m < minMatch {
			m = 0
		}
		if m < match {
			continue
		}
		if n := similarity(l.ids[:i], l.ids); m > match || n > similar {
			at, match, similar = i, m, n
		}
	}
	if at == 0 {
		return dst
	}
	begin := len(dst)
	for i := at; i < at+n; i++ {
		if i < end {
			dst = append(dst, l.ids[i])
		} else { // the match runs into the draft: the text repeats
			dst = append(dst, dst[begin+i-end])
		}
	}
	return dst
}

// commonEnd returns the length of the common suffix of a and b, up to most. b is the longer one.
func commonEnd(a, b []int32, most int) int {
	n := 0
	for n < min(len(a), most) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// similarity returns the number of equal tokens at equal distances from the ends of a and b, within
// the window. b is the longer one.
func similarity(a, b []int32) int {
	n := 0
	for i := range min(len(a), window) {
		if a[len(a)-1-i] == b[len(b)-1-i] {
			n++
		}
	}
	return n
}
