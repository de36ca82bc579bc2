package virtual

import "fmt"

// A shared is the shared memory of a group of threads. For every 4 bytes it records the last writer and
// the last reader. The barriers of the group separate epochs; within a warp, bar.warp.sync separates
// ages. Two accesses race if they are by different threads in the same epoch (and, within a warp, at the
// same age) and one of them is a write, unless all write the value that is already there. A race is
// reported in whatever order the warps run.
type shared struct {
	data  []byte
	epoch uint64 // current epoch
	begun uint64 // epoch at the start of the current block; earlier writes are by another block

	// A mark for each 4 bytes, of the last write and the last read.
	writes, reads []mark
	// If threads access parts of 4 bytes, a mark for each byte. It is valid while the mark of the 4 bytes
	// is of this epoch and has split set.
	byteWrites, byteReads []mark

	// For each 16 bytes, the epoch in which they were last found to be completely written before that
	// epoch. It is used for loads between barriers without a write in between, unless warps wait at
	// different barriers at the same time (strict).
	verified []uint64
	strict   bool
}

// A mark has the epoch (24 bits), the age (20 bits), who accessed (12 bits), and 8 flags, of which the
// lower 4 say which of the 4 bytes were ever written.
type mark uint64

const (
	markEpoch         = 40
	markAge           = 20
	markWho           = 8
	split        mark = 1 << 7 // use the marks of the single bytes
	pending      mark = 1 << 6 // target of an asynchronous copy that has not been waited for
	writtenBytes mark = 15
)

// Who accessed: the number of a thread in its block plus 1, or one of these.
const (
	warpMany   = 1025 // several threads of warp n: warpMany + n
	manyAtomic = 4094 // by atomic instructions
	many       = 4095
)

func (m mark) epoch() uint64 { return uint64(m) >> markEpoch }
func (m mark) age() uint32   { return uint32(m>>markAge) & (1<<20 - 1) }
func (m mark) who() uint32   { return uint32(m>>markWho) & 4095 }

// warp returns the warp that all the accessing threads belong to, or −1.
func (m mark) warp() int {
	switch who := m.who(); {
	case who >= manyAtomic:
		return -1
	case who >= warpMany:
		return int(who - warpMany)
	default:
		return int(who-1) / 32
	}
}

func newShared(bytes int) shared {
	words := (bytes + 3) / 4
	return shared{
		data: make([]byte, bytes), epoch: 1, begun: 1,
		writes: make([]mark, words), reads: make([]mark, words),
		byteWrites: make([]mark, 4*words), byteReads: make([]mark, 4*words),
		verified: make([]uint64, words/4+1),
	}
}

// begin prepares the memory for another block of threads.
func (s *shared) begin() {
	s.epoch++
	if s.epoch > 1<<23 {
		clear(s.writes)
		clear(s.reads)
		clear(s.verified)
		s.epoch = 1
	}
	s.begun, s.strict = s.epoch, false
}

// now returns the mark of a thread.
func (s *shared) now(w *warp, lane int) mark {
	return mark(s.epoch<<markEpoch) | mark(w.age)<<markAge | mark(w.number*32+lane+1)<<markWho
}

// apart reports whether the access that left a mark is unordered with the thread whose mark is me.
func (s *shared) apart(m, me mark) bool {
	if m.epoch() != s.epoch || m.who() == me.who() || m.who() == 0 {
		return false
	}
	return m.warp() != me.warp() || m.age() >= me.age()
}

// with returns a mark with an additional read by me.
func (s *shared) with(m, me mark) mark {
	switch {
	case m.epoch() != s.epoch || m.who() == 0 || m.who() == me.who():
		return me
	case m.warp() != me.warp():
		return me&^(4095<<markWho) | many<<markWho
	case m.age() < me.age(): // for races with other warps, it does not matter which thread it was
		return me
	}
	return me&^(4095<<markWho) | mark(warpMany+me.warp())<<markWho
}

