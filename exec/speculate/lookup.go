package speculate

// A Lookup guesses that what followed the last tokens where they stood before follows again. It
// costs one look through the sequence and no memory but the sequence.
type Lookup struct{ ids []int32 }

// Lengths of the contexts that are looked for: the longest match is taken, of equal ones the last.
const (
	shortest = 2
	longest  = 8
)

// NewLookup returns a drafter for sequences of up to n tokens that begins with the prompt.
func NewLookup(prompt []int32, n int) *Lookup {
	return &Lookup{append(make([]int32, 0, max(n, len(prompt))), prompt...)}
}

// Accept adds the next token.
func (l *Lookup) Accept(id int32) { l.ids = append(l.ids, id) }

// Draft appends up to n guesses to dst. There are none where the last tokens are new.
func (l *Lookup) Draft(dst []int32, n int) []int32 {
	end := len(l.ids)
	at, length := 0, shortest-1
	for i := end - 1; i > length && length < longest; i-- {
		if m := commonEnd(l.ids[:i], l.ids, longest); m > length {
			at, length = i, m
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
