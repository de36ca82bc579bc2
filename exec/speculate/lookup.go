package speculate

// A Lookup drafts the tokens that followed an earlier occurrence of the last tokens (prompt lookup;
// Saxena, 2023), or else of a place that is similar to the end: text that is copied with changes, such as
// code with another name. A draft costs one scan of the sequence, and no memory but the sequence.
type Lookup struct{ ids []int32 }

// The draft comes from the place with the longest match, of equally long ones from that with most equal
// tokens among the last window tokens, of these from the last. Without a match at least minSimilar tokens
// of the window must be equal.
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

// Draft appends up to n draft tokens to dst, none where no place is similar to the end.
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

// commonEnd returns how many last tokens a and b, the longer one, have in common, up to most.
func commonEnd(a, b []int32, most int) int {
	n := 0
	for n < min(len(a), most) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// similarity returns how many of the last tokens of a and b, the longer one, are equal, within the window.
func similarity(a, b []int32) int {
	n := 0
	for i := range min(len(a), window) {
		if a[len(a)-1-i] == b[len(b)-1-i] {
			n++
		}
	}
	return n
}
