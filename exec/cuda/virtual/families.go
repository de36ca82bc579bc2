package virtual

import (
	"strings"

	"pesti/exec/cuda/virtual/ptx"
)

// families has the instructions that involve several lanes or have many forms.
var families = map[string]func(c *compiler, in *ptx.Instr) (func(w *warp), error){
	"ld": (*compiler).load, "ldu": (*compiler).load, "st": (*compiler).store,
	"mov": (*compiler).mov, "cvt": (*compiler).cvt, "cvta": (*compiler).cvta, "isspacep": (*compiler).isspacep,
	"setp": (*compiler).setp, "selp": (*compiler).selp,
	"lop3": (*compiler).lop3, "bfi": (*compiler).bfi, "bfe": (*compiler).bfe,
	"bar": (*compiler).barWarp, "shfl": (*compiler).shfl, "vote": (*compiler).vote, "activemask": (*compiler).activemask,
	"cp": (*compiler).cp, "atom": (*compiler).atom, "red": (*compiler).atom,
	"mma": (*compiler).mma, "ldmatrix": (*compiler).ldmatrix,
	"redux": (*compiler).redux, "trap": (*compiler).trap,
	"membar": (*compiler).nop, "fence": (*compiler).nop, "prefetch": (*compiler).nop, "nanosleep": (*compiler).nop,
	"prefetchu": (*compiler).nop,
}

func nothing(w *warp) {}

// nop is for fences and prefetches, which have no effect: memory is sequentially consistent here.
func (c *compiler) nop(in *ptx.Instr) (func(w *warp), error) { return nothing, nil }

func (c *compiler) mov(in *ptx.Instr) (func(w *warp), error) {
	r := reader{c: c, in: in}
	r.count(2)
	d, a := r.operand(0), r.operand(1)
	size := ptx.Size(in.Type())
	switch {
	case r.err != nil || len(in.Suffix) != 1:
		return nil, unknown(in)
	case d.Kind == ptx.Vector:
		return c.unpackVector(in, size)
	case a.Kind == ptx.Vector:
		return c.packVector(in, size)
	case in.Type() == "pred":
		return c.logic(in)
	case size == 8:
		d, a := r.long(0), r.long(1)
		return func(w *warp) {
			if w.mask == w.alive {
				w.longs[d] = w.longs[a]
				return
			}
			w.blendLong(&w.longs[d], &w.longs[a])
		}, r.err
	case size == 2 || size == 4:
		d, a := r.word(0), r.word(1)
		return func(w *warp) {
			if w.mask == w.alive {
				w.words[d] = w.words[a]
				return
			}
			w.blend(&w.words[d], &w.words[a])
		}, r.err
	}
	return nil, unknown(in)
}

// packVector is "mov.b32 %r, {%rs1, %rs2}". The first element is in the lowest bits.
func (c *compiler) packVector(in *ptx.Instr, size int) (func(w *warp), error) {
	parts := in.Args[1].Parts
	width := 8 * size / len(parts)
	slots := make([]int, len(parts))
	for i := range parts {
		var err error
		if slots[i], err = c.word(in, &parts[i]); err != nil {
			return nil, err
		}
	}
	r := reader{c: c, in: in}
	if size == 8 {
		d := r.long(0)
		return func(w *warp) {
			to := w.putLong(d)
			*to = longs{}
			for k, slot := range slots {
				from := &w.words[slot]
				for i := range to {
					to[i] |= uint64(from[i]) << (k * width)
				}
			}
			w.doneLong(d)
		}, r.err
	}
	d := r.word(0)
	return func(w *warp) {
		to := &w.spareWord
		*to = lanes{}
		for k, slot := range slots {
			from := &w.words[slot]
			for i := range to {
				to[i] |= from[i] << (k * width)
			}
		}
		w.blend(&w.words[d], to)
	}, r.err
}

