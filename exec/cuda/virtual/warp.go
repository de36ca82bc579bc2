package virtual

import (
	"fmt"
	"math/bits"

	"pesti/exec/cuda"
)

// A state of a warp.
type state uint8

const (
	ready  state = iota
	halted       // at a barrier
	left         // all threads have left the kernel
)

// A barrier is the barrier at which a warp waits.
type barrier struct {
	id      int
	threads int // number of threads that it waits for; 0 means all of the block
}

// A warp is 32 threads that execute the same instructions. When they diverge, one path is executed first,
// up to the basic block in which the paths reconverge.
type warp struct {
	group  *group
	number int
	state  state
	all    uint32 // lanes that have a thread
	alive  uint32 // lanes that have not exited
	mask   uint32 // active lanes

	predicates []uint32 // a bit for each lane
	words      []lanes
	longs      []longs
	local      []byte // local memory of all threads, one after the other

	ways    []way // stack of diverged paths; the last is active
	barrier barrier
	spent   int64  // instructions
	check   int64  // number of instructions after which the warp checks for an interrupt
	line    int    // of the current instruction
	age     uint32 // number of bar.warp.sync that the warp has executed
	copies  copies // cp.async

	near    int // number of the most recently used allocation
	nearest *allocation

	// If some lanes are inactive, results are computed here for all lanes and copied for the active ones.
	spareWord lanes
	spareLong longs
	at        longs // addresses
}

// A way is a set of lanes that continue at a basic block until they reach the block where the paths
// reconverge.
type way struct {
	block, end int
	mask       uint32
}

// begin prepares the warp for the group's next block.
func (w *warp) begin() {
	p := w.group.program
	w.state, w.alive, w.mask = ready, w.all, w.all
	w.ways = append(w.ways[:0], way{0, len(p.blocks) - 1, w.all})
	w.spent, w.age = 0, 0
	w.checkLater()
	w.copies.clear()
	for _, slot := range p.undefined.words {
		w.words[slot] = lanes{}
	}
	for _, slot := range p.undefined.longs {
		w.longs[slot] = longs{}
	}
	for _, slot := range p.undefined.predicates {
		w.predicates[slot] = 0
	}
	clear(w.local)
	for _, s := range p.specials {
		if s.long {
			for i := range w.longs[s.slot] {
				w.longs[s.slot][i] = s.get(w, i)
			}
			continue
		}
		for i := range w.words[s.slot] {
			w.words[s.slot][i] = uint32(s.get(w, i))
		}
	}
}

// thread returns the position of a lane's thread in its block.
func (w *warp) thread(lane int) cuda.Dim {
	n := w.number*32 + lane
	b := w.group.launch.block
	return cuda.Dim{X: n % b.X, Y: n / b.X % b.Y, Z: n / b.X / b.Y}
}

// faultf returns a Fault of a lane.
func (w *warp) faultf(line, lane int, format string, args ...any) error {
	return &Fault{w.group.program.name, w.group.place, w.thread(lane), line, fmt.Sprintf(format, args...)}
}

// fail ends the launch with a Fault.
func (w *warp) fail(lane int, format string, args ...any) {
	if w.group.fault == nil {
		w.group.fault = w.faultf(w.line, lane, format, args...)
	}
}

// first returns the lowest lane of a mask.
func first(mask uint32) int { return bits.TrailingZeros32(mask) & 31 }

// holds returns the lanes whose guard is true.
func (w *warp) holds(g guard) uint32 {
	if g.slot < 0 {
		return w.mask
	}
	p := w.predicates[g.slot]
	if g.not {
		p = ^p
	}
	return w.mask & p
}

// checkEvery is the number of instructions after which a warp checks for an interrupt.
const checkEvery = 1 << 16

func (w *warp) checkLater() {
	w.check = min(w.spent+checkEvery, w.group.device.driver.config.Limit)
}

