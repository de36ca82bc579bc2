package tokenizer

import "context"

// interval is the number of steps between two checks of the context, a power of two. A step is a
// byte, a span or a merge. In a word of many megabytes a merge takes a few microseconds, since
// little of the word is in a cache.
const interval = 1 << 10

// A poll counts the steps of one call of Encode and checks its context now and then. Once the call
// has failed or its context has ended, all that it does ends soon, with results that are not used.
// Loops count steps in a variable of their own, and tell them to the poll at each interval.
type poll struct {
	ctx  context.Context
	left int   // steps until the next check; not positive once err is set
	err  error // why the call ends early
}

// ended counts steps and reports whether the call ends early.
func (p *poll) ended(steps int) bool {
	p.left -= steps
	return p.left <= 0 && p.check()
}

func (p *poll) check() bool {
	if p.err == nil {
		p.err = p.ctx.Err()
	}
	if p.err != nil {
		return true
	}
	p.left = interval
	return false
}

// last reports whether step n, counted from 0, is the last of an interval. The context is checked
// then, so that short words have no checks.
func last(n int) bool { return n&(interval-1) == interval-1 }

// fail ends the call with an error, unless it has ended.
func (p *poll) fail(err error) {
	if p.err == nil {
		p.left, p.err = 0, err
	}
}

// copied is the most elements that are copied between two checks of the context.
const copied = 1 << 16

// room returns s with room for n more elements. Unlike append, it can end early where s is long: then
// the result has fewer elements.
func room[T any](p *poll, s []T, n int) []T {
	if len(s)+n <= cap(s) || len(s) < copied {
		return s // to which append copies quickly
	}
	return copyTo(p, allocate[T](p, len(s)+len(s)/4+n), s)
}

// allocate returns an empty slice with room for n elements, or nil if the call ends. To clear memory for
// a huge slice can take a second, so another goroutine does it.
func allocate[T any](p *poll, n int) []T {
	if n < copied {
		return make([]T, 0, n)
	}
	made := make(chan []T, 1)
	go func() { made <- make([]T, 0, n) }()
	select {
	case s := <-made:
		return s
	case <-p.ctx.Done():
		p.check()
		return nil
	}
}

// copyTo appends src to dst, which has room for it, in parts. It can end early.
func copyTo[T any](p *poll, dst, src []T) []T {
	for len(src) > 0 && !p.ended(interval) {
		n := min(len(src), copied)
		dst, src = append(dst, src[:n]...), src[n:]
	}
	return dst
}