// unpackVector is "mov.b32 {%rs1, %rs2}, %r".
func (c *compiler) unpackVector(in *ptx.Instr, size int) (func(w *warp), error) {
	parts := in.Args[0].Parts
	width := 8 * size / len(parts)
	if width > 32 {
		return nil, unknown(in)
	}
	slots := make([]int, len(parts))
	for i := range parts {
		slots[i] = -1
		if parts[i].Kind == ptx.Sink {
			continue
		}
		var err error
		if slots[i], err = c.destination(in, &parts[i], ptx.Word); err != nil {
			return nil, err
		}
	}
	r := reader{c: c, in: in}
	m := uint32(1<<width - 1)
	if size == 8 {
		a := r.long(1)
		return func(w *warp) {
			from := &w.longs[a]
			for k, slot := range slots {
				if slot < 0 {
					continue
				}
				to := w.put(slot)
				for i := range to {
					to[i] = uint32(from[i]>>(k*width)) & m
				}
				w.done(slot)
			}
		}, r.err
	}
	a := r.word(1)
	return func(w *warp) {
		from := w.words[a] // a copy: a destination may be the source register
		for k, slot := range slots {
			if slot < 0 {
				continue
			}
			to := w.put(slot)
			for i := range to {
				to[i] = from[i] >> (k * width) & m
			}
			w.done(slot)
		}
	}, r.err
}

// logic is mov, not, and, or, xor of predicates.
func (c *compiler) logic(in *ptx.Instr) (func(w *warp), error) {
	r := reader{c: c, in: in}
	d := r.predicate(0)
	one := func(i int) func(w *warp) uint32 {
		if o := r.operand(i); o.Kind == ptx.Immediate {
			v := -uint32(o.Value & 1)
			return func(*warp) uint32 { return v }
		}
		g := r.predicate(i)
		return func(w *warp) uint32 { return w.bits(g) }
	}
	a := one(1)
	if in.Op == "mov" || in.Op == "not" {
		flip := uint32(0)
		if in.Op == "not" {
			flip = ^flip
		}
		return func(w *warp) { w.decide(d.slot, a(w)^flip) }, r.err
	}
	b := one(2)
	switch in.Op {
	case "and":
		return func(w *warp) { w.decide(d.slot, a(w)&b(w)) }, r.err
	case "or":
		return func(w *warp) { w.decide(d.slot, a(w)|b(w)) }, r.err
	case "xor":
		return func(w *warp) { w.decide(d.slot, a(w)^b(w)) }, r.err
	}
	return nil, unknown(in)
}

// bits returns the value of a predicate for all lanes.
func (w *warp) bits(g guard) uint32 {
	if g.not {
		return ^w.predicates[g.slot]
	}
	return w.predicates[g.slot]
}

func (c *compiler) selp(in *ptx.Instr) (func(w *warp), error) {
	r := reader{c: c, in: in}
	r.count(4)
	p := r.predicate(3)
	if ptx.Size(in.Type()) == 8 {
		d, a, b := r.long(0), r.long(1), r.long(2)
		return func(w *warp) {
			to, x, y, m := w.putLong(d), &w.longs[a], &w.longs[b], w.bits(p)
			for i := range to {
				s := -uint64(m >> i & 1)
				to[i] = y[i] ^ (x[i]^y[i])&s
			}
			w.doneLong(d)
		}, r.err
	}
	d, a, b := r.word(0), r.word(1), r.word(2)
	return func(w *warp) {
		to, x, y, m := w.put(d), &w.words[a], &w.words[b], w.bits(p)
		for i := range to {
			s := -(m >> i & 1)
			to[i] = y[i] ^ (x[i]^y[i])&s
		}
		w.done(d)
	}, r.err
}

// lop3 is an arbitrary function of three bits, given by its truth table.
func (c *compiler) lop3(in *ptx.Instr) (func(w *warp), error) {
	r := reader{c: c, in: in}
	r.count(5)
	d, a, b, e, table := r.word(0), r.word(1), r.word(2), r.word(3), uint32(r.immediate(4))
	if len(in.Suffix) != 1 || in.Type() != "b32" {
		return nil, unknown(in)
	}
	// In the table, a is 1 in the upper half, and b is 1 in the upper half of each half.
	var m [8]uint32
	for i := range m {
		m[i] = -(table >> i & 1)
	}
	return func(w *warp) {
		to, x, y, z := w.put(d), &w.words[a], &w.words[b], &w.words[e]
		for i := range to {
			p, q, s := x[i], y[i], z[i]
			low := (m[0]&^s|m[1]&s)&^q | (m[2]&^s|m[3]&s)&q
			high := (m[4]&^s|m[5]&s)&^q | (m[6]&^s|m[7]&s)&q
			to[i] = low&^p | high&p
		}
		w.done(d)
	}, r.err
}

