package draw

import "pesti/exec/plan"

// A touch is a step's access to a range of bytes. The arena of each device is one address space;
// each state and io buffer is one of its own, named by its ID.
type touch struct {
	buffer *plan.Buffer
	lo, hi int64
	writes bool
	reads  bool
}

func (t *touch) space() int {
	if t.buffer.Class == plan.Arena {
		return -1 - t.buffer.Device
	}
	return t.buffer.ID
}

// conflicts reports whether two touches must keep their order.
func (t *touch) conflicts(u *touch) bool {
	return (t.writes || u.writes) && t.space() == u.space() && t.lo < u.hi && u.lo < t.hi
}

// touches lists the memory accesses of every step of a verified program, in execution order.
func touches(p *plan.Plan, g *plan.Program) [][]touch {
	at := func(id int, reads, writes bool) touch {
		b := p.Buffer(g, id)
		return touch{buffer: b, lo: b.Offset, hi: b.Offset + b.Size, reads: reads, writes: writes}
	}
	var all [][]touch
	for _, st := range g.Steps() {
		sig, _ := plan.LookupKernel(st.Kernel)
		var list []touch
		for _, a := range st.Args {
			if o := sig.Operand(a.Role); o.Dir != plan.WeightIn {
				list = append(list, at(a.Buffer, o.Dir.Reads(), o.Dir.Writes()))
			}
		}
		if st.Scratch >= 0 {
			list = append(list, at(st.Scratch, false, true))
		}
		all = append(all, list)
	}
	return all
}

// dependencies returns the links between the steps of a program. A data link goes from the last
// step that wrote a buffer to each step that reads it. A reuse link connects two steps that
// conflict in memory and that no path of links orders yet, so it exists only if nothing else forces
// the order.
func dependencies(steps [][]touch) []link {
	pic := &picture{}
	before := make([]set, len(steps)) // for each step, the steps that must come before it
	writer := map[*plan.Buffer]int{}
	for to, list := range steps {
		before[to] = newSet(len(steps))
		for _, t := range list {
			if from, ok := writer[t.buffer]; ok && t.reads {
				pic.link(from, to, bufferShape(t.buffer), false)
				before[to].add(from)
				before[to].addAll(before[from])
			}
		}
		for _, t := range list {
			if t.writes {
				writer[t.buffer] = to
			}
		}
		for from := to - 1; from >= 0; from-- {
			if !before[to].has(from) && conflict(steps[from], list) {
				pic.link(from, to, "", true)
				before[to].add(from)
				before[to].addAll(before[from])
			}
		}
	}
	return pic.links
}

func conflict(a, b []touch) bool {
	for i := range a {
		for j := range b {
			if a[i].conflicts(&b[j]) {
				return true
			}
		}
	}
	return false
}

// A set is a set of steps, a bit each.
type set []uint64

func newSet(n int) set { return make(set, (n+63)/64) }

func (s set) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s set) has(i int) bool { return s[i/64]>>(i%64)&1 != 0 }
func (s set) addAll(t set) {
	for i := range t {
		s[i] |= t[i]
	}
}
