package virtual

import (
	"math/bits"

	"pesti/exec/cuda/virtual/ptx"
)

// A copied is the shared memory that one lane's cp.async writes.
type copied struct {
	lane  int
	at, n uint64
}

// copies are the asynchronous copies of a warp's threads. The bytes are copied at once, but reading them
// before cp.async.wait_group is a fault.
type copies struct {
	open   []copied   // since the last commit
	groups [][]copied // the oldest first
}

func (c *copies) clear() { c.open, c.groups = c.open[:0], c.groups[:0] }

// cp is cp.async and its commit and wait instructions.
func (c *compiler) cp(in *ptx.Instr) (func(w *warp), error) {
	switch {
	case len(in.Suffix) == 0 || in.Suffix[0] != "async":
		return nil, unknown(in)
	case in.Opcode() == "cp.async.commit_group" && len(in.Args) == 0:
		return func(w *warp) {
			c := &w.copies
			c.groups = append(c.groups, append([]copied(nil), c.open...))
			c.open = c.open[:0]
		}, nil
	case in.Opcode() == "cp.async.wait_all" && len(in.Args) == 0:
		return func(w *warp) {
			w.copies.groups = append(w.copies.groups, append([]copied(nil), w.copies.open...))
			w.copies.open = w.copies.open[:0]
			w.settle(0)
		}, nil
	case in.Opcode() == "cp.async.wait_group" && len(in.Args) == 1 && in.Args[0].Kind == ptx.Immediate:
		n := int(in.Args[0].Value)
		return func(w *warp) { w.settle(n) }, nil
	}
	return c.cpAsync(in)
}

// settle completes all groups of copies but the last n.
func (w *warp) settle(n int) {
	c := &w.copies
	for len(c.groups) > max(n, 0) {
		for _, one := range c.groups[0] {
			w.group.shared.settle(w, one.lane, one.at, one.n)
		}
		c.groups = c.groups[1:]
	}
}

// cpAsync is "cp.async.cg.shared.global [dst], [src], 16, size;". Bytes beyond size are zero.
func (c *compiler) cpAsync(in *ptx.Instr) (func(w *warp), error) {
	toShared, fromGlobal := 0, 0
	for _, s := range in.Suffix[1:] {
		switch {
		case s == "shared" || s == "shared::cta":
			toShared++
		case s == "global":
			fromGlobal++
		case s == "ca" || s == "cg" || isHint(s):
		default:
			return nil, unknown(in)
		}
	}
	if toShared != 1 || fromGlobal != 1 || len(in.Args) < 3 || len(in.Args) > 4 {
		return nil, unknown(in)
	}
	r := reader{c: c, in: in}
	total := r.immediate(2)
	if r.err != nil || total != 4 && total != 8 && total != 16 {
		return nil, unknown(in)
	}
	dst := access{opcode: in.Opcode(), space: sharedSpace, total: total, write: true}
	src := access{opcode: in.Opcode(), space: global, total: total}
	if err := c.to(in, &dst, &in.Args[0]); err != nil {
		return nil, err
	}
	if err := c.to(in, &src, &in.Args[1]); err != nil {
		return nil, err
	}
	size := c.constant(total)
	if len(in.Args) == 4 {
		size = r.word(3)
	}
	return func(w *warp) {
		to := *w.addresses(&dst)
		from := w.addresses(&src)
		fromCounts, toCounts := w.group.traffic(global), w.group.traffic(sharedSpace)
		fromCounts.Requests++
		toCounts.Requests++
		toCounts.Written += int64(bits.OnesCount32(w.mask)) * int64(total)
		toCounts.Cut(passes(&to, w.mask, 32, total))
		var read uint32
		for m := w.mask; m != 0; m &= m - 1 {
			lane := first(m)
			n := min(uint64(w.words[size][lane]), total)
			b := w.bytes(&dst, sharedSpace, lane, to[lane])
			if b == nil {
				return
			}
			clear(b[n:])
			if n > 0 {
				part := src
				for part.total = total; part.total > n; part.total /= 2 {
				}
				if part.total != n || from[lane]%total != 0 {
					part.total = total // a misaligned address or an odd size: check the whole range
				}
				a := w.bytes(&part, global, lane, from[lane])
				if a == nil {
					return
				}
				copy(b[:n], a)
				fromCounts.Read += int64(n)
				read |= 1 << lane
			}
			w.group.shared.pend(to[lane], total)
			w.copies.open = append(w.copies.open, copied{lane, to[lane], total})
		}
		fromCounts.Cut(coalesced(from, read, total))
	}, r.err
}