func (c *compiler) bfi(in *ptx.Instr) (func(w *warp), error) {
	r := reader{c: c, in: in}
	r.count(5)
	at, n := r.word(3), r.word(4)
	switch in.Type() {
	case "b32":
		d, a, b := r.word(0), r.word(1), r.word(2)
		return func(w *warp) {
			to := w.put(d)
			for i := range to {
				to[i] = bfi32(w.words[a][i], w.words[b][i], w.words[at][i], w.words[n][i])
			}
			w.done(d)
		}, r.err
	case "b64":
		d, a, b := r.long(0), r.long(1), r.long(2)
		return func(w *warp) {
			to := w.putLong(d)
			for i := range to {
				to[i] = bfi64(w.longs[a][i], w.longs[b][i], w.words[at][i], w.words[n][i])
			}
			w.doneLong(d)
		}, r.err
	}
	return nil, unknown(in)
}

// bfe is the 64-bit form. The 32-bit form is in operations.
func (c *compiler) bfe(in *ptx.Instr) (func(w *warp), error) {
	if in.Type() != "u64" {
		return c.arithmetic(in)
	}
	r := reader{c: c, in: in}
	r.count(4)
	d, a, at, n := r.long(0), r.long(1), r.word(2), r.word(3)
	return func(w *warp) {
		to := w.putLong(d)
		for i := range to {
			to[i] = w.longs[a][i] >> (w.words[at][i] & 0xff) & span(0, uint64(w.words[n][i]&0xff))
		}
		w.doneLong(d)
	}, r.err
}

// cvta converts an address in a space to a generic address, or back.
func (c *compiler) cvta(in *ptx.Instr) (func(w *warp), error) {
	r := reader{c: c, in: in}
	r.count(2)
	back := in.Has("to")
	var base uint64
	switch {
	case in.Has("global"), in.Has("const"), in.Has("param"):
	case in.Has("shared"), in.Has("shared::cta"):
		base = genericShare
	case in.Has("local"):
		base = genericLocal
	default:
		return nil, unknown(in)
	}
	if back {
		base = -base
	}
	if in.Type() != "u64" || in.Has("param") {
		return nil, unknown(in)
	}
	d, a := r.long(0), r.long(1)
	return func(w *warp) {
		to, from := w.putLong(d), &w.longs[a]
		for i := range to {
			to[i] = from[i] + base
		}
		w.doneLong(d)
	}, r.err
}

// isspacep tests the space of a generic address.
func (c *compiler) isspacep(in *ptx.Instr) (func(w *warp), error) {
	r := reader{c: c, in: in}
	r.count(2)
	want, ok := spaceNames[in.Type()]
	if !ok || want == paramSpace {
		return nil, unknown(in)
	}
	d, a := r.predicate(0), r.long(1)
	return func(w *warp) {
		var m uint32
		for i, at := range &w.longs[a] {
			m |= bit(spaceOf(at) == want) << i
		}
		w.decide(d.slot, m)
	}, r.err
}

// bar is a barrier of the block, or of a number of its threads.
func (c *compiler) bar(in *ptx.Instr) (func(w *warp), error) {
	for _, s := range in.Suffix {
		if s != "sync" && s != "aligned" && s != "cta" {
			return nil, unknown(in)
		}
	}
	if !in.Has("sync") || len(in.Args) < 1 || len(in.Args) > 2 {
		return nil, unknown(in)
	}
	id, err := c.word(in, &in.Args[0])
	if err != nil {
		return nil, err
	}
	threads := c.constant(0)
	if len(in.Args) == 2 {
		if threads, err = c.word(in, &in.Args[1]); err != nil {
			return nil, err
		}
	}
	return func(w *warp) {
		if w.mask != w.alive {
			lane := first(w.alive &^ w.mask)
			w.fail(lane, "divergent barrier: this thread is not at the barrier, but thread %d of the block is", w.number*32+first(w.mask))
			return
		}
		if w.alive != w.all {
			lane := first(w.all &^ w.alive)
			w.fail(lane, "divergent barrier: this thread has left the kernel, but thread %d of the block waits", w.number*32+first(w.mask))
			return
		}
		lane := first(w.mask)
		w.barrier = barrier{int(w.words[id][lane]), int(w.words[threads][lane])}
		if w.barrier.id > 15 || w.barrier.threads%32 != 0 {
			w.fail(lane, "barrier %d of %d threads", w.barrier.id, w.barrier.threads)
		}
	}, nil
}

