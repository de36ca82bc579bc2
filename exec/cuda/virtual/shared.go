package virtual

import "fmt"

// A shared is the shared memory of a group of threads. Beside the bytes it keeps for each 4 of them
// who wrote and who read them last. Between two barriers of the group is an epoch; within a warp
// bar.warp.sync separates ages. Two accesses race when they come from different threads in the same
// epoch, and, within a warp, at the same age, and one of them writes; unless all write what is there
// already. A race is reported whatever the order in which the warps happen to run.
type shared struct {
	data  []byte
	epoch uint64 // of now
	begun uint64 // when the group's block began: what was written before was written by another block

	// A mark for each 4 bytes, of the last write and the last read.
	writes, reads []mark
	// Where threads touch parts of 4 bytes, a mark for each byte, in use while the mark of the
	// whole is of this epoch and has split.
	byteWrites, byteReads []mark

	// For each 16 bytes the epoch in which they were last seen to be written, all before it. It holds
	// for loads between barriers between which nothing writes, unless warps are at different barriers
	// at the same time: strict.
	verified []uint64
	strict   bool
}

// A mark is: the epoch (24 bits), the age (20), who (12), and 8 bits of flags, of which the lower 4
// tell which of the 4 bytes were ever written.
type mark uint64

const (
	markEpoch         = 40
	markAge           = 20
	markWho           = 8
	split        mark = 1 << 7 // the marks of the bytes hold
	pending      mark = 1 << 6 // an asynchronous copy writes here that nobody has waited for
	writtenBytes mark = 15
)

// Who: a thread's number in its block plus 1, or one of these.
const (
	warpMany   = 1025 // several threads of warp n: warpMany + n
	manyAtomic = 4094 // by atomic instructions
	many       = 4095
)

func (m mark) epoch() uint64 { return uint64(m) >> markEpoch }
func (m mark) age() uint32   { return uint32(m>>markAge) & (1<<20 - 1) }
func (m mark) who() uint32   { return uint32(m>>markWho) & 4095 }

// warp returns the warp that all who are meant belong to, −1 where it is none.
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

// begin makes the memory that of another block of threads.
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

// now is the mark of a thread.
func (s *shared) now(w *warp, lane int) mark {
	return mark(s.epoch<<markEpoch) | mark(w.age)<<markAge | mark(w.number*32+lane+1)<<markWho
}

// apart tells whether an access that left a mark is not ordered with the thread whose mark is me.
func (s *shared) apart(m, me mark) bool {
	if m.epoch() != s.epoch || m.who() == me.who() || m.who() == 0 {
		return false
	}
	return m.warp() != me.warp() || m.age() >= me.age()
}

// with adds a read by me to a mark.
func (s *shared) with(m, me mark) mark {
	switch {
	case m.epoch() != s.epoch || m.who() == 0 || m.who() == me.who():
		return me
	case m.warp() != me.warp():
		return me&^(4095<<markWho) | many<<markWho
	case m.age() < me.age(): // to other warps it is all the same which thread it was
		return me
	}
	return me&^(4095<<markWho) | mark(warpMany+me.warp())<<markWho
}

// check looks at an access of n bytes by a lane, marks it, and returns what is wrong with it.
func (s *shared) check(w *warp, lane int, at, n uint64, write, atomic bool) string {
	me := s.now(w, lane)
	if at&3 == 0 && n&3 == 0 && !atomic {
		for i := at / 4; i < (at+n)/4; i++ {
			m, r := s.writes[i], s.reads[i]
			// Most accesses are to what was written in an epoch before, or by the same thread.
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

// verify looks whether 16 bytes were written before this epoch.
func (s *shared) verify(i uint64) {
	for _, m := range s.writes[4*i : min(4*i+4, uint64(len(s.writes)))] {
		if m.epoch() < s.begun || m.epoch() >= s.epoch || m&(pending|writtenBytes) != writtenBytes {
			return
		}
	}
	s.verified[i] = s.epoch
}

// careful is an access to some of 4 bytes.
func (s *shared) careful(i uint64, bytes, me mark, write, atomic bool) string {
	wm, rm := s.writes[i], s.reads[i]
	if wm.epoch() < s.begun {
		wm = 0
	}
	if wm&pending != 0 {
		return "which cp.async fills and nobody has waited for"
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

// update returns the mark of 4 bytes of which some were accessed, and splits it where it must.
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

// who tells whose a mark is.
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

// pend marks bytes that an asynchronous copy of a lane fills; settle ends that.
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
