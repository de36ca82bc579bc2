package plan

import (
	"cmp"
	"fmt"
	"slices"
)

const never = -1

// A checker checks the steps of one program, in order, against the signature table, and tracks the
// state of its buffers.
type checker struct {
	*verifier
	prog  *Program
	at    corners
	uses  []use // by buffer ID: the plan's own buffers first, then the program's
	now   int   // the current wave
	steps int   // number of steps before the current one
}

// A use is a buffer's state after the steps so far. Its step and wave numbers are "never" if no
// step used it.
type use struct {
	*Buffer
	elems   int64 // extent at the program's bounds
	given   bool  // filled by the caller or by earlier runs
	scratch bool
	written extents // elements that hold a value

	firstStep, lastStep int
	firstWave, lastWave int
	readIn, wroteIn     int // the last wave that read, or wrote
}

func newChecker(v *verifier, g *Program) *checker {
	c := &checker{verifier: v, prog: g, at: v.plan.Scope(g).corners()}
	c.uses = make([]use, 0, len(v.plan.Buffers)+len(g.Buffers))
	for _, list := range [][]Buffer{v.plan.Buffers, g.Buffers} {
		for i := range list {
			b := &list[i]
			c.uses = append(c.uses, use{
				Buffer: b, given: b.Class == State || b.Class == Table || inputOf(b) != nil,
				firstStep: never, lastStep: never, firstWave: never, lastWave: never, readIn: never, wroteIn: never,
			})
		}
	}
	return c
}

func (c *checker) run() ([]arenaUse, error) {
	if err := c.extents(); err != nil {
		return nil, err
	}
	for w := range c.prog.Waves {
		c.now = w
		steps := c.prog.Waves[w].Steps
		if len(steps) == 0 {
			return nil, fmt.Errorf("wave %d: no steps, expected at least one", w)
		}
		if len(steps) > 1 && slices.ContainsFunc(steps, c.inOrder) {
			return nil, fmt.Errorf("wave %d: %d steps, expected one: a device runs them one after the other", w, len(steps))
		}
		for i := range steps {
			if err := c.step(&steps[i]); err != nil {
				return nil, fmt.Errorf("step %d %q: %w", steps[i].ID, steps[i].Name, err)
			}
			c.steps++
		}
	}
	if err := c.lifetimes(); err != nil {
		return nil, err
	}
	arenas := make([]arenaUse, c.plan.NumDevices())
	for d := range arenas {
		var err error
		if arenas[d], err = c.overlaps(d); err != nil {
			return nil, err
		}
	}
	return arenas, nil
}

// inOrder reports whether a step has a wave of its own, since its device runs steps in order.
func (c *checker) inOrder(st Step) bool {
	return IsTransfer(st.Kernel) || c.exists(st.Device) == nil && c.plan.Device(st.Device).Backend == CUDA
}

// extents evaluates the sizes of all buffers at the program's bounds and checks the offsets of
// arena buffers.
func (c *checker) extents() error {
	shared := c.plan.Scope(nil)
	for id := range c.uses {
		u := &c.uses[id]
		if id < len(c.plan.Buffers) {
			elems, _, err := shared.extent(u.Buffer)
			if err != nil {
				return err
			}
			u.elems = elems
			if err := c.fill(u); err != nil {
				return err
			}
			continue
		}
		if err := c.place(u, id); err != nil {
			return fmt.Errorf("%s: %w", bufferName(u.Buffer), err)
		}
	}
	return nil
}

// fill sets a buffer's state before the first step.
func (c *checker) fill(u *use) error {
	if u.Class == State || u.Class == Table {
		for i := range u.written {
			u.written[i] = u.elems
		}
		return nil
	}
	in := inputOf(u.Buffer)
	if in == nil {
		return nil
	}
	var err error
	u.written, err = c.at.eval(in.Elems)
	return err
}

func (c *checker) place(u *use, id int) error {
	if u.ID != id {
		return fmt.Errorf("expected id b%d", id)
	}
	if err := c.exists(u.Device); err != nil {
		return err
	}
	if u.Class != Arena {
		return fmt.Errorf("class is %q, expected arena in a program", u.Class)
	}
	elems, bytes, err := c.at[greatest].extent(u.Buffer)
	if err != nil {
		return err
	}
	u.elems = elems
	if err := atLeast("elements", elems, 1); err != nil {
		return err
	}
	if u.Each {
		if u.Stride < bytes || u.Stride%ArenaAlign != 0 {
			return fmt.Errorf("stride is %d, expected a multiple of %d from %d up", u.Stride, ArenaAlign, bytes)
		}
		threads := c.plan.Device(u.Device).Threads
		all, ok := mul(u.Stride, int64(threads))
		if !ok {
			return fmt.Errorf("stride is %d, expected %d copies to fit in memory", u.Stride, threads)
		}
		bytes = all
	} else if u.Stride != 0 {
		return fmt.Errorf("stride is %d, expected 0 in a buffer of one copy", u.Stride)
	}
	if err := atLeast("size", u.Size, bytes); err != nil {
		return err
	}
	if u.Offset < 0 || u.Offset%ArenaAlign != 0 {
		return fmt.Errorf("offset is %d, expected a multiple of %d", u.Offset, ArenaAlign)
	}
	if arena := c.plan.Device(u.Device).Memory.Arena; u.Size > arena || u.Offset > arena-u.Size {
		return fmt.Errorf("%d bytes at offset %d, expected the end inside the arena of %d", u.Size, u.Offset, arena)
	}
	return nil
}

