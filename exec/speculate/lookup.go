package speculate

// A Lookup guesses that what followed the last tokens where they stood before follows again (prompt
// lookup; Saxena, 2023), or what follows the place that is like the end but for some tokens: text that is
// copied with changes, such as code with a name that is another. It costs one look through the
// sequence and no memory but the sequence.
type Lookup struct{ ids []int32 }

// The place with the longest match is taken, of those as long the one that is most like the end in the
// last window tokens, of these the last. Where nothing matches it must be like it in at least alike.
const (
	shortest = 2 // match
	longest  = 8
	window   = 16
	alike    = 10
)

// NewLookup returns a drafter for sequences of up to n tokens that begins with the prompt.
func NewLookup(prompt []int32, n int) *Lookup {
	return &Lookup{append(make([]int32, 0, max(n, len(prompt))), prompt...)}
}

// Accept adds the next token.
func (l *Lookup) Accept(id int32) { l.ids = append(l.ids, id) }

// Draft appends up to n guesses of what comes after dst to it. There are none where the last tokens are new.
func (l *Lookup) Draft(dst []int32, n int) []int32 {
	accepted := len(l.ids)
	l.ids = append(l.ids, dst...)
	defer func() { l.ids = l.ids[:accepted] }()
	end := len(l.ids)
	at, match, like := 0, 0, alike-1
	for i := end - 1; i > 0; i-- {
		m := commonEnd(l.ids[:i], l.ids, longest)
		if m < shortest {
			m = 0
		}
		if m < match {
			continue
		}
		if n := likeness(l.ids[:i], l.ids); m > match || n > like {
			at, match, like = i, m, n
		}
	}
	if at == 0 {
		return dst
	}
	begin := len(dst)
	for i := at; i < at+n; i++ {
		if i < end {
			dst = append(dst, l.ids[i])
		} else { // the match runs into the guesses: the text goes round
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

// likeness returns how many of the last tokens of a and b, the longer one, are equal, within the window.
func likeness(a, b []int32) int {
	n := 0
	for i := range min(len(a), window) {
		if a[len(a)-1-i] == b[len(b)-1-i] {
			n++
		}
	}
	return n
}
