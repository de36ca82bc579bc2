package tokenizer

import "unicode/utf8"

// A cost function returns the rank of merging text[lo:mid] with text[mid:hi] of
// the word in e, and whether they can be merged. The lowest rank is merged first.
type cost func(e *encoder, lo, mid, hi int) (float64, bool)

// byRank ranks by the position in the merges list (BPE).
func byRank(e *encoder, lo, mid, hi int) (float64, bool) {
	e.key = append(e.key[:0], e.word[lo:mid]...)
	e.key = append(e.key, ' ')
	e.key = append(e.key, e.word[mid:hi]...)
	rank, ok := e.t.ranks[string(e.key)]
	return float64(rank), ok
}

// byScore ranks the token with the highest score first (SentencePiece).
func byScore(e *encoder, lo, mid, hi int) (float64, bool) {
	id, ok := e.t.ids[string(e.word[lo:hi])]
	if !ok {
		return 0, false
	}
	return -float64(e.t.scores[id]), true
}

// A span is a part of the word that is not split again: a rune at first, then
// the result of merges. Spans form a linked list within one slice.
type span struct {
	lo, hi     int32 // in bytes; lo == hi when absorbed by the left neighbor
	prev, next int32 // indexes of spans, −1 at the ends
}

// A pair is a possible merge of two adjacent spans, in the heap. It is out of
// date if the two no longer cover size bytes.
type pair struct {
	cost        float64
	left, right int32 // indexes of spans
	size        int32
}

func (p pair) before(q pair) bool {
	return p.cost < q.cost || p.cost == q.cost && p.left < q.left
}

// merge cuts e.word into e.spans: it merges the adjacent spans of lowest cost, the
// leftmost of equals, until no merge is possible. With a heap of pairs this takes
// O(n log n) time for n runes. Once the call ends, e.spans are not complete.
func (e *encoder) merge() {
	e.spans, e.pairs = e.spans[:0], e.pairs[:0]
	for lo := 0; lo < len(e.word); {
		_, w := utf8.DecodeRune(e.word[lo:])
		i := int32(len(e.spans))
		if last(int(i)) {
			e.spans, e.pairs = room(&e.poll, e.spans, interval), room(&e.poll, e.pairs, interval)
			if e.poll.ended(interval) {
				return
			}
		}
		e.spans = append(e.spans, span{int32(lo), int32(lo + w), i - 1, i + 1})
		e.propose(i-1, i)
		lo += w
	}
	e.spans[len(e.spans)-1].next = -1

	for n := 0; len(e.pairs) > 0; n++ {
		if last(n) {
			e.pairs = room(&e.poll, e.pairs, interval) // a merge takes one pair and gives at most two
			if e.poll.ended(interval) {
				return
			}
		}
		p := e.pairs.pop()
		l, r := &e.spans[p.left], &e.spans[p.right]
		if l.lo == l.hi || r.lo == r.hi || r.hi-l.lo != p.size {
			continue
		}
		l.hi, l.next = r.hi, r.next
		r.lo = r.hi
		if l.next >= 0 {
			e.spans[l.next].prev = p.left
		}
		e.propose(l.prev, p.left)
		e.propose(p.left, l.next)
	}
}

func (e *encoder) propose(left, right int32) {
	if left < 0 || right < 0 {
		return
	}
	l, r := e.spans[left], e.spans[right]
	if c, ok := e.t.model.cost(e, int(l.lo), int(l.hi), int(r.hi)); ok {
		e.pairs.push(pair{c, left, right, r.hi - l.lo})
	}
}

// pairHeap is a binary heap. container/heap would allocate for every pair.
type pairHeap []pair

func (h *pairHeap) push(p pair) {
	*h = append(*h, p)
	s := *h
	i := len(s) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !p.before(s[up]) {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = p
}

func (h *pairHeap) pop() pair {
	s := *h
	top, last := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	i := 0
	for {
		down := 2*i + 1
		if down >= len(s) {
			break
		}
		if down+1 < len(s) && s[down+1].before(s[down]) {
			down++
		}
		if !s[down].before(last) {
			break
		}
		s[i] = s[down]
		i = down
	}
	if len(s) > 0 {
		s[i] = last
	}
	return top
}