// lifetimes compares the plan's lifetimes with the observed ones, and checks that every buffer is
// used and every output is complete.
func (c *checker) lifetimes() error {
	for i := range c.uses {
		u := &c.uses[i]
		switch {
		case u.Class == Arena && u.firstStep == never:
			return fmt.Errorf("%s: no step touches it, expected one", bufferName(u.Buffer))
		case u.Class == Arena && (u.First != u.firstStep || u.Last != u.lastStep+1):
			return fmt.Errorf("%s: steps are [%d,%d), expected [%d,%d)", bufferName(u.Buffer), u.First, u.Last, u.firstStep, u.lastStep+1)
		case u.Class == IO && !u.given && u.wroteIn == never:
			return fmt.Errorf("%s: no step writes it, expected one in every program", bufferName(u.Buffer))
		case u.Class == IO && !u.given:
			if err := c.whole(u); err != nil {
				return fmt.Errorf("%s: %w", bufferName(u.Buffer), err)
			}
		}
	}
	return nil
}

// whole checks that the steps write exactly the extent of an output.
func (c *checker) whole(u *use) error {
	elems, err := c.at.eval(u.Elems)
	if err != nil {
		return err
	}
	for i, n := range elems {
		if u.written[i] != n {
			return fmt.Errorf("%d values are written in a run of %d tokens and %d rows, expected all %d (%s)", u.written[i], c.at[i].T, c.at[i].R, n, u.Elems)
		}
	}
	return nil
}

// An arenaUse is a program's use of the arena, in bytes, with each buffer's size rounded up to
// ArenaAlign.
type arenaUse struct {
	end      int64 // end of the buffer at the highest address
	peak     int64 // most bytes live in one wave, a lower bound for every arena
	unshared int64 // sum of all sizes, as without reuse of memory
}

// overlaps checks that no two buffers of a device that are live in the same wave share an address.
// A buffer is live for whole waves, since workers do not wait for each other inside a wave.
func (c *checker) overlaps(device int) (arenaUse, error) {
	arena := make([]*use, 0, len(c.prog.Buffers))
	for i := range c.uses {
		if u := &c.uses[i]; u.Class == Arena && u.Device == device {
			arena = append(arena, u)
		}
	}
	slices.SortStableFunc(arena, func(a, b *use) int { return cmp.Compare(a.firstWave, b.firstWave) })

	var sum arenaUse
	var bytes int64   // of the live buffers
	var living []*use // sorted by offset and disjoint, so a new one can overlap its neighbors alone
	for wave := range c.prog.Waves {
		living = slices.DeleteFunc(living, func(u *use) bool {
			dead := u.lastWave < wave
			if dead {
				bytes -= rounded(u.Size)
			}
			return dead
		})
		for len(arena) > 0 && arena[0].firstWave == wave {
			u := arena[0]
			arena = arena[1:]
			at, _ := slices.BinarySearchFunc(living, u, func(a, b *use) int { return cmp.Compare(a.Offset, b.Offset) })
			for _, o := range living[max(at-1, 0):min(at+1, len(living))] {
				if o.Offset < u.Offset+u.Size && u.Offset < o.Offset+o.Size {
					return sum, fmt.Errorf("wave %d: %s at [%d,%d) and %s at [%d,%d) overlap, expected separate addresses while both are live",
						wave, bufferName(o.Buffer), o.Offset, o.Offset+o.Size, bufferName(u.Buffer), u.Offset, u.Offset+u.Size)
				}
			}
			living = slices.Insert(living, at, u)
			size := rounded(u.Size)
			if sum.unshared > maxInt-size || u.Offset > maxInt-size {
				return sum, fmt.Errorf("%s: sizes add up to more than %d bytes", bufferName(u.Buffer), maxInt)
			}
			bytes += size
			sum.unshared += size
			sum.end = max(sum.end, u.Offset+size)
		}
		sum.peak = max(sum.peak, bytes)
	}
	return sum, nil
}

// rounded returns n rounded up to ArenaAlign, saturated at the largest int64.
func rounded(n int64) int64 {
	if n > maxInt-ArenaAlign {
		return maxInt
	}
	return (n + ArenaAlign - 1) / ArenaAlign * ArenaAlign
}