// run executes up to a barrier, the end, or a fault.
func (w *warp) run() {
	g := w.group
	blocks := g.program.blocks
	for {
		top := &w.ways[len(w.ways)-1]
		if top.block == top.end && len(w.ways) > 1 || top.mask == 0 {
			w.ways = w.ways[:len(w.ways)-1]
			if len(w.ways) == 0 {
				w.state = left
				return
			}
			continue
		}
		b := &blocks[top.block]
		w.mask = top.mask
		count := &g.tallies[top.block]
		count.warps++
		count.threads += int64(bits.OnesCount32(w.mask))
		w.spent += b.work.instructions
		if w.spent > w.check {
			if w.ends(b.line) {
				return
			}
			w.checkLater()
		}
		for i := range b.code {
			in := &b.code[i]
			w.line = in.line
			if in.guard.slot < 0 {
				in.run(w)
			} else if w.mask = w.holds(in.guard); w.mask != 0 {
				in.run(w)
				w.mask = top.mask
			} else {
				w.mask = top.mask
			}
			if g.fault != nil {
				return
			}
		}
		switch b.ends {
		case falls:
			top.block = b.next
		case branches:
			w.branch(top, b)
		case indexes:
			w.choose(top, b)
			if g.fault != nil {
				return
			}
		case exits:
			w.line = b.line
			w.leave(w.holds(b.guard))
			if top.block = b.next; len(w.ways) == 0 {
				w.state = left
				return
			}
		case waits:
			top.block = b.next
			w.state = halted
			return
		}
	}
}

// ends reports whether the warp must stop: its launch is canceled, or it has run for too long.
func (w *warp) ends(line int) bool {
	d := w.group.device.driver
	w.line = line
	switch {
	case d.canceled():
		w.group.fault = cuda.ErrCanceled
	case w.spent > d.config.Limit:
		w.fail(first(w.mask), "the warp has executed %d instructions without ending", w.spent)
	}
	return w.group.fault != nil
}

// branch splits the active lanes. The lanes that do not jump are executed first.
func (w *warp) branch(top *way, b *block) {
	jump := w.holds(b.guard)
	switch stay := w.mask &^ jump; {
	case stay == 0:
		top.block = b.target
	case jump == 0:
		top.block = b.next
	default:
		top.block = b.merge
		if b.target != b.merge {
			w.ways = append(w.ways, way{b.target, b.merge, jump})
		}
		if b.next != b.merge {
			w.ways = append(w.ways, way{b.next, b.merge, stay})
		}
	}
}

// choose splits the active lanes by an index.
func (w *warp) choose(top *way, b *block) {
	index := &w.words[b.index]
	top.block = b.merge
	for rest := w.mask; rest != 0; {
		n := index[first(rest)]
		if n >= uint32(len(b.table)) {
			w.line = b.line
			w.fail(first(rest), "brx.idx: index %d of a table of %d", n, len(b.table))
			return
		}
		var same uint32
		for m := rest; m != 0; m &= m - 1 {
			if index[first(m)] == n {
				same |= m & -m
			}
		}
		w.ways = append(w.ways, way{b.table[n], b.merge, same})
		rest &^= same
	}
}

// leave ends the active threads.
func (w *warp) leave(gone uint32) {
	w.alive &^= gone
	for i := range w.ways {
		w.ways[i].mask &^= gone
	}
	for len(w.ways) > 0 && w.ways[len(w.ways)-1].mask == 0 {
		w.ways = w.ways[:len(w.ways)-1]
	}
}

// blend copies the active lanes.
func (w *warp) blend(d, from *lanes) {
	for m := w.mask; m != 0; m &= m - 1 {
		i := first(m)
		d[i] = from[i]
	}
}

func (w *warp) blendLong(d, from *longs) {
	for m := w.mask; m != 0; m &= m - 1 {
		i := first(m)
		d[i] = from[i]
	}
}

// put returns the destination for an instruction's result: the register itself if all threads are active.
func (w *warp) put(slot int) *lanes {
	if w.mask == w.alive {
		return &w.words[slot]
	}
	return &w.spareWord
}

// done copies the active lanes from the destination that put returned.
func (w *warp) done(slot int) {
	if w.mask != w.alive {
		w.blend(&w.words[slot], &w.spareWord)
	}
}

func (w *warp) putLong(slot int) *longs {
	if w.mask == w.alive {
		return &w.longs[slot]
	}
	return &w.spareLong
}

func (w *warp) doneLong(slot int) {
	if w.mask != w.alive {
		w.blendLong(&w.longs[slot], &w.spareLong)
	}
}

// decide sets a predicate for the active lanes.
func (w *warp) decide(slot int, bits uint32) {
	w.predicates[slot] = w.predicates[slot]&^w.mask | bits&w.mask
}