// check checks an access of n bytes by a lane, marks it, and returns what is wrong with it, or "".
func (s *shared) check(w *warp, lane int, at, n uint64, write, atomic bool) string {
	me := s.now(w, lane)
	if at&3 == 0 && n&3 == 0 && !atomic {
		for i := at / 4; i < (at+n)/4; i++ {
			m, r := s.writes[i], s.reads[i]
			// Most accesses are to bytes that were written in an earlier epoch or by the same thread.
			quick := m&(pending|split) == 0 && r&split == 0 && (m.epoch() < s.epoch || m.who() == me.who())
			switch {
			case quick && write && (r.epoch() < s.epoch || r.who() == me.who()):
				s.writes[i] = me | writtenBytes
			case quick && !write && m.epoch() >= s.begun && m&writtenBytes == writtenBytes:
				if r.epoch() < s.epoch || r.who() == me.who() {
					s.reads[i] = me
				} else if r.who() != many {
					s.reads[i] = s.with(r, me)
				}
			default:
				if wrong := s.careful(i, 15, me, write, false); wrong != "" {
					return wrong
				}
			}
		}
		return ""
	}
	for i := at / 4; i <= (at+n-1)/4; i++ {
		from, to := max(at, 4*i)-4*i, min(at+n, 4*i+4)-4*i
		if wrong := s.careful(i, mark(1<<to-1<<from), me, write, atomic); wrong != "" {
			return wrong
		}
	}
	return ""
}

// verify reports whether 16 bytes were written before this epoch.
func (s *shared) verify(i uint64) {
	for _, m := range s.writes[4*i : min(4*i+4, uint64(len(s.writes)))] {
		if m.epoch() < s.begun || m.epoch() >= s.epoch || m&(pending|writtenBytes) != writtenBytes {
			return
		}
	}
	s.verified[i] = s.epoch
}

// careful checks an access to some of 4 bytes.
func (s *shared) careful(i uint64, bytes, me mark, write, atomic bool) string {
	wm, rm := s.writes[i], s.reads[i]
	if wm.epoch() < s.begun {
		wm = 0
	}
	if wm&pending != 0 {
		return "which cp.async fills and no thread has waited for"
	}
	if (!write || atomic) && wm&bytes != bytes {
		return "which was never written"
	}
	parts := bytes != 15
	for b := range uint64(4) {
		if bytes>>b&1 == 0 {
			continue
		}
		bw, br := wm, rm
		if wm.epoch() == s.epoch && wm&split != 0 {
			bw = s.byteWrites[4*i+b]
		}
		if rm.epoch() == s.epoch && rm&split != 0 {
			br = s.byteReads[4*i+b]
		}
		if s.apart(bw, me) && !(atomic && bw.who() == manyAtomic) {
			return "race: " + s.who(bw) + " wrote it, with no barrier between"
		}
		if write && s.apart(br, me) {
			return "race: " + s.who(br) + " read it, with no barrier between"
		}
	}
	if write {
		old := wm & writtenBytes
		if atomic {
			me = me&^(4095<<markWho) | manyAtomic<<markWho
		}
		s.writes[i] = s.update(wm, me, bytes, parts, s.byteWrites[4*i:4*i+4], true) | old | bytes
		return ""
	}
	s.reads[i] = s.update(rm, me, bytes, parts, s.byteReads[4*i:4*i+4], false)
	return ""
}

// update returns the mark of 4 bytes after an access to some of them, and splits it if necessary.
func (s *shared) update(m, me, bytes mark, parts bool, each []mark, write bool) mark {
	if m.epoch() != s.epoch {
		m = 0
	}
	if m&split == 0 && !parts {
		if write {
			return me
		}
		return s.with(m&^writtenBytes, me)
	}
	if m&split == 0 {
		for b := range each {
			each[b] = m &^ (split | pending | writtenBytes)
		}
	}
	for b := range each {
		if bytes>>b&1 == 0 {
			continue
		}
		if write {
			each[b] = me
		} else {
			each[b] = s.with(each[b], me)
		}
	}
	return me | split
}

// who describes the threads of a mark.
func (s *shared) who(m mark) string {
	switch who := m.who(); {
	case who == manyAtomic:
		return "an atomic instruction"
	case who == many:
		return "other threads"
	case who >= warpMany:
		return fmt.Sprintf("threads of warp %d", who-warpMany)
	default:
		return fmt.Sprintf("thread %d of the block", who-1)
	}
}

// pend marks bytes as the target of a lane's asynchronous copy; settle clears that mark.
func (s *shared) pend(at, n uint64) {
	for i := at / 4; i < (at+n)/4; i++ {
		s.writes[i] |= pending
	}
}

func (s *shared) settle(w *warp, lane int, at, n uint64) {
	me := s.now(w, lane)
	for i := at / 4; i < (at+n)/4; i++ {
		s.writes[i] = me | writtenBytes
	}
}