// barWarp is bar.warp.sync. It makes earlier writes of lanes visible to the other lanes.
func (c *compiler) barWarp(in *ptx.Instr) (func(w *warp), error) {
	r := reader{c: c, in: in}
	r.count(1)
	if strings.Join(in.Suffix, ".") != "warp.sync" {
		return nil, unknown(in)
	}
	mask, err := c.word(in, r.operand(0))
	r.keep(err)
	return func(w *warp) {
		if w.together(&w.words[mask], "bar.warp.sync") {
			w.age++
		}
	}, r.err
}

// together checks a member mask: each active lane is in it, all lanes give the same mask, and all existing
// lanes in it are active.
func (w *warp) together(mask *lanes, opcode string) bool {
	if w.mask == w.all {
		var apart uint32
		for _, named := range mask {
			apart |= named ^ 0xffffffff
		}
		if apart == 0 {
			return true
		}
	}
	for m := w.mask; m != 0; m &= m - 1 {
		lane := first(m)
		named := mask[lane] & w.all
		if named&^w.mask != 0 {
			w.fail(lane, "%s names lane %d, which is not at this instruction", opcode, first(named&^w.mask))
			return false
		}
		if named>>lane&1 == 0 {
			w.fail(lane, "%s does not name the lane that performs it", opcode)
			return false
		}
	}
	return true
}

func (c *compiler) shfl(in *ptx.Instr) (func(w *warp), error) {
	if len(in.Suffix) != 3 || in.Suffix[0] != "sync" || in.Type() != "b32" {
		return nil, unknown(in)
	}
	r := reader{c: c, in: in}
	r.count(5)
	d, a, b, e, members := r.word(0), r.word(1), r.word(2), r.word(3), r.word(4)
	p := guard{slot: -1}
	if parts := r.operand(0).Parts; len(parts) > 0 && parts[0].Kind != ptx.Sink {
		var err error
		p, err = c.predicate(in, &parts[0])
		r.keep(err)
	}
	from, ok := shuffles[in.Suffix[1]]
	if !ok {
		return nil, unknown(in)
	}
	opcode := in.Opcode()
	butterfly := in.Suffix[1] == "bfly"
	return func(w *warp) {
		if !w.together(&w.words[members], opcode) {
			return
		}
		if butterfly && w.mask == 0xffffffff && p.slot < 0 && same(&w.words[b]) && all31(&w.words[e]) {
			from, to, with := w.words[a], &w.words[d], w.words[b][0]&31
			for i := range to {
				to[i] = from[uint32(i)^with]
			}
			return
		}
		var valid uint32
		to, value := &w.spareWord, &w.words[a]
		for m := w.mask; m != 0; m &= m - 1 {
			lane := first(m)
			bounds := w.words[e][lane]
			segment := bounds >> 8 & 31
			j, ok := from(int(lane), int(w.words[b][lane]&31), int(bounds&31), int(segment))
			if !ok {
				j = lane
			} else {
				valid |= 1 << lane
				if w.mask>>j&1 == 0 {
					w.fail(lane, "%s reads lane %d, which is not at this instruction", opcode, j)
					return
				}
			}
			to[lane] = value[j&31]
		}
		w.blend(&w.words[d], to)
		if p.slot >= 0 {
			w.decide(p.slot, valid)
		}
	}, r.err
}

// same reports whether all lanes have the same value, all31 whether they have the value 31.
func same(a *lanes) bool {
	var apart uint32
	for _, v := range a {
		apart |= v ^ a[0]
	}
	return apart == 0
}

func all31(a *lanes) bool { return a[0] == 31 && same(a) }

// shuffles return the source lane, and whether it is within bounds.
var shuffles = map[string]func(lane, b, c, segment int) (int, bool){
	"up": func(lane, b, c, segment int) (int, bool) {
		j := lane - b
		return j, j >= lane&segment|c&^segment
	},
	"down": func(lane, b, c, segment int) (int, bool) {
		j := lane + b
		return j, j <= lane&segment|c&^segment
	},
	"bfly": func(lane, b, c, segment int) (int, bool) {
		j := lane ^ b
		return j, j <= lane&segment|c&^segment
	},
	"idx": func(lane, b, c, segment int) (int, bool) {
		j := lane&segment | b&^segment
		return j, j <= lane&segment|c&^segment
	},
}

func (c *compiler) vote(in *ptx.Instr) (func(w *warp), error) {
	if len(in.Suffix) != 3 || in.Suffix[0] != "sync" {
		return nil, unknown(in)
	}
	r := reader{c: c, in: in}
	r.count(3)
	a, members := r.predicate(1), r.word(2)
	opcode := in.Opcode()
	if in.Suffix[1] == "ballot" {
		d := r.word(0)
		return func(w *warp) {
			if w.together(&w.words[members], opcode) {
				n := w.holds(a)
				to := w.put(d)
				for i := range to {
					to[i] = n
				}
				w.done(d)
			}
		}, r.err
	}
	d := r.predicate(0)
	var test func(yes, all uint32) bool
	switch in.Suffix[1] {
	case "all":
		test = func(yes, all uint32) bool { return yes == all }
	case "any":
		test = func(yes, all uint32) bool { return yes != 0 }
	case "uni":
		test = func(yes, all uint32) bool { return yes == all || yes == 0 }
	default:
		return nil, unknown(in)
	}
	return func(w *warp) {
		if w.together(&w.words[members], opcode) {
			w.decide(d.slot, -bit(test(w.holds(a), w.mask)))
		}
	}, r.err
}

func (c *compiler) activemask(in *ptx.Instr) (func(w *warp), error) {
	r := reader{c: c, in: in}
	r.count(1)
	d := r.word(0)
	return func(w *warp) {
		to := w.put(d)
		for i := range to {
			to[i] = w.mask
		}
		w.done(d)
	}, r.err
}

// redux combines the values of all lanes.
func (c *compiler) redux(in *ptx.Instr) (func(w *warp), error) {
	f, ok := combines[strings.TrimPrefix(strings.Join(in.Suffix, "."), "sync.")]
	if !ok || !in.Has("sync") {
		return nil, unknown(in)
	}
	r := reader{c: c, in: in}
	r.count(3)
	d, a, members := r.word(0), r.word(1), r.word(2)
	opcode := in.Opcode()
	return func(w *warp) {
		if !w.together(&w.words[members], opcode) {
			return
		}
		v := w.words[a][first(w.mask)]
		for m := w.mask & (w.mask - 1); m != 0; m &= m - 1 {
			v = f(v, w.words[a][first(m)])
		}
		to := w.put(d)
		for i := range to {
			to[i] = v
		}
		w.done(d)
	}, r.err
}

// combines has the operations of redux and atom by name and type.
var combines = map[string]func(a, b uint32) uint32{
	"add.u32": func(a, b uint32) uint32 { return a + b },
	"add.s32": func(a, b uint32) uint32 { return a + b },
	"min.u32": func(a, b uint32) uint32 { return min(a, b) },
	"max.u32": func(a, b uint32) uint32 { return max(a, b) },
	"min.s32": func(a, b uint32) uint32 { return uint32(min(int32(a), int32(b))) },
	"max.s32": func(a, b uint32) uint32 { return uint32(max(int32(a), int32(b))) },
	"and.b32": func(a, b uint32) uint32 { return a & b },
	"or.b32":  func(a, b uint32) uint32 { return a | b },
	"xor.b32": func(a, b uint32) uint32 { return a ^ b },
}

// trap ends the launch.
func (c *compiler) trap(in *ptx.Instr) (func(w *warp), error) {
	return func(w *warp) { w.fail(first(w.mask), "trap") }, nil
}
